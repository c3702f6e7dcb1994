"""Loading campaigns, summaries and the terminal table."""

from __future__ import annotations

import io
import math
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.analysis import units
from fsmatrix.analysis.data import load, summary
from fsmatrix.analysis.draw import panels
from fsmatrix.analysis.report import report
from fsmatrix.analysis.report.terminal import doubts, in_terminal, usual_tables
from fsmatrix.cli.progress import Terminal
from fsmatrix.results.files import schema
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.record import Finding, RunRecord
from tests.analysis import campaigns


def dataset(folder: Path, records: list[RunRecord], **others: object) -> xr.Dataset:
    return load.open_campaign(campaigns.write(folder / "campaign.h5", records, **others))


def one(target: str, block: int, bandwidth: float = 1e8, **others: object) -> RunRecord:
    values = {"coordinates": {"pattern": "seq-read", "chunk": 4096}, "block": block}
    rng = np.random.default_rng(block)
    values["phases"] = (campaigns.phase("read", bandwidth, 4096, 1, rng),)
    return campaigns.record(target, **(values | others))


def test_medians_are_those_of_the_runs(tmp_path: Path) -> None:
    speeds = [1e8, 3e8, 2e8, 5e8, 4e8, 6e8, 7e8]
    ds = dataset(tmp_path, [one("xfs", b, s) for b, s in enumerate(speeds)])
    (cell,) = summary.summarise(ds).cells
    assert cell.runs == cell.attachments == 7
    assert cell.metrics["bandwidth"].median == pytest.approx(4e8)
    share = (126 / 128 - 0.95) / (126 / 128 - 112 / 128)  # of the way from 1st to 2nd of 7
    low = 1e8 + 1e8 * 6 * share / (1 + 5 * share)
    assert cell.metrics["bandwidth"].low == pytest.approx(low)
    assert cell.metrics["bandwidth"].decides
    assert cell.metrics["iops"].median == pytest.approx(4e8 / 4096)


def test_only_factors_that_vary_are_columns(tmp_path: Path) -> None:
    result = summary.summarise(dataset(tmp_path, list(campaigns.realistic(blocks=2))))
    assert set(result.varying) == {"pattern", "phase", "chunk", "processes_per_node", "target"}
    assert result.constants["cache"] == "cold"
    assert result.constants["engine"] == "player-c"
    assert len(result.cells) == 3 * 4 * 2 * 2


def test_derived_factors_and_attributes_of_targets_are_no_columns(tmp_path: Path) -> None:
    records = []
    for target, nodes in (("a", 4), ("b", 8)):
        for count in (1, 2):
            coordinates = {"processes_per_node": count, "processes": count, "storage_nodes": nodes}
            records.append(one(target, 0, coordinates=coordinates))
    result = summary.summarise(dataset(tmp_path, records))
    assert result.varying == ("processes_per_node", "target")
    assert result.attributes == ("storage_nodes",)
    assert result.derived == {"processes": "processes_per_node"}


def test_failed_runs_are_counted_and_keep_their_cell(tmp_path: Path) -> None:
    records = [one("xfs", b) for b in range(3)]
    records += [one("ext4", b, status="failed", phases=(), error="EIO") for b in range(3)]
    result = summary.summarise(dataset(tmp_path, records))
    cells = {cell.target: cell for cell in result.cells}
    assert cells["ext4"].failed == 3
    assert cells["ext4"].runs == 0
    assert cells["ext4"].levels["phase"] == "read"  # what the other target did
    assert cells["xfs"].failed == 0


def test_a_failed_run_that_had_phases_gives_no_value(tmp_path: Path) -> None:
    records = [one("xfs", 0, 1e8), one("xfs", 1, 9e8, status="timeout", error="deadline")]
    (cell,) = summary.summarise(dataset(tmp_path, records)).cells
    assert (cell.runs, cell.failed) == (1, 1)
    assert cell.metrics["bandwidth"].median == pytest.approx(1e8)


def test_invalid_runs_are_left_out_unless_asked(tmp_path: Path) -> None:
    bad = Finding("read-served-by-cache", 1, "invalid", "from memory")
    note = Finding("busy", 1, "info", "busy")
    records = [one("xfs", 0, 1e8, findings=(note,)), one("xfs", 1, 9e9, findings=(bad,))]
    ds = dataset(tmp_path, records)
    result = summary.summarise(ds)
    assert result.invalid_runs == 1
    (cell,) = result.cells
    assert (cell.runs, cell.invalid, cell.worst_finding) == (1, 1, "invalid")
    assert cell.invalid_by == (bad.audit,)  # what only warns of a run is no reason for that
    assert cell.notes == f"1 invalid; invalid: {bad.audit}"
    assert cell.findings == ("busy", "read-served-by-cache")
    assert cell.metrics["bandwidth"].median == pytest.approx(1e8)
    (cell,) = summary.summarise(ds, include=["invalid"]).cells
    assert cell.runs == 2


