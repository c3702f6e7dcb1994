"""Expansion, ids, order and shards: properties."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.suite.plan import order
from tests.suite.planning_stubs import HEAD, LOOKUP, Grown, Names, planned, problems, text

CHUNKS = ["512", "4KiB", "64KiB", "1MiB"]
PATTERNS = ["seq-read", "rand-read", "seq-write"]


def subset(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=len(values), unique=True)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, dict[str, list[Any]], int]:
    """Text, factors and repetitions of a campaign."""
    factors = {
        "chunk": draw(subset(CHUNKS)),
        "pattern": draw(subset(PATTERNS)),
        "nodes": draw(subset([1, 2, 3])),
        "processes_per_node": draw(subset([1, 2])),
    }
    repetitions, block = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    body = f"factors: {json.dumps(factors)}\nrepetitions: {repetitions}\n"
    return body + f"order: {{block: {block}}}\n", factors, repetitions


def sequence(plan: Any) -> list[tuple[str, str, int]]:
    return [
        (plot.attachment, case.case.case_id, repetition)
        for plot in plan.plots()
        for case, repetition in plot.runs
    ]


@settings(max_examples=40, deadline=None)
@given(bodies())
def test_every_combination_once_and_every_run_once(parts: Any) -> None:
    body, factors, repetitions = parts
    plan = planned(body)
    count = 2
    for levels in factors.values():
        count *= len(levels)
    assert len({case.case.case_id for case in plan.cases}) == len(plan.cases) == count
    runs = Counter((case, repetition) for _, case, repetition in sequence(plan))
    assert set(runs.values()) == {1}
    assert len(runs) == count * repetitions == plan.estimate.runs
    attachments = [plot.attachment for plot in plan.plots()]
    assert len(set(attachments)) == len(attachments) == plan.estimate.attachments


@settings(max_examples=40, deadline=None)
@given(bodies(), st.integers(1, 12))
def test_shards_are_a_partition_and_keep_the_order(parts: Any, n: int) -> None:
    body, factors, _ = parts
    if 1 < n < len(factors["nodes"]):
        assert "client-node counts" in problems(body, shard=(1, n))[0]
        return
    whole = sequence(planned(body))
    pieces = [planned(body, shard=(k, n)) for k in range(1, n + 1)]
    runs = [run[1:] for piece in pieces for run in sequence(piece)]
    assert sorted(runs) == sorted(run[1:] for run in whole)
    owners = [{case.case.case_id for case in piece.cases} for piece in pieces]
    assert sum(map(len, owners)) == len(set().union(*owners))
    for piece in pieces:
        assert n == 1 or len({plot.nodes for plot in piece.plots()}) <= 1
    attachments = [{plot.attachment for plot in piece.plots()} for piece in pieces]
    assert sum(map(len, attachments)) == len(set().union(*attachments))
    assert sum(1 for owner in owners if owner) >= min(n, len(factors["nodes"]))


def test_the_order_depends_on_the_seed_and_nothing_else() -> None:
    body = "factors: {chunk: [4KiB, 8KiB, 16KiB], pattern: [seq-read, rand-read]}\n"
    turned = "factors: {pattern: [rand-read, seq-read], chunk: [16KiB, 4KiB, 8192]}\n"
    assert sequence(planned(body)) == sequence(planned(turned))
    assert sequence(planned(body, seed=2)) != sequence(planned(body))
    assert sequence(planned(body, sets=["seed=2"])) == sequence(planned(body, seed=2))
    assert sequence(planned(body, sets=["order.seed=2"])) == sequence(planned(body, seed=2))
    blocks = [[c for a, c, _ in sequence(planned(body)) if a.startswith(f"b{b:03d}-a")]
              for b in range(6)]  # fmt: skip
    assert len({tuple(block) for block in blocks}) > 1
    first = [next(iter(planned(body, seed=seed).plots())).target for seed in range(20)]
    assert set(first) == {"a", "b"}


def test_leaving_cases_out_does_not_change_the_order_of_the_rest() -> None:
    body = "factors: {chunk: [4KiB, 8KiB, 16KiB], pattern: [seq-read, rand-read]}\n"
    few = sequence(planned(body, only=("chunk=4KiB,chunk=16384",)))
    kept = {case for _, case, _ in few}
    assert len(kept) == 8
    assert few == [run for run in sequence(planned(body)) if run[1] in kept]


def test_orders_are_spread_evenly() -> None:
    ids = [str(i) for i in range(3)]
    drawn = Counter(tuple(order.shuffled(ids, 1, block)) for block in range(6000))
    assert len(drawn) == 6
    assert max(abs(count - 1000) for count in drawn.values()) < 150  # 5 standard deviations


def test_the_repetitions_of_a_plot_are_passes_over_its_cases() -> None:
    plan = planned("factors: {chunk: [4KiB, 8KiB]}\nrepetitions: 5\norder: {block: 2}\n")
    for plot in plan.plots():
        passes = [list(group) for _, group in itertools.groupby(plot.runs, key=lambda run: run[1])]
        assert [len(group) for group in passes] == [2] * len(passes)
        assert all(repetition // 2 == plot.block for _, repetition in plot.runs)
    assert plan.estimate.attachments == 6


@settings(max_examples=30, deadline=None)
@given(st.permutations(["seed", "targets", "workloads", "factors", "campaign"]), st.randoms())
def test_ids_do_not_depend_on_the_order_of_keys(keys: list[str], random: Any) -> None:
    content = {
        "campaign": "test",
        "seed": 1,
        "targets": {"a": {"backend": "disk"}, "b": {"backend": "other"}},
        "workloads": {"io": {"workload": "io", "options": {"depth": 1, "direct": True}}},
        "factors": {"chunk": [4096, "8KiB"], "threads": [1, 2], "cache": ["cold", "bypass"]},
    }
    straight = planned(source=text(head=json.dumps(content)))

    def turned(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        names = list(value)
        random.shuffle(names)
        return {name: turned(value[name]) for name in names}

    shuffled = {key: turned(content[key]) for key in keys}
    assert sequence(planned(source=text(head=json.dumps(shuffled)))) == sequence(straight)


def test_an_option_with_a_default_changes_no_id() -> None:
    body = "factors: {chunk: [4KiB, 1MiB], pattern: [seq-read, rand-read]}\n"
    lookup = replace(LOOKUP, workloads=Names(io=Grown))
    before, after = planned(body), planned(body, lookup=lookup)
    assert {c.case.case_id for c in before.cases} == {c.case.case_id for c in after.cases}
    assert all(case.coordinates["added_later"] == 7 for case in after.cases)


def test_a_default_written_out_is_the_same_case() -> None:
    head = HEAD.replace("workload: io}", "workload: io, options: {chunk: 1MiB, direct: false}}")
    ids = {case.case.case_id for case in planned().cases}
    assert {case.case.case_id for case in planned(head=head).cases} == ids


def test_coordinates_are_complete_and_pairs_share_their_work() -> None:
    head = HEAD.replace("disk}", "disk, attributes: {interface: sas}}")
    plan = planned("factors: {processes_per_node: [2]}\n", head)
    case = next(case for case in plan.cases if case.case.target == "a")
    twin = next(case for case in plan.cases if case.case.target == "b")
    assert dict(case.coordinates) == {
        "interface": "sas", "pattern": "seq-read", "chunk": 1 << 20, "bytes_per_process": 1 << 24,
        "direct": False, "depth": 1, "nodes": 1, "processes_per_node": 2, "threads": 1,
        "processes": 2, "cache": "cold", "device_state": "as_found", "target": "a",
        "backend": "disk", "engine": "player", "workload": "io",
    }  # fmt: skip
    assert case.case.work_id == twin.case.work_id
    assert case.case.case_id != twin.case.case_id


def test_factors_apply_to_the_workloads_that_have_them() -> None:
    head = HEAD + "  meta: {workload: meta}\n"
    plan = planned("factors: {chunk: [4KiB, 1MiB], files: [1, 2, 3], threads: [1, 2]}\n", head)
    counts = Counter(case.entry for case in plan.cases)
    assert counts == {"io": 2 * 2 * 2, "meta": 2 * 3 * 2}


def test_exclusions_match_levels_defaults_targets_and_entries() -> None:
    body = "factors: {chunk: [4KiB, 1MiB], pattern: [seq-read, rand-read]}\nexclude:\n"
    plan = planned(
        body + "- {chunk: 4096, pattern: rand-read}\n- {target: a, chunk: [1MiB]}\n"
        "- {workload: io, direct: false, target: b, pattern: seq-read}\n"
    )
    left = {(c.case.target, c.coordinates["chunk"], c.coordinates["pattern"]) for c in plan.cases}
    assert left == {("a", 4096, "seq-read"), ("b", 1 << 20, "rand-read")}
    assert plan.excluded == 6


def test_cluster_factors_become_levels_of_the_targets_that_have_them() -> None:
    head = HEAD.replace("backend: disk", "backend: cluster")
    plan = planned("factors: {storage_nodes: [2, 3], device_state: [as_found]}\n", head)
    levels = sorted((c.case.target, c.case.level.get("storage_nodes", 0)) for c in plan.cases)
    assert levels == [("a", 2), ("a", 3), ("b", 0)]
    assert Counter(plot.target for plot in plan.plots()) == {"a": 12, "b": 6}


@pytest.mark.parametrize("only", ["chunk", "chnk=4KiB", "chunk=3", "=x"])
def test_a_bad_selection_is_refused(only: str) -> None:
    assert problems("factors: {chunk: [4KiB, 1MiB]}\n", only=(only,))[0].startswith("--only")
