"""Which pairs of workload and target can be, limits, estimates and statistics of a plan."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from fsmatrix.analysis.stats.testing.signflips import max_t
from fsmatrix.results.evidence.stored import Level
from fsmatrix.suite.plan.as_json import plan_json
from fsmatrix.suite.plan.estimate import deciding, smallest_p
from tests.suite.planning_stubs import HEAD, Disk, planned, problems

IMPOSSIBLE = {
    "access": ("backend: raw", "", "io speaks only paths; target a gives a block device"),
    "cache": ("backend: cluster", "cache: bypass\n", "cannot reach cache state bypass; it can: c"),
    "device": ("backend: disk, device_state: fresh", "", "cannot make device state fresh"),
    "kinds": ("backend: slow", "", "operations that driver poor does not have: write"),
    "depth": ("backend: disk", "factors: {depth: [1, 4]}\n", "io needs 4 operations in flight"),
    "local": (
        "backend: disk",
        "launcher: local\ngeometry: {processes_per_node: 2}\n",
        "launcher local starts one process, not 2",
    ),
    "nodes": (
        "backend: disk",
        "launcher: {emulated_nodes: 2}\ngeometry: {nodes: 3}\n",
        "3 client nodes are needed; launcher.emulated_nodes gives 2",
    ),
    "refusal": (
        "backend: disk",
        "cache: warm\nfactors: {direct: [true, false]}\n",
        "direct needs cache",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_the_impossible_is_refused_with_the_reason_or_skipped_on_request(name: str) -> None:
    backend, body, reason = IMPOSSIBLE[name]
    head = HEAD.replace("backend: disk", backend)
    found = problems(body, head)
    assert reason in "\n".join(found)
    assert found[0].startswith("c.yaml:7: workloads.io")
    if name in ("local", "nodes"):  # nothing is left to be run
        assert reason in "\n".join(problems(body + "impossible: skip\n", head))
        return
    plan = planned(body + "impossible: skip\n", head)
    cells = {cell.target: cell for cell in plan.matrix.cells}
    assert any(reason in text for text in cells["a"].reasons)
    assert plan.cases
    assert any("left out" in warning for warning in plan.warnings)


def test_a_run_that_its_deadline_would_end_is_said_before_it_begins() -> None:
    """As dbench's default: 60 s after 12 s of warm-up, where a run may take 60 s."""
    head = HEAD.replace("io: {workload: io}", "io: {workload: meta}")
    found = [w for w in planned("limits: {time_per_run: 0.5s}\n", head).warnings if "ends" in w]
    assert len(found) == 1
    assert found[0].startswith("workloads.io: its runs may work for 1 s, and limits.time_per_run")
    assert "workloads.io" not in " ".join(planned("limits: {time_per_run: 2s}\n", head).warnings)


def test_a_target_that_cannot_be_had_is_skipped_on_request() -> None:
    head = HEAD.replace("backend: disk", "backend: disk, options: {works: false}")
    plan = planned("impossible: skip\n", head)
    cells = {cell.target: cell for cell in plan.matrix.cells}
    assert cells["a"].reasons == ("target a: the disk does not work",)
    assert {case.case.target for case in plan.cases} == {"b"}