def test_reference_targets_only_on_request(tmp_path: Path) -> None:
    ds = dataset(tmp_path, [one("xfs", 0), one("memory", 0)])
    result = summary.summarise(ds)
    assert result.targets == ("xfs",)
    assert result.references == ("memory",)
    assert summary.summarise(ds, include=["reference"]).targets == ("memory", "xfs")


def test_earlier_attempts_are_in_no_cell(tmp_path: Path) -> None:
    records = [
        one("xfs", 0, status="failed", phases=(), error="EIO", attempt=1),
        one("xfs", 0, 1e8, attempt=2),
    ]
    result = summary.summarise(dataset(tmp_path, records))
    (cell,) = result.cells
    assert (cell.runs, cell.failed, result.superseded) == (1, 0, 1)


def test_one_attachment_is_marked(tmp_path: Path) -> None:
    records = [one("xfs", 0, 1e8 + r, repetition=r, attachment="a") for r in range(8)]
    (cell,) = summary.summarise(dataset(tmp_path, records)).cells
    assert cell.metrics["bandwidth"].kind == "one session"


def test_a_phase_without_bytes_has_no_bandwidth(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = campaigns.phase("create", 1e6, 4096, 1, rng)
    made = type(made)(**(vars(made) | {"bytes": np.zeros(1, dtype=np.int64)}))
    (cell,) = summary.summarise(dataset(tmp_path, [one("xfs", 0, phases=(made,))])).cells
    assert cell.metrics["bandwidth"].kind == "none"
    assert cell.metrics["iops"].median > 0


def test_engines_are_never_mixed(tmp_path: Path) -> None:
    records = [one("xfs", 0), one("xfs", 1, engine="fio")]
    result = summary.summarise(dataset(tmp_path, records))
    assert "engine" in result.varying
    assert [cell.runs for cell in result.cells] == [1, 1]
    assert len(panels.groups(result)) == 2


def test_campaign_without_a_good_run(tmp_path: Path) -> None:
    result = summary.summarise(dataset(tmp_path, [one("xfs", 0, status="failed", phases=())]))
    (cell,) = result.cells
    assert (cell.runs, cell.failed) == (0, 1)


def test_to_dict_has_si_values(tmp_path: Path) -> None:
    flat = summary.summarise(dataset(tmp_path, [one("xfs", b) for b in range(3)])).to_dict()
    assert flat[0]["bandwidth"] == pytest.approx(1e8)
    assert flat[0]["bandwidth_coverage"] == pytest.approx(0.75)
    assert flat[0]["bandwidth_kind"] == "range"


@pytest.mark.parametrize(
    ("good", "said"), [(0, ": there is no valid value"), (1, " are not in the medians")]
)
def test_invalid_runs_are_said_with_their_audits(tmp_path: Path, good: int, said: str) -> None:
    bad = Finding("simultaneous-runs", 1, "invalid", "x")
    records = [one("xfs", b, findings=(bad,) * (b >= good)) for b in range(good + 2)]
    lines = doubts(summary.summarise(dataset(tmp_path, records)))
    assert lines[-1] == f"2 invalid runs (simultaneous-runs){said}"


def test_table_in_the_terminal(tmp_path: Path) -> None:
    bad = Finding("evil[red]", 1, "warning", "x")
    records = [one("[bold]x\x1b[31m", b, findings=(bad,)) for b in range(3)]
    records += [one("xfs", b, status="failed", phases=(), error="EIO") for b in range(2)]
    out = io.StringIO()
    Terminal(file=out, width=200, force_terminal=False).print(
        in_terminal(summary.summarise(dataset(tmp_path, records)))
    )
    text = out.getvalue()
    assert "[bold]x" in text
    assert "\x1b" not in text
    assert "!" in text, "the finding is marked"
    assert "failed" in text
    assert "nothing can be proven from it" in text


def test_several_files_are_one_campaign_and_repeats_count_once(tmp_path: Path) -> None:
    bad = Finding("cache", 1, "invalid", "from memory")
    first = campaigns.write(tmp_path / "a.h5", [one("xfs", 0), one("xfs", 1, findings=(bad,))])
    other = [one("ext4", 0, findings=(bad,)), one("xfs", 1, findings=(bad,)), one("ext4", 1)]
    second = campaigns.write(tmp_path / "b.h5", other)
    ds = load.open_campaign([first, second])
    assert ds.sizes["run"] == 4
    data = load.rows(ds)
    for name in ("worker", "latency", "finding"):
        owner, first_, size = (ds[f"{name}_{part}"].values for part in ("run", "first", "size"))
        for row in range(4):
            assert (owner[first_[row] : first_[row] + size[row]] == row).all()
        assert size.sum() == ds.sizes[name]
    assert set(data["run_id"][ds["finding_run"].values]) == set(
        data["run_id"][data["worst_finding"] == "invalid"]
    )
    environments = load.environments(ds)
    for row, target in enumerate(data["target"]):
        index = int(data["environment_index"][row])
        assert environments[index]["target"]["backend"] == target


def test_files_that_are_no_campaign_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="nothing"):
        load.open_campaign(tmp_path / "nothing.h5")
    text = tmp_path / "text.h5"
    text.write_text("hello")
    with pytest.raises(schema.ForeignFileError, match=r"text\.h5.*not HDF5"):
        load.open_campaign(text)
    foreign = tmp_path / "foreign.h5"
    xr.Dataset({"a": ("x", [1])}).to_netcdf(foreign, engine="h5netcdf")
    with pytest.raises(schema.ForeignFileError, match="foreign"):
        load.open_campaign(foreign)
    newer = tmp_path / "newer.h5"
    attributes = {"format": schema.CAMPAIGN_FORMAT, "schema_version": 99}
    xr.Dataset({"a": ("x", [1])}, attrs=attributes).to_netcdf(newer, engine="h5netcdf")
    with pytest.raises(schema.NewerSchemaError, match="99"):
        load.open_campaign(newer)
    with pytest.raises(ValueError, match="not a campaign"):
        load.rows(xr.Dataset())


