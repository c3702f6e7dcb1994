"""Two values never share one cell of a table: rows are labelled so that they differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.draw.panels import CellGroup, Layout
from fsmatrix.analysis.report import pivot
from fsmatrix.results.record import Geometry, RunRecord
from tests.analysis.campaigns import phase, record, write

RNG = np.random.default_rng(3)


def opened(tmp_path: Path, *records: RunRecord) -> xr.Dataset:
    return open_campaign(write(tmp_path / "campaign.h5", records))


def test_a_workload_that_gives_no_number_hides_no_other(tmp_path: Path) -> None:
    """Seen: one campaign with a program whose output nobody parses, and one player's pattern."""
    done = phase("write", 4.9e8, 1 << 20, 1, RNG)
    pattern = [
        record("a", phases=(done,), coordinates={"pattern": "seq-write"}, block=block)
        for block in range(2)
    ]
    without = [
        record(
            "a",
            phases=(),
            coordinates={},
            workload="dd",
            engine="dd",
            block=block,
            status="failed",
            error="dd gave no output that could be read",
        )
        for block in range(2)
    ]
    summary = summarise(opened(tmp_path, *pattern, *without))
    assert "workload" in summary.varying
    (bandwidth,) = [made for made in pivot.pivots(summary) if made.metric == "bandwidth"]
    lines = [line for part in bandwidth.parts for line in part.lines]
    assert [entry.median for line in lines for entry in line.entries if entry] == ["467"]
    rows = summary.to_dict()
    assert {row["workload"] for row in rows} == {"pattern", "dd"}
    assert {row["workload"]: row["failed"] for row in rows} == {"pattern": 0, "dd": 2}


def test_processes_that_no_geometry_tells_are_a_row_of_their_own(tmp_path: Path) -> None:
    """Seen: an import of IOR texts (nodes and processes known) and fio's numjobs 1 and 2."""
    made = []
    for processes in (1, 2):
        done = phase("read", 1e8 * processes, 4096, processes, RNG)
        made.append(
            record(
                "a",
                phases=(done,),
                workload="fio",
                engine="fio",
                coordinates={"rw": "randread", "processes": processes},
            )
        )
        for per_node in (2, 4):
            geometry = Geometry(1, per_node)
            wrote = phase("write", 3e8 * per_node, 1 << 20, per_node, RNG)
            made.append(
                record(
                    "a",
                    phases=(wrote,),
                    workload="ior",
                    engine="ior",
                    geometry=geometry,
                    coordinates={
                        "nodes": 1,
                        "processes_per_node": per_node,
                        "processes": per_node,
                        "copy": processes,
                    },
                )
            )
    summary = summarise(opened(tmp_path, *made))
    (bandwidth,) = [made for made in pivot.pivots(summary) if made.metric == "bandwidth"]
    fio = [part for part in bandwidth.parts if "fio" in part.conditions]
    assert sum(len(part.lines) for part in fio) == 2


def test_a_table_that_would_put_two_values_into_one_cell_raises(tmp_path: Path) -> None:
    done = phase("write", 1e8, 1 << 20, 1, RNG)
    two = [
        record("a", phases=(done,), coordinates={"pattern": "seq-write", "chunk": chunk})
        for chunk in (4096, 8192)
    ]
    summary = summarise(opened(tmp_path, *two))
    wrong = CellGroup((), summary.cells, Layout((), (), "pattern", False), summary.cluster)
    with pytest.raises(AssertionError, match="two cells of a in one row"):
        pivot._part(wrong, summary.targets, pivot.METRICS["bandwidth"])