def test_a_target_that_cannot_be_had_is_named_once_and_not_its_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is to be done on it: a dead agent, a pool that is not there."""

    def reason(disk: Disk, level: Level) -> str:
        del level
        return "" if disk.options.works else "daos_agent on n1 does not run: no socket"

    monkeypatch.setattr(Disk, "level_refusal", reason)
    head = HEAD.replace("backend: other", "backend: other, options: {works: false}")
    assert problems("  second: {workload: meta}\n", head) == [
        "c.yaml:5: targets.b: daos_agent on n1 does not run: no socket ('impossible: skip' would "
        "leave out 2 of 2 cases)"
    ]


def test_only_the_impossible_cases_of_a_cell_are_skipped() -> None:
    plan = planned("factors: {depth: [1, 4]}\nimpossible: skip\n")
    cell = plan.matrix.cells[0]
    assert (cell.cases, cell.impossible, cell.ok) == (2, 1, False)
    assert [case.coordinates["depth"] for case in plan.cases] == [1, 1]


def test_memory_is_a_reference_and_keeps_the_declared_cache_state() -> None:
    plan = planned(head=HEAD.replace("backend: disk", "backend: memory"))
    cell = next(cell for cell in plan.matrix.cells if cell.target == "a")
    assert cell.ok
    assert "in memory whatever the cache state" in cell.notes[0]
    case = next(case for case in plan.cases if case.case.target == "a")
    assert case.reference
    assert case.case.cache == "cold"
    assert plan.comparisons == 0


def test_levels_of_one_target_are_no_comparisons_between_targets() -> None:
    levels = "factors: {storage_nodes: [1, 2, 4]}\n"
    one = HEAD.replace("backend: disk", "backend: cluster").replace("  b: {backend: other}\n", "")
    assert len(planned(levels, one).cases) == 3
    assert planned(levels, one).comparisons == 0
    two = HEAD.replace("backend: disk", "backend: cluster").replace("other", "cluster")
    assert planned(levels, two).comparisons == 3, "targets meet at the same level"
    mixed = HEAD.replace("backend: disk", "backend: cluster")
    assert planned(levels, mixed).comparisons == 3, "each level meets the target that has none"


def test_targets_for_root_are_left_out_aloud() -> None:
    head = HEAD.replace("backend: disk", "backend: disk, when: root")
    plan = planned("exclude: [{target: a}]\n", head)
    assert {case.case.target for case in plan.cases} == {"b"}
    assert "target a is left out: it is for root" in plan.warnings
    assert {case.case.target for case in planned(head=head, root=True).cases} == {"a", "b"}
    both = head.replace("other}", "other, when: root}")
    assert "no target is left" in problems(head=both)[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("limits: {space: 1MiB}\n", "limits.space: target a must hold 16.0MiB"),
        ("limits: {bytes_written: 100MiB}\n", "limits.bytes_written: 192.0MiB (201326592 bytes)"),
    ],
)
def test_limits_are_checked_before_anything_runs(body: str, message: str) -> None:
    assert message in "\n".join(problems(body))


def test_room_on_the_target_is_checked_in_bytes_and_files() -> None:
    head = HEAD.replace("backend: disk", "backend: disk, options: {size: 1MiB}")
    message = "must hold 16.0MiB at once; its option size gives 1.0MiB"
    assert message in problems(head=head)[0]
    assert planned(head=head, here=False).cases
    head = HEAD + "  meta: {workload: meta, options: {files: 5000}}\n"
    assert "must hold 5000 files at once" in problems(head=head)[0]


def test_the_estimate_counts_every_run() -> None:
    plan = planned("factors: {processes_per_node: [1, 2]}\nrepetitions: 3\n")
    assert plan.estimate.written == 2 * 3 * (1 + 2) * (16 << 20)
    assert plan.estimate.space == {"a": 32 << 20, "b": 32 << 20}
    assert plan.estimate.seconds > 0


def test_the_fewest_blocks_that_decide_are_those_of_the_comparison() -> None:
    for n in range(2, 12):
        assert smallest_p(n) == pytest.approx(binomtest(0, n).pvalue)
    fewest = deciding()
    for cells in (1, 48):
        apart = np.full((fewest, cells), 1.0) + np.arange(fewest)[:, np.newaxis] / 100
        assert max_t(apart, 0.05).p == pytest.approx(smallest_p(fewest))
        assert np.all(max_t(apart[1:], 0.05).p > 0.05)
    assert smallest_p(fewest) <= 0.05 < smallest_p(fewest - 1)


def test_too_few_attachments_are_warned_about() -> None:
    body = "repetitions: 6\norder: {block: 6}\n"
    assert any("within one session only" in text for text in planned(body).warnings)
    assert not planned("repetitions: 6\n").warnings
    few = "\n".join(planned("repetitions: 3\norder: {attachments: 1}\n").warnings)
    assert "at least 6 are needed" in few


def test_the_plan_is_plain_data_and_makes_the_same_plan_again() -> None:
    body = "factors: {chunk: [4KiB, 1MiB]}\n"
    head = HEAD.replace("seed: 1\n", "")
    plan = planned(body, head)
    data = json.loads(json.dumps(plan_json(plan)))
    again = planned(data["source"]["text"], "", seed=data["seed"])
    assert plan_json(again)["order"] == data["order"]
    assert again.fingerprint == data["fingerprint"]
    assert planned(body, head, seed=data["seed"] + 1).fingerprint != data["fingerprint"]
    assert {row["key"] for row in data["settings"]} >= {"repetitions", "targets.a.backend"}
    assert len(data["cases"]) == 4
