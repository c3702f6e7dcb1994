"""Bars of the SSD-cluster study: panels, order, marks, bad campaigns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data.factors import PAPER_UNITS
from fsmatrix.analysis.questions.bars import MOST_ROWS, bars
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies


def test_panels_stand_as_in_the_paper_and_bars_have_the_true_heights() -> None:
    made = bars(studies.table3(attachments=7), "bandwidth", unit=PAPER_UNITS["bandwidth"])
    assert isinstance(made, Result)
    assert len(made.bars) == 2 * 4 * 4 * 3
    for bar in made.bars:
        levels = {**bar.levels, "processes_per_node": bar.levels["processes"]}
        truth = studies.hockney(levels)["bandwidth"]
        assert abs(bar.median / truth - 1) < 0.08
        assert bar.low <= bar.median <= bar.high
        assert bar.kind == "interval"
    titles = [ax.get_title() for ax in made.figure().axes]
    assert titles[:4] == [f"{pattern}\nSATA" for pattern in studies.PATTERNS]
    assert titles[4:] == [f"{pattern}\nPCIe" for pattern in studies.PATTERNS]
    labels = [text.get_text() for text in made.figure().axes[0].get_xticklabels()]
    assert labels == ["4 KiB", "128 KiB", "1 MiB", "4 MiB"]
    assert made.figure().axes[0].get_ylabel() == "Mb/s"


def test_the_paper_s_megabits_are_ten_to_the_six_bits() -> None:
    rows = [{"bandwidth": 125e6, "attachment": f"a{i}", "run_id": f"r{i}"} for i in range(6)]
    made = bars(studies.dataset(rows, []), "bandwidth", unit=PAPER_UNITS["bandwidth"])
    assert made.table()["median, Mb/s"].tolist() == [1000.0]


def test_the_table_has_the_client_nodes_and_says_that_processes_are_of_each() -> None:
    levels = {"nodes": (2,), "processes_per_node": (4,), "chunk": (4096, 65536)}
    made = bars(studies.campaign(lambda _: {"bandwidth": 1e6}, levels), "bandwidth").table()
    assert made["nodes"].tolist() == [2, 2]
    assert made["processes_per_node"].tolist() == [4, 4]
    assert "processes" not in made


def test_panels_of_one_column_have_one_scale_that_begins_at_zero() -> None:
    axes = bars(studies.table3(attachments=6), "iops").figure().axes
    for column in range(4):
        assert axes[column].get_ylim() == axes[column + 4].get_ylim()
        assert axes[column].get_ylim()[0] == 0


def test_emulated_levels_are_called_so() -> None:
    made = bars(studies.table3(attachments=6, emulated=["interface"]), "bandwidth")
    assert all("(emulated)" in ax.get_title() for ax in made.figure().axes[:8])
    assert any(said.startswith("Emulated:") for said in made.says)


@pytest.mark.parametrize(("attachments", "mark"), [(6, ""), (3, "*"), (1, "†")])
def test_too_few_attachments_are_marked(attachments: int, mark: str) -> None:
    made = bars(studies.table3(attachments=attachments, repetitions=2), "bandwidth")
    notes = [text.get_text() for text in made.figure().axes[0].texts]
    assert len(notes) == 12
    assert all(note.endswith(mark) for note in notes)
    assert all(note[-1].isdigit() for note in notes) == (mark == "")
    assert any("too few attachments" in said for said in made.says) == (mark != "")


def test_whatever_else_varies_gets_rows_of_its_own_and_pages() -> None:
    ds = studies.table3((2, 3, 4, 5), attachments=2)
    made = bars(ds, "bandwidth")
    assert [dict(row)["storage_nodes"] for row in made.rows] == [2, 2, 3, 4, 5]
    levels = {"storage_nodes": tuple(range(1, MOST_ROWS + 3)), "chunk": studies.CHUNKS}
    many = bars(studies.campaign(studies.hockney, levels, attachments=1), "bandwidth")
    assert many.pages == 2
    assert len(many.figure(1).axes) == 2
    with pytest.raises(ValueError, match="pages 0 to 1"):
        many.figure(2)
    one = bars(ds, "bandwidth", where={"storage_nodes": 2})
    assert len(one.rows) == 2
    assert any("Only storage nodes 2" in said for said in one.says)


def test_a_panel_is_as_wide_as_its_bars_need() -> None:
    def width(chunks: int) -> float:
        levels = {"chunk": tuple(4096 << n for n in range(chunks)), "processes_per_node": (1, 2, 4)}
        made = bars(studies.campaign(lambda _: {"bandwidth": 1e6}, levels), "bandwidth")
        return float(made.figure().get_figwidth())

    assert width(12) >= 0.2 * 12 * 3
    assert width(12) > width(6)


def failed(ds: xr.Dataset, which: Any) -> xr.Dataset:
    status = np.where(which, "failed", ds["status"].values)
    return ds.assign(status=("run", status))


def test_failed_and_missing_cells_are_shown_as_absent() -> None:
    ds = studies.table3(attachments=6)
    bad = (ds["pattern"].values == "rand-read") & (ds["chunk"].values == 4096)
    made = bars(failed(ds, bad), "bandwidth")
    absent = [bar for bar in made.bars if bar.absent]
    assert {bar.absent for bar in absent} == {"failed"}
    assert len(absent) == 6
    assert sum(t.get_text() == "failed" for t in made.figure().axes[0].texts) == 3
    assert any("6 combinations have no value: failed" in said for said in made.says)


def test_bad_campaigns_are_refused_in_words() -> None:
    ds = studies.table3(attachments=2)
    with pytest.raises(ValueError, match="no run gave any bandwidth: 192 runs failed"):
        bars(failed(ds, True), "bandwidth")
    with pytest.raises(ValueError, match="no metric 'speed'"):
        bars(ds, "speed")
    with pytest.raises(ValueError, match="no runs with interface NVMe; there are PCIe, SATA"):
        bars(ds, "bandwidth", where={"interface": "NVMe"})
    with pytest.raises(ValueError, match="no run gave"):
        bars(ds.assign(bandwidth=("run", np.full(ds.sizes["run"], np.nan))), "bandwidth")


def test_one_run_and_one_level_are_a_picture_too() -> None:
    made = bars(studies.dataset([{"bandwidth": 1e6, "chunk": 4096}], ["chunk"]), "bandwidth")
    assert made.bars[0].kind == "one session"
    assert len(made.figure().axes) == 1
    json.dumps(made.to_dict(), allow_nan=False)


def test_invalid_runs_are_left_out_and_counted() -> None:
    ds = studies.table3(attachments=6)
    worst = np.where(ds["block"].values == 0, "invalid", "")
    made = bars(ds.assign(worst_finding=("run", worst)), "bandwidth")
    assert {bar.attachments for bar in made.bars} == {5}
    assert any("96 invalid runs" in said for said in made.says)


@pytest.mark.parametrize("lost", [{"worst_finding": "invalid"}, {"status": "failed"}])
def test_rows_of_a_target_without_a_value_are_told_apart(lost: dict[str, str]) -> None:
    rows = [
        {"target": target, "chunk": chunk, "bandwidth": 1e8, **(lost if target == "b" else {})}
        for target in ("a", "b")
        for chunk in (4096, 65536)
    ]
    made = bars(studies.dataset(rows, ["chunk"]), "bandwidth")
    table = made.table()
    assert sorted(table["target"]) == ["a", "a", "b", "b"]
    assert not table.duplicated(["target", "chunk"]).any()
    assert [ax.get_title() for ax in made.figure().axes] == ["read\na", "read\nb"]
