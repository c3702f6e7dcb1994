"""Iterations in files: those of before are read, and what carries runs carries them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from fsmatrix.results import iterations
from fsmatrix.results.files.runfile import read_run, write_run
from fsmatrix.results.files.schema import InvalidRecordError
from fsmatrix.results.files.store import Store
from fsmatrix.results.formats.parsed import totals
from fsmatrix.results.record import Phase
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.archives import unpack
from tests.results.hostile import record
from tests.results.ior_outputs import GOOD, MIB, only, phase, runs

# as run files held the iterations of tests/data/ior/ior-4.1-stonewall.txt, and of mdtest, when
# they were facts
OLD_IOR = [
    {"iteration": 0, "bytes": 542310400, "operations": 8275, "seconds": 1.0003803618,
     "bandwidth_mib": 516.99, "open_seconds": 0.000212, "transfer_seconds": 1.0,
     "close_seconds": 0.000296, "iops_printed": 8273.0, "latency_rank0": 0.000242,
     "stonewall": {"pairs_min": 4036, "pairs_max": 4239, "seconds": 1.0}, "slowest_rank": 1,
     "rank_seconds": {"minimum": 0.9, "median": 0.95, "maximum": 1.0}},
    {"iteration": 2, "bytes": 534052864, "operations": 8149, "seconds": 1.0,
     "bandwidth_mib": 509.3, "open_seconds": 0.0002, "transfer_seconds": 1.0,
     "close_seconds": 0.0003, "bytes_exact": False},
]  # fmt: skip
OLD_MDTEST = [
    {"seconds": 0.5, "operations": 600, "bytes": 0},
    {"seconds": 0.25, "operations": 600, "bytes": 0},
]


def written(tmp_path: Path, *phases: Phase) -> tuple[Phase, ...]:
    """The phases after a run file."""
    write_run(tmp_path / "run.h5", record(phases=phases))
    return read_run(tmp_path / "run.h5").phases


def old(name: str, parts: object) -> Phase:
    return totals(name, 2.0, 1 << 30, 100, facts={"iterations": parts, "window": "w"})


def test_run_files_of_before_have_them_in_the_facts(tmp_path: Path) -> None:
    write, create = written(tmp_path, old("write", OLD_IOR), old("create", OLD_MDTEST))
    assert write.facts == create.facts == {"window": "w"}
    told = {name: column.tolist() for name, column in write.iterations.items()}
    assert (told["number"], told["bytes"]) == ([0, 2], [542310400, 534052864])
    assert told["seconds"] == [1.0003803618, 1.0]
    assert told["bandwidth"] == [516.99 * MIB, 509.3 * MIB]
    assert (told["open"], told["close"]) == ([0.000212, 0.0002], [0.000296, 0.0003])
    assert told["iops"] == pytest.approx([8273, np.nan], nan_ok=True)
    assert told["bytes_exact"] == pytest.approx([np.nan, 0], nan_ok=True)
    firsts = (
        "pairs_min",
        "pairs_max",
        "stonewall_seconds",
        "slowest_rank",
        "rank_min",
        "rank_median",
        "rank_max",
        "latency_rank0",
    )
    assert [told[name][0] for name in firsts] == [4036, 4239, 1.0, 1, 0.9, 0.95, 1.0, 0.000242]
    assert create.iterations["number"].tolist() == [0, 1]
    assert create.iterations["seconds"].tolist() == [0.5, 0.25]
    again = written(tmp_path, write, create)
    assert again[0].iterations.keys() == write.iterations.keys()
    assert again[0].facts == {"window": "w"}


@pytest.mark.parametrize(
    "parts", [[], 3, ["a"], [{"seconds": 1.0}], [*OLD_MDTEST, {"seconds": "x"}], {"a": 1}]
)
def test_facts_that_are_no_iterations_stay(parts: object, tmp_path: Path) -> None:
    (read,) = written(tmp_path, old("write", parts))
    assert read.iterations == {}
    assert read.facts["iterations"] == parts


def test_campaign_files_hold_every_iteration_of_every_output(tmp_path: Path) -> None:
    """IOR 3.2 to 4.1 in text, JSON and CSV: a row each, as the parser read it."""
    store = Store.create(tmp_path / "out")
    phases = [one for name in GOOD for run in runs(name) for one in run.phases]
    named = [replace(one, name=f"{one.name}-{index}") for index, one in enumerate(phases)]
    store.write(record(phases=tuple(named)))
    with xr.open_dataset(store.merge(), engine="h5netcdf") as ds:
        assert ds.sizes["iteration"] == sum(iterations.size(one.iterations) for one in phases)
        for row, one in enumerate(phases):
            first, size = ds["iteration_first"].values[row], ds["iteration_size"].values[row]
            part = slice(first, first + size)
            assert (ds["iteration_run"].values[part] == row).all()
            for name, column in iterations.filled(one.iterations).items():
                stored = ds[f"iteration_{name}"].values[part]
                assert np.array_equal(stored, column, equal_nan=True), (one.name, name)
            assert ds["own_bandwidth_max"].values[row] == one.summary["bandwidth_max"]


@pytest.mark.parametrize("place", [0, 1, 699])
def test_a_campaign_file_has_them_from_the_first_run_that_has_some(
    place: int, tmp_path: Path
) -> None:
    """Rows before and after it have none; without any there are no such variables."""
    bare = totals("stat", 1.0)
    phases = [bare] * 700
    phases[place] = phase(only("ior-3.2.1-fpp.txt"), "write")
    names = [replace(one, name=f"{index}") for index, one in enumerate(phases)]
    store = Store.create(tmp_path / "out")
    store.write(record(phases=tuple(names)))
    with xr.open_dataset(store.merge(), engine="h5netcdf") as ds:
        sizes = np.where(np.arange(700) == place, 3, 0)
        assert ds["iteration_size"].values.tolist() == sizes.tolist()
        assert ds["iteration_run"].values.tolist() == [place] * 3
        told = np.flatnonzero(~np.isnan(ds["own_bandwidth_mean"].values))
        assert told.tolist() == [place]
    none = Store.create(tmp_path / "none")
    none.write(record(phases=(bare,)))
    with xr.open_dataset(none.merge(), engine="h5netcdf") as ds:
        assert not [name for name in ds.variables if str(name).startswith(("iteration", "own_"))]


def test_what_a_phase_does_not_tell_is_absent_in_a_run_file(tmp_path: Path) -> None:
    write = phase(only("ior-3.2.1-fpp.txt"), "write")
    bare = totals("stat", 1.0)
    told, nothing = written(tmp_path, write, bare)
    assert set(told.iterations) == set(write.iterations)
    assert (nothing.iterations, nothing.summary) == ({}, {})
    with h5py.File(tmp_path / "run.h5") as file:
        assert "iteration_latency_rank0" not in file  # 3.2 prints none
        assert file["iterations"][...].tolist() == [3, 0]
    written(tmp_path, bare)
    with h5py.File(tmp_path / "run.h5") as file:
        assert not [name for name in file if name.startswith(("iteration", "own"))]


@pytest.mark.parametrize("anonymise", [False, True])
def test_bundles_carry_them(anonymise: bool, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out")
    store.write(record())
    bundle(store.directory, tmp_path / "b.tar.gz", Options(anonymise))
    inside = unpack(tmp_path / "b.tar.gz", tmp_path / "unpacked")
    (path,) = inside.rglob("runs/*/*.h5")
    (read,) = read_run(path).phases
    assert read.iterations["open"].tolist() == [0.1, 0.1]
    assert read.summary == {"iterations": 2, "bandwidth_max": 1024.0}
    (merged,) = inside.rglob("campaign.h5")
    with xr.open_dataset(merged, engine="h5netcdf") as ds:
        assert ds["iteration_open"].values.tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iterations": {"wrong": np.ones(2)}}, "have no column 'wrong'"),
        ({"iterations": {"seconds": np.ones(2)}}, "iterations without number"),
        ({"summary": {"maximum": 1.0}}, "has no 'maximum'"),
    ],
)
def test_what_is_no_iteration_is_not_stored(
    change: dict[str, object], reason: str, tmp_path: Path
) -> None:
    wrong = replace(totals("write", 1.0), **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidRecordError, match=reason):
        write_run(tmp_path / "run.h5", record(phases=(wrong,)))
    assert list(tmp_path.iterdir()) == []
