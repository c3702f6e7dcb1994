"""Opening campaigns: lazily, several at once, older, newer and damaged ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from fsmatrix import analysis
from fsmatrix.analysis import result
from fsmatrix.analysis.data import columns, load
from fsmatrix.analysis.data.factors import codes
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.studies import flash
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.files import schema
from fsmatrix.results.files.campaignfile import writing
from fsmatrix.results.files.campaignread import entries, reading
from fsmatrix.results.files.run_rows import USAGE_COLUMNS
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.record import RunRecord
from tests.analysis import campaigns
from tests.waiting import PATIENCE


def one(target: str, block: int, **others: object) -> RunRecord:
    values: dict[str, object] = {"coordinates": {"chunk": 4096}, "block": block}
    values["phases"] = (campaigns.phase("read", 1e8, 4096, 1, np.random.default_rng(block)),)
    return campaigns.record(target, **(values | others))


def written(path: Path, *targets: str, **others: object) -> Path:
    return campaigns.write(path, [one(t, block, **others) for t in targets for block in range(2)])


def in_memory(variable: xr.Variable) -> bool:
    return isinstance(variable._data, np.ndarray)


def test_lazy_and_eager_hold_the_same(tmp_path: Path) -> None:
    path = campaigns.write(tmp_path / "c.h5", campaigns.realistic(blocks=1))
    lazy, eager = load.open_campaign(path, lazy=True), load.open_campaign(path, lazy=False)
    assert not any(in_memory(variable) for variable in lazy.data_vars.variables.values())
    assert all(in_memory(variable) for variable in eager.variables.values())
    xr.testing.assert_identical(lazy.load(), eager)


def test_a_small_file_is_read_and_closed_a_large_one_stays_lazy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "c.h5", "xfs")
    assert in_memory(load.open_campaign(path).variables["bandwidth"])
    monkeypatch.setattr(load, "LARGE", path.stat().st_size - 1)
    assert not in_memory(load.open_campaign(path).variables["bandwidth"])


def open_files() -> list[str]:
    """Campaign files that this process has open."""
    handles = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return [str(h.readlink()) for h in handles if h.is_symlink() and h.readlink().suffix == ".h5"]


def test_a_lazy_file_is_open_until_it_is_closed(tmp_path: Path) -> None:
    path = written(tmp_path / "c.h5", "xfs")
    eager = load.open_campaign(path, lazy=False)
    assert str(path) not in open_files()
    lazy = load.open_campaign(path, lazy=True)
    assert str(path) in open_files()
    lazy.close()
    assert str(path) not in open_files()
    assert eager.sizes == lazy.sizes


def test_equal_texts_of_a_campaign_are_one_object(tmp_path: Path) -> None:
    ds = load.open_campaign(written(tmp_path / "c.h5", "xfs", "ext4"), lazy=True)
    assert len({id(text) for text in ds["target"].values}) == 2


def test_text_that_hdf5_cannot_hold_comes_back_decoded(tmp_path: Path) -> None:
    error = "failed: \0 \N{GREEK SMALL LETTER MU}"
    path = written(tmp_path / "c.h5", "xfs", status="failed", phases=(), error=error)
    data = load.rows(load.open_campaign(path, lazy=True))
    assert data["error"].tolist() == [error, error]


def test_rows_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    ds = load.open_campaign(written(tmp_path / "c.h5", "xfs", "ext4"), lazy=True)
    asked: list[str] = []

    def read(name: str) -> columns.Array:
        asked.append(name)
        return ds[name].values

    watched = load.Rows(columns.Columns(load.rows(ds).columns, read), {})
    few = watched.where(watched["target"] == "xfs")
    assert asked == ["target"]
    assert few["block"].tolist() == [0, 1]
    assert few["block"] is few["block"]
    assert asked == ["target", "block"]
    assert "nothing" not in few.columns
    with pytest.raises(KeyError, match="nothing"):
        few["nothing"]


def test_a_join_is_lazy_and_moves_indexes(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{target}.h5", target) for target in ("xfs", "ext4")]
    ds = load.open_campaign(paths, lazy=True)
    assert not in_memory(ds.variables["bandwidth"])
    assert ds["worker_run"].values.tolist() == [0, 1, 2, 3]
    assert ds["worker_first"].values.tolist() == [0, 1, 2, 3]
    environments = load.environments(ds)
    found = [environments[i]["target"]["backend"] for i in ds["environment_index"].values]
    assert found == ds["target"].values.tolist() == ["xfs"] * 2 + ["ext4"] * 2
    assert ds.attrs["runs"] == 4


def test_a_factor_that_only_one_file_has_is_missing_in_the_others(tmp_path: Path) -> None:
    first = written(tmp_path / "a.h5", "xfs")
    second = written(tmp_path / "b.h5", "ext4", coordinates={"chunk": "auto", "threads": 4})
    ds = load.open_campaign([first, second])
    assert ds["threads"].values.tolist()[2:] == [4.0, 4.0]
    assert np.isnan(ds["threads"].values[:2]).all()
    assert ds["chunk"].values.tolist() == ["4096", "4096", "auto", "auto"]


def test_a_campaign_joined_with_itself_is_itself(tmp_path: Path) -> None:
    path = campaigns.write(tmp_path / "c.h5", campaigns.realistic(blocks=2))
    alone, twice = load.open_campaign(path), load.open_campaign([path, path])
    assert twice.sizes["run"] == alone.sizes["run"]
    assert str(summarise(twice).cells) == str(summarise(alone).cells)  # NaN are equal


def test_an_older_schema_is_upgraded_and_joins_with_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = written(tmp_path / "old.h5", "xfs")
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    with pytest.raises(schema.DamagedFileError, match="schema 1 is not known"):
        load.open_campaign(old)
    monkeypatch.setitem(load.UPGRADES, 1, lambda ds: ds.assign(added=ds["block"] + 10))
    for lazy in (False, True):
        ds = load.open_campaign(old, lazy=lazy)
        assert ds.attrs["schema_version"] == 2
        assert ds["added"].values.tolist() == [10, 11]


def before_usage(path: Path) -> Path:
    """The file as it was before campaign files had rates and shares (results/files/run_rows.py)."""
    with h5py.File(path, "a") as file:
        for name in USAGE_COLUMNS:
            del file[name]
    return path


def test_a_file_from_before_the_usage_columns_opens_without_them(tmp_path: Path) -> None:
    old = before_usage(written(tmp_path / "old.h5", "xfs"))
    for lazy in (False, True):
        ds = load.open_campaign(old, lazy=lazy)
        assert ds.attrs["schema_version"] == schema.SCHEMA_VERSION
        assert not set(USAGE_COLUMNS) & set(ds.variables)
        assert [cell.runs for cell in summarise(ds).cells] == [2]
        with pytest.raises(ValueError, match="no cpu_user, cpu_system, cpu_iowait, cpu_idle in"):
            flash.cpu(ds)


def test_a_file_from_before_the_usage_columns_joins_with_a_new_one(tmp_path: Path) -> None:
    old = before_usage(written(tmp_path / "old.h5", "xfs"))
    shares = {"busy": 0.25, "iowait": 0.5, "idle": 0.25}
    evidence = read(Evidence, {"cpu": {"read": {"node1": shares}}}, "evidence")
    new = written(tmp_path / "new.h5", "ext4", evidence=evidence)
    ds = load.open_campaign([old, new])
    assert ds["cpu_idle"].attrs["units"] == "1"
    assert np.isnan(ds["cpu_idle"].values[:2]).all()
    assert ds["cpu_idle"].values[2:].tolist() == [0.25, 0.25]
    with writing(tmp_path / "again.h5") as writer:  # as an import into a campaign file does
        for path in (old, new):
            with reading(path) as file:
                for entry in entries(file):
                    writer.put(entry)
        writer.finish("{}", [])
    again = load.open_campaign(tmp_path / "again.h5")
    np.testing.assert_array_equal(again["cpu_idle"].values, ds["cpu_idle"].values)


def test_what_is_no_campaign_is_refused_by_name(tmp_path: Path) -> None:
    whole = written(tmp_path / "c.h5", "xfs").read_bytes()
    cut = tmp_path / "cut.h5"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(schema.DamagedFileError, match=r"cut\.h5"):
        load.open_campaign(cut)
    cut.write_bytes(b"")
    with pytest.raises(schema.DamagedFileError, match=r"cut\.h5"):
        load.open_campaign(cut)
    with pytest.raises(ResultError, match=r"campaign\.h5: no such file"):
        load.open_campaign(tmp_path)
    with pytest.raises(ValueError, match="no campaign file given"):
        load.open_campaign([])


def test_an_empty_campaign_opens_and_says_so(tmp_path: Path) -> None:
    path = campaigns.write(tmp_path / "c.h5", [])
    for paths in (path, [path, path]):
        ds = load.open_campaign(paths)
        assert ds.sizes["run"] == 0
        with pytest.raises(ValueError, match="no runs"):
            load.rows(ds)


def test_codes_are_those_of_factors() -> None:
    for values in (
        np.array(["b", "a", "", "b"], dtype=object),
        np.array([3.0, np.nan, 1.0, np.nan]),
        np.array([4096, 1, 4096]),
    ):
        levels, own = columns.coded(values)
        expected, places = codes(values.astype(str) if values.dtype == object else values)
        assert str(levels) == str(expected)
        assert own.tolist() == places.tolist()


def test_combinations_are_numbered_by_their_first_row() -> None:
    a, b = np.array([0, 1, 0, 1]), np.array([5, 5, 5, 6])
    first, group = columns.combined([a, b], 4)
    assert first.tolist() == [0, 1, 3]
    assert group.tolist() == [0, 1, 0, 2]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, fsmatrix.analysis as a\n"
        "heavy = {'xarray', 'pandas', 'numpy', 'h5py'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print(a.published_table('ssd-cluster-setup').shape, 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=True,
        timeout=PATIENCE,
        capture_output=True,
        text=True,
    )
    rows, columns = analysis.published_table("ssd-cluster-setup").shape
    assert done.stdout == f"[]\n({rows}, {columns}) True\n"
    assert rows > 0


def test_the_package_offers_what_it_names() -> None:
    assert analysis.open is load.open_campaign
    assert all(callable(getattr(analysis, name)) for name in analysis.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        analysis.nothing  # noqa: B018


def test_plain_data_is_fit_for_json() -> None:
    given = {"a": np.float64("nan"), 1: np.arange(2), "c": (True, float("inf"), {"z", "y"})}
    assert result.plain(given) == {"a": None, "1": [0, 1], "c": [True, None, ["y", "z"]]}
    with pytest.raises(TypeError, match="object"):
        result.plain(object())