@given(st.floats(1e-12, 1e18))
def test_numbers_keep_three_digits(value: float) -> None:
    shown = float(units.number(value).replace("\u202f", ""))
    assert shown == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("quantity", "values", "label"),
    [
        ("bandwidth", [2e8, 3e9], "MiB/s"), ("bandwidth", [1e4], "KiB/s"),
        ("bandwidth", [5e10], "GiB/s"), ("rate", [5e4], "kIOPS"), ("rate", [10.0], "IOPS"),
        ("time", [5e-6, 9e-5], "µs"), ("time", [4e-3], "ms"), ("time", [2e-8], "ns"),
        ("time", [math.nan], "µs"),
    ],
)  # fmt: skip
def test_units_fit(quantity: units.Quantity, values: list[float], label: str) -> None:
    assert units.fitting(quantity, values).label == label


@pytest.mark.parametrize(
    ("factor", "level", "text"),
    [
        ("chunk", 4096, "4 KiB"), ("chunk", 1 << 20, "1 MiB"), ("chunk", 4096.0, "4 KiB"),
        ("bytes_per_process", 3 << 30, "3 GiB"), ("chunk", 4000, "4000 B"), ("nodes", 4.0, "4"),
        ("pattern", "", "–"), ("chunk", math.nan, "–"), ("ratio", 0.25, "0.25"),
    ],
)  # fmt: skip
def test_levels_for_readers(factor: str, level: units.Level, text: str) -> None:
    assert units.level_text(factor, level) == text


def test_the_metric_that_replays_are_judged_by_is_shown(tmp_path: Path) -> None:
    def titles(phase: str) -> list[str]:
        rng = np.random.default_rng(1)
        moved = campaigns.phase(phase, 1e8, 4096, 1, rng)
        records = [one("a", n, phases=(moved,)) for n in range(6)]
        folder = tmp_path / phase
        folder.mkdir()
        return [str(t.title) for t in usual_tables(summary.summarise(dataset(folder, records)))]

    assert any("IOPS" in title for title in titles("replay"))
    assert not any("IOPS" in title for title in titles("read"))


def test_a_report_makes_each_summary_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = dataset(tmp_path, [one(target, b) for target in ("xfs", "ext4") for b in range(7)])
    asked: list[tuple[str, ...]] = []
    plain = summary._summarised

    def counted(ds: xr.Dataset, include: Collection[summary.Excluded]) -> summary.Summary:
        asked.append(tuple(include))
        return plain(ds, include)

    monkeypatch.setattr(summary, "_summarised", counted)
    report.context(ds)
    assert asked == [()]
    summary.summarise(ds)  # who changes the Dataset between two calls gets what is there now
    assert asked == [(), ()]
