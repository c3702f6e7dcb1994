"""The matrix of a campaign, against summaries and numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix import analysis
from fsmatrix.analysis.data import load, matrices
from fsmatrix.analysis.data.summary import Excluded, summarise
from fsmatrix.analysis.stats.estimates.medians import per_attachment
from fsmatrix.results.record import Finding, RunRecord
from tests.analysis import campaigns

INVALID = Finding("read-served-by-cache", 1, "invalid", "from memory")


def run(target: str, block: int, speed: float, **others: Any) -> RunRecord:
    values: dict[str, Any] = {"coordinates": {"chunk": 4096}, "block": block}
    values["phases"] = (campaigns.phase("read", speed, 4096, 1, np.random.default_rng(block)),)
    return campaigns.record(target, **(values | others))


def dataset(folder: Path, *records: RunRecord) -> xr.Dataset:
    return load.open_campaign(campaigns.write(folder / "campaign.h5", records))


@pytest.mark.parametrize("metric", ["bandwidth", "iops", "latency_mean", "latency_p99_9"])
@pytest.mark.parametrize("include", [(), ("invalid",), ("reference",)])
def test_every_cell_is_that_of_the_summary(
    tmp_path: Path, metric: str, include: Collection[Excluded]
) -> None:
    records = campaigns.realistic(targets=("xfs", "btrfs", "memory"), blocks=4)
    ds = dataset(tmp_path, *records)
    array = analysis.matrix(ds, metric, include=include)
    summary = summarise(ds, include=include)
    assert set(array.dims) == set(summary.varying) - {"phase"}
    for cell in summary.cells:
        there = array.sel({str(name): cell.levels[str(name)] for name in array.dims})
        assert str(there.coords["phase"].item()) == cell.levels["phase"]
        expected = cell.metrics[metric]
        assert there.item() == pytest.approx(expected.median, nan_ok=True)
        assert there.coords["runs"].item() == expected.runs
        assert there.coords["attachments"].item() == expected.independent
    assert array.size == len(summary.cells)


def test_a_cell_is_the_median_of_the_medians_of_attachments(tmp_path: Path) -> None:
    speeds = {"a": [1e8, 2e8, 9e8], "b": [3e8], "c": [4e8, 6e8]}
    records = [
        run("xfs", number, speed, attachment=name, repetition=10 * number + place)
        for number, (name, own) in enumerate(speeds.items())
        for place, speed in enumerate(own)
    ]
    ds = dataset(tmp_path, *records)
    value = analysis.matrix(ds, "bandwidth")
    assert value.dims == ()
    assert value.item() == pytest.approx(3e8)  # of 2e8, 3e8, 5e8
    assert (value.coords["runs"].item(), value.coords["attachments"].item()) == (6, 3)
    assert value.coords["target"].item() == "xfs"
    assert analysis.matrix(ds, "bandwidth", statistic="mean").item() == pytest.approx(4e8)
    assert analysis.matrix(ds, "bandwidth", statistic="min").item() == pytest.approx(1e8)
    assert analysis.matrix(ds, "bandwidth", statistic="max").item() == pytest.approx(9e8)
    kept = analysis.matrix(ds, "bandwidth", by="attachment")
    assert kept.values == pytest.approx([2e8, 3e8, 5e8])
    assert kept.coords["attachment_id"].values.tolist() == ["a", "b", "c"]
    assert kept.coords["block"].values.tolist() == [0, 1, 2]
    runs = analysis.matrix(ds, "bandwidth", by="run")
    assert np.sort(runs.values) == pytest.approx(sorted(itertools.chain(*speeds.values())))
    medians = per_attachment(runs.values, runs.coords["attachment_id"].values)
    assert medians == pytest.approx([2e8, 3e8, 5e8])


def test_an_unbalanced_design_is_filled_with_nan(tmp_path: Path) -> None:
    records = [run("xfs", block, 1e8 + block) for block in range(3)]
    records += [run("ext4", 0, 5e8)]
    records += [run("ext4", 0, 7e8, coordinates={"chunk": 1 << 20})]
    ds = dataset(tmp_path, *records)
    array = analysis.matrix(ds, "bandwidth")
    assert math.isnan(array.sel(chunk=1 << 20, target="xfs"))
    assert array.coords["runs"].sel(chunk=1 << 20, target="xfs") == 0
    assert array.coords["chunk"].attrs["units"] == "B"
    kept = analysis.matrix(ds, "bandwidth", by="attachment")
    assert kept.dims == ("chunk", "target", "attachment")
    assert kept.sel(chunk=4096, target="ext4").values[0] == pytest.approx(5e8)
    assert np.isnan(kept.sel(chunk=4096, target="ext4").values[1:]).all()
    assert kept.coords["attachment_id"].sel(chunk=4096, target="ext4").values.tolist() == [
        "ext4-b0",
        "",
        "",
    ]


def test_units_are_shown_as_asked(tmp_path: Path) -> None:
    ds = dataset(tmp_path, run("xfs", 0, 1.25e8))
    si = analysis.matrix(ds, "bandwidth")
    assert si.attrs["units"] == "B s-1"
    for unit, value in (
        ("Mb/s", 1000),
        ("MB/s", 125),
        ("MiB/s", 125e6 / 2**20),
        ("GiB/s", 0.125e9 / 2**30),
    ):
        shown = analysis.matrix(ds, "bandwidth", unit=unit)
        assert shown.attrs["units"] == unit
        assert shown.item() == pytest.approx(value)
    seconds = analysis.matrix(ds, "latency_mean").item()
    assert analysis.matrix(ds, "latency_mean", unit="ms").item() == pytest.approx(seconds * 1e3)
    assert analysis.matrix(ds, "latency_mean", unit="us").item() == pytest.approx(seconds * 1e6)
    assert analysis.matrix(ds, "window").attrs["units"] == "s"
    for metric, unit in (("bandwidth", "ms"), ("iops", "Mb/s"), ("attempt", "ms")):
        with pytest.raises(ValueError, match=f"{metric} cannot be shown in '{unit}'"):
            analysis.matrix(ds, metric, unit=unit)


def test_unknown_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    ds = dataset(tmp_path, run("xfs", 0, 1e8))
    with pytest.raises(ValueError, match=r"no metric 'speed'.*bandwidth"):
        analysis.matrix(ds, "speed")
    with pytest.raises(ValueError, match="no metric 'status'"):
        analysis.matrix(ds, "status")
    with pytest.raises(ValueError, match=r"no factor 'colour'.*target"):
        analysis.matrix(ds, "bandwidth", dims=["colour"])
    with pytest.raises(ValueError, match="statistic 'sum'"):
        analysis.matrix(ds, "bandwidth", statistic="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="by 'block'"):
        analysis.matrix(ds, "bandwidth", by="block")  # type: ignore[arg-type]


def test_engines_and_cache_states_are_not_mixed_in_a_cell(tmp_path: Path) -> None:
    records = [run("xfs", block, 1e8) for block in range(2)]
    records += [run("xfs", 2, 2e8, engine="fio")]
    records += [run("xfs", 3, 9e8, coordinates={"chunk": 4096, "cache": "warm"})]
    ds = dataset(tmp_path, *records)
    array = analysis.matrix(ds, "bandwidth")
    assert set(array.dims) == {"engine", "cache"}
    assert array.sel(engine="fio", cache="cold") == pytest.approx(2e8)
    assert math.isnan(array.sel(engine="fio", cache="warm"))
    with pytest.raises(ValueError, match=r"mix engine (fio and player-c|player-c and fio)"):
        analysis.matrix(ds, "bandwidth", dims=["cache"])
    with pytest.raises(ValueError, match=r"mix cache (cold and warm|warm and cold)"):
        analysis.matrix(ds, "bandwidth", dims=["engine"])


def test_an_engine_of_its_own_for_each_target_stays_a_dimension(tmp_path: Path) -> None:
    ds = dataset(tmp_path, run("xfs", 0, 1e8), run("ext4", 0, 2e8, engine="fio"))
    assert analysis.matrix(ds, "bandwidth").dims == ("engine", "target")


def test_dims_are_given_in_their_order_and_refuse_to_pool(tmp_path: Path) -> None:
    ds = dataset(tmp_path, *campaigns.realistic(blocks=2, troubles=False))
    dims = ["target", "processes_per_node", "pattern", "chunk"]
    array = analysis.matrix(ds, "bandwidth", dims=dims)
    assert list(array.dims) == dims
    with pytest.raises(ValueError, match="make chunk a dimension"):
        analysis.matrix(ds, "bandwidth", dims=["target", "processes_per_node", "pattern"])
    small = ds.isel(run=np.flatnonzero(ds["chunk"].values == 4096))
    assert analysis.matrix(small, "bandwidth", dims=dims[:3]).dims == tuple(dims[:3])


def test_factors_that_follow_others_lie_along_them(tmp_path: Path) -> None:
    records = []
    for target, nodes in (("a", 4), ("b", 8)):
        for count in (1, 2):
            levels = {"processes_per_node": count, "processes": count, "storage_nodes": nodes}
            records.append(run(target, 0, 1e8, coordinates=levels))
    array = analysis.matrix(dataset(tmp_path, *records), "bandwidth")
    assert array.dims == ("processes_per_node", "target")
    assert array.coords["storage_nodes"].dims == ("target",)
    assert array.coords["storage_nodes"].values.tolist() == [4, 8]
    assert array.coords["processes"].dims == ("processes_per_node",)


def test_what_does_not_count_is_left_out_and_told(tmp_path: Path) -> None:
    records = [
        run("xfs", 0, 1e8),
        run("xfs", 1, 9e9, findings=(INVALID,)),
        run("xfs", 2, 5e9, status="timeout", error="deadline"),
        run("xfs", 3, 5e9, attempt=1, status="failed", error="EIO"),
        run("xfs", 3, 3e8, attempt=2),
        run("memory", 0, 8e9),
    ]
    array = analysis.matrix(dataset(tmp_path, *records), "bandwidth")
    assert array.item() == pytest.approx(2e8)
    assert array.coords["runs"].item() == 2
    assert (array.attrs["invalid_rows"], array.attrs["failed_rows"]) == (1, 1)


def test_all_failed_is_no_number(tmp_path: Path) -> None:
    records = [run("xfs", b, 1e8, status="failed", phases=(), error="EIO") for b in range(2)]
    ds = dataset(tmp_path, *records)
    array = analysis.matrix(ds, "bandwidth")
    assert math.isnan(array.item())
    assert array.coords["runs"].item() == array.coords["attachments"].item() == 0
    assert array.attrs["failed_rows"] == 2
    assert analysis.matrix(ds, "bandwidth", by="run").shape == (0,)
    assert analysis.matrix(ds, "bandwidth", by="attachment").shape == (0,)


def test_a_target_that_always_failed_keeps_its_place(tmp_path: Path) -> None:
    records = [run("xfs", 0, 1e8), run("ext4", 0, 1e8, status="failed", phases=(), error="EIO")]
    array = analysis.matrix(dataset(tmp_path, *records), "bandwidth")
    assert array.coords["target"].values.tolist() == ["ext4", "xfs"]
    assert np.isnan(array.values).tolist() == [True, False]


def test_one_run_constant_data_and_nan(tmp_path: Path) -> None:
    ds = dataset(tmp_path, run("xfs", 0, 1e8))
    assert analysis.matrix(ds, "bandwidth").item() == pytest.approx(1e8)
    same = dataset(tmp_path, *(run("xfs", block, 1e8) for block in range(7)))
    assert analysis.matrix(same, "bandwidth").item() == pytest.approx(1e8)
    holes = same.assign(bandwidth=same["bandwidth"].where(same["block"] > 5))
    assert analysis.matrix(holes, "bandwidth").coords["runs"].item() == 1
    nothing = same.assign(bandwidth=same["bandwidth"] * np.nan)
    assert math.isnan(analysis.matrix(nothing, "bandwidth").item())


def test_a_phase_that_moved_no_bytes_has_no_bandwidth(tmp_path: Path) -> None:
    ds = dataset(tmp_path, run("xfs", 0, 1e8))
    still = ds.assign(bytes=ds["bytes"] * 0)
    assert math.isnan(analysis.matrix(still, "bandwidth").item())
    assert analysis.matrix(still, "iops").item() > 0


def test_no_runs_and_no_campaign_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no runs"):
        analysis.matrix(dataset(tmp_path), "bandwidth")
    with pytest.raises(ValueError, match="not a campaign"):
        analysis.matrix(xr.Dataset(), "bandwidth")


def test_a_factor_may_have_the_name_of_a_companion(tmp_path: Path) -> None:
    records = [run("xfs", 0, 1e8 * n, coordinates={"runs": n, "block": n}) for n in (1, 2)]
    array = analysis.matrix(dataset(tmp_path, *records), "bandwidth", dims=["runs"])
    assert array.dims == ("factor_runs",)
    assert array.sel(factor_runs=2) == pytest.approx(2e8)


def test_a_matrix_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = dataset(tmp_path, *campaigns.realistic(blocks=2, troubles=False))
    monkeypatch.setattr(matrices, "MOST_CELLS", 40)
    with pytest.raises(ValueError, match=r"48 cells \(.*chunk 2.*\) are too many"):
        analysis.matrix(ds, "bandwidth")
    monkeypatch.setattr(matrices, "MOST_CELLS", 50)
    with pytest.raises(ValueError, match="48 cells x 2 runs are too many"):
        analysis.matrix(ds, "bandwidth", by="run")
