"""Windows and series from fio's logs, and one run from the outputs of several nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fsmatrix.results.formats.fio.phase import merge_nodes, shifted, with_logs
from fsmatrix.results.formats.parsed import Parsed
from tests.results.fio_outputs import DATA, keys, run_of


def node(version: str, number: int) -> Parsed:
    """A node's run with its logs."""
    stem = f"{version}-randrw-node{number}."
    files = {p.name.removeprefix(stem): p.read_text() for p in DATA.glob(stem + "*.log")}
    assert files
    return with_logs(run_of(stem + "json"), files)


def test_windows_from_the_clat_log() -> None:
    (phase,) = node("3.33", 1).phases
    assert phase.facts["window_source"].startswith("end of the clat log")
    assert phase.start.min() == 0
    printed = run_of("3.33-randrw-node1.json").facts["printed"]
    assert printed - 1 < phase.began + phase.end.max() <= printed
    assert 0 < phase.clock_uncertainty < 0.01


def test_the_clat_log_ends_where_job_start_plus_runtime_is() -> None:
    """Both windows of the same run, where a new fio wrote such a log too."""
    (told,) = run_of("3.42-dfs-randrw.json").phases
    bare = replace(run_of("3.42-dfs-randrw.json"), phases=(replace(told, began=0.0),))
    end = round((told.began + told.end[0]) * 1000)
    placed = with_logs(bare, {"w_clat.1.log": f"{end - 50}, 9, 0, 0, 0\n{end}, 9, 1, 0, 0\n"})
    assert placed.phases[0].began == pytest.approx(told.began, abs=1e-6)


@pytest.mark.parametrize("version", ["3.33", "3.42"])
def test_the_series_adds_up_to_the_bytes(version: str) -> None:
    (phase,) = node(version, 1).phases
    assert phase.interval == 0.05
    assert phase.interval_bytes is not None
    assert int(phase.interval_bytes.sum()) == int(phase.bytes.sum())
    assert (phase.interval_bytes >= 0).all()
    assert len(phase.interval_bytes) == np.ceil(phase.end.max() / phase.interval)


def test_without_logs_the_window_is_unknown_and_said_so() -> None:
    run = with_logs(run_of("3.33-randrw-node1.json"), {"x_clat.1.log": "nonsense\n"})
    assert "no-window" in keys(run)
    assert run.phases[0].began == 0


@pytest.mark.parametrize("version", ["3.33", "3.42"])
def test_nodes_merge(version: str) -> None:
    parts = [node(version, number) for number in (1, 2)]
    run = merge_nodes([("node1", parts[0]), ("node2", parts[1])])
    (phase,) = run.phases
    assert (run.nodes, run.processes, run.failure) == (2, 4, "")
    assert int(phase.bytes.sum()) == sum(int(p.phases[0].bytes.sum()) for p in parts)
    for kind in ("read", "write"):
        expected = sum(p.phases[0].latency[kind].counts for p in parts)
        np.testing.assert_array_equal(phase.latency[kind].counts, expected)
    assert [w["host"] for w in phase.facts["workers"]] == ["node1", "node1", "node2", "node2"]
    assert phase.interval_bytes is not None
    assert int(phase.interval_bytes.sum()) == int(phase.bytes.sum())
    begins = [p.phases[0].began for p in parts]
    assert phase.began == min(begins)
    assert phase.start[2] - phase.start[0] == pytest.approx(
        begins[1] + parts[1].phases[0].start[0] - begins[0] - parts[0].phases[0].start[0], abs=1e-6
    )
    assert 0.95 < phase.facts["overlap"] <= 1


def test_nodes_that_hardly_overlap_and_differ() -> None:
    run = merge_nodes([("a", node("3.33", 1)), ("b", shifted(node("3.33", 1), 0.25, 0.01))])
    (phase,) = run.phases
    length = float(node("3.33", 1).phases[0].end.max())
    assert phase.facts["overlap"] == pytest.approx((length - 0.25) / (length + 0.25), abs=1e-4)
    assert phase.clock_uncertainty == pytest.approx(0.012)
    assert "nodes-overlap" in keys(run)
    other = merge_nodes([("a", node("3.33", 1)), ("b", node("3.42", 1))])
    assert "versions-differ" in keys(other)
    assert other.version.startswith("3.33 and 3.42")


def test_failures_of_nodes_are_the_runs() -> None:
    good, bad = run_of("3.33-enospc.json"), run_of("3.33-create-only.json")
    run = merge_nodes([("a", good), ("b", bad)])
    assert "a: job job (2) failed" in run.failure
    assert "no write on b" in run.failure
    unaligned = merge_nodes([("a", good), ("b", good)])
    assert "nodes-unaligned" in keys(unaligned)
    assert unaligned.phases[0].began == 0
