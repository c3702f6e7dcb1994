"""Lessons: right where the data decide, open where they do not, on campaigns of known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from fsmatrix.analysis.lessons.backend import backend_lessons, pairs_compared
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.lessons_words import Bound, share_of
from fsmatrix.analysis.questions.scalability import throughput
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies
from tests.analysis.lesson_data import CHUNKS, FAST, TEN, chunks, curve, of, targets
from tests.analysis.study_data import KIB, MIB

# chunk size


def test_the_fastest_chunk_under_the_bound() -> None:
    made = lessons(chunks(curve), latency_bound=TEN)
    assert isinstance(made, Result)
    one = of(made, "chunk")
    assert (one.choice, one.state, one.short) == ((MIB,), "proven", "1 MiB")
    assert one.estimate is not None
    assert one.estimate.low <= 4e8 <= one.estimate.high
    assert "8 attachments" in one.answer
    assert "p99" in one.answer
    assert "4 MiB gives 1.1" in one.why  # what the bound costs
    assert "misses the bound" in one.why


def test_a_chunk_whose_interval_holds_the_bound_is_not_recommended() -> None:
    truth = lambda c: curve(c) | ({"latency_p99": 0.010} if c["chunk"] == MIB else {})  # noqa: E731
    one = of(lessons(chunks(truth), latency_bound=TEN), "chunk")
    assert (one.choice, one.state) == ((256 * KIB,), "proven in part")
    assert "1 MiB is faster and may keep it too (p99" in one.why


def test_ties_are_named() -> None:
    flat = lambda c: curve(c) | {"bandwidth": 3e8}  # noqa: E731
    one = of(lessons(chunks(flat), latency_bound=TEN), "chunk")
    assert sorted(one.choice) == [64 * KIB, 256 * KIB, MIB]
    assert one.short == "64 KiB or 256 KiB or 1 MiB"
    assert one.state == "proven"  # they differ by less than the tolerance, shown
    rough = studies.campaign(
        flat, {"pattern": ("seq-read",), "chunk": CHUNKS}, between=0.02, within=0.1, attachments=8
    )
    loose = of(lessons(rough, latency_bound=Bound("latency_p99", 0.02)), "chunk")
    assert len(loose.choice) == 3
    assert loose.state == "proven in part"
    assert "which is faster is undecided" in loose.why


def test_no_chunk_keeps_the_bound() -> None:
    one = of(lessons(chunks(curve), latency_bound=Bound("latency_p99", 1e-4)), "chunk")
    assert (one.short, one.state, one.choice) == ("none", "proven", ())
    assert "64 KiB has the lowest" in one.answer


def test_a_percentile_that_was_not_measured() -> None:
    made = lessons(chunks(curve), latency_bound=Bound("latency_p99_9", 1e-2))
    one = of(made, "chunk")
    assert one.state == "without data"
    assert "no p99.9 was measured" in one.answer
    assert len(made.figure().axes) == 1  # over chunk size instead


@pytest.mark.parametrize("bound", [None, TEN])
def test_few_attachments_decide_no_chunk(bound: Bound | None) -> None:
    one = of(lessons(chunks(curve, attachments=5), latency_bound=bound), "chunk")
    assert (one.short, one.state, one.choice) == ("undecided", "undecided", ())
    assert "6" in one.why


def test_without_a_bound_where_bandwidth_stops_growing() -> None:
    flat = lambda c: {"bandwidth": (1e8, 2e8, 4e8, 4.05e8)[CHUNKS.index(c["chunk"])]}  # noqa: E731
    made = lessons(chunks(flat))
    one = of(made, "chunk")
    assert (one.choice, one.state) == ((MIB,), "proven")
    assert any("no latency limit was given" in text for text in made.limits)
    grows = of(lessons(chunks(curve)), "chunk")  # 10 % more at the last step
    assert (grows.choice, grows.short) == ((4 * MIB,), "4 MiB or more")
    assert "still grows there" in grows.why
    generous = of(lessons(chunks(curve), tolerance=0.25), "chunk")
    assert (generous.choice, generous.state) == ((MIB,), "proven")


def test_growth_just_at_the_tolerance_is_open() -> None:
    edge = lambda c: {"bandwidth": (1e8, 2e8, 4e8, 4.2e8)[CHUNKS.index(c["chunk"])]}  # noqa: E731
    kinds = [of(lessons(chunks(edge, seed=s)), "chunk").state for s in range(10)]
    assert kinds.count("undecided") >= 8


def test_false_single_winners_among_equal_chunks_are_rare() -> None:
    """All are equal: the answer that one is the best must come in at most 5 % of campaigns."""
    count, wrong = 100, 0
    flat = lambda c: {"bandwidth": 3e8, "latency_p99": 1e-3}  # noqa: E731
    for seed in range(count):
        one = of(lessons(chunks(flat, seed=seed), latency_bound=TEN), "chunk")
        wrong += len(one.choice) == 1
    assert wrong <= stats.binom.ppf(0.999, count, 0.05)


def test_the_true_best_is_rarely_excluded() -> None:
    """Of four chunks the last is 1 % better: it must be among the named in 95 % of campaigns."""
    count, lost = 100, 0
    truth = lambda c: {  # noqa: E731
        "bandwidth": 3.03e8 if c["chunk"] == 4 * MIB else 3e8,
        "latency_p99": 1e-3,
    }
    for seed in range(count):
        one = of(lessons(chunks(truth, seed=seed), latency_bound=TEN), "chunk")
        lost += 4 * MIB not in one.choice
    assert lost <= stats.binom.ppf(0.999, count, 0.05)


def test_the_share_of_each_comparison() -> None:
    assert share_of(0.05, 1) == 0.05
    assert share_of(0.05, 2) == pytest.approx(0.05)
    assert share_of(0.05, 3) == pytest.approx(0.1 / 3)  # six attachments suffice for four chunks
    assert all(n * share_of(0.05, n) / 2 <= 0.05 + 1e-12 for n in range(1, 30))


# processes


def growing(rates: Sequence[float], **shares: float) -> xr.Dataset:
    levels = (1, 2, 4, 8)
    ds = studies.campaign(
        lambda c: {"bandwidth": rates[levels.index(c["processes_per_node"])]},
        {"pattern": ("seq-read",), "processes_per_node": levels},
        between=0.01,
        within=0.01,
    )
    size = ds.sizes["run"]
    return ds.assign({name: ("run", np.full(size, value)) for name, value in shares.items()})


def test_processes_where_growth_ends_and_why() -> None:
    made = lessons(growing((1e8, 2e8, 4e8, 4.1e8), cpu_busy=0.99, device_busy=0.4))
    one = of(made, "processes")
    assert (one.choice, one.state, one.short) == ((4,), "proven", "4 processes")
    assert "at the limit: client CPU" in one.why
    assert one.estimate is not None
    assert one.estimate.low <= 4e8 <= one.estimate.high
    unknown = of(lessons(growing((1e8, 2e8, 4e8, 4.1e8))), "processes")
    assert "unknown" in unknown.why
    assert "not measured" in unknown.why


def test_processes_that_still_grow_have_no_best_number() -> None:
    one = of(lessons(growing((1e8, 2e8, 4e8, 8e8))), "processes")
    assert (one.choice, one.state) == ((), "proven")
    assert "still grows at 8 processes" in one.answer
    edge = of(lessons(growing((1e8, 2e8, 4e8, 4.4e8))), "processes")  # 10 %, the threshold
    assert (edge.choice, edge.state) == ((), "undecided")


# storage nodes


def nodes(
    truth: Callable[[float], float], levels: Sequence[int], emulated: bool = False, **options: Any
) -> xr.Dataset:
    return studies.campaign(
        lambda c: {"bandwidth": truth(c["storage_nodes"])},
        {"pattern": ("seq-read",), "storage_nodes": levels},
        between=0.02,
        within=0.01,
        emulated=("storage_nodes",) if emulated else (),
        **options,
    )


def test_the_fewest_nodes_that_reach_a_bandwidth() -> None:
    ds = nodes(lambda n: n * 1e8, (2, 3, 4, 5), emulated=True)
    made = lessons(ds, bandwidth=3.5e8)
    one = of(made, "nodes")
    assert (one.choice, one.state) == ((4,), "proven")
    assert "(emulated)" in one.short
    assert "emulated" in made.answer
    assert "3 storage nodes (emulated) do not" in one.why
    first = of(lessons(ds, bandwidth=1e8), "nodes")
    assert (first.choice, first.short) == ((2,), "2 storage nodes (emulated) or fewer")
    edge = of(lessons(ds, bandwidth=3e8), "nodes")
    assert (edge.choice, edge.state) == ((4,), "proven in part")
    assert "3 storage nodes (emulated) may do: " in edge.why


def test_nothing_is_interpolated_or_extrapolated_without_a_law() -> None:
    gap = of(lessons(nodes(lambda n: n * 1e8, (2, 5)), bandwidth=2.5e8), "nodes")
    assert gap.choice == (5,)
    assert gap.why.endswith("none between were measured")
    beyond = of(lessons(nodes(lambda n: n * 1e8, (2, 3, 4)), bandwidth=9e8), "nodes")
    assert (beyond.choice, beyond.state) == ((), "proven")
    assert "no law was fitted" in beyond.why
    assert "9" not in beyond.why.split("were not measured")[1]  # no number of nodes is named


def test_beyond_the_data_a_law_is_called_a_model() -> None:
    usl = lambda n: float(throughput(np.array([n]), 1e8, 0.05, 0.0)[0])  # noqa: E731
    ds = nodes(usl, (1, 2, 3, 4, 5, 6, 7, 8), attachments=10)
    needed = next(n for n in range(1, 99) if usl(n) >= 7.5e8)
    one = of(lessons(ds, bandwidth=7.5e8), "nodes")
    assert (one.choice, one.state) == ((), "proven")
    assert "a model" in one.why
    assert "extrapolated (95 % sure, if the law holds there: " in one.why
    told = int(one.why.split(" says ")[1].split(",")[0])
    assert abs(told - needed) <= 3
    never = of(lessons(ds, bandwidth=1e12), "nodes")
    assert "never reaches it" in never.why


def test_few_attachments_decide_no_number_of_nodes() -> None:
    ds = nodes(lambda n: n * 1e8, (2, 3, 4), attachments=4)
    for wanted in (1e8, 3.5e8, 9e8):
        one = of(lessons(ds, bandwidth=wanted), "nodes")
        assert (one.short, one.state, one.choice) == ("undecided", "undecided", ())
    assert of(lessons(ds), "nodes").state == "not asked"


# targets


def test_each_pattern_has_its_winner() -> None:
    made = lessons(targets(FAST))
    for pattern, name in (("seq-read", "a"), ("rand-read", "b")):
        one = of(made, "backend", pattern=pattern)
        assert (one.choice, one.state) == ((name,), "proven")
        assert f" times as fast as {'ab'.replace(name, '')} in all 8 blocks (" in one.answer
    assert made.answer.startswith("By bandwidth: ")
    assert "a is the fastest in seq-read" in made.answer
    assert "b is the fastest in rand-read" in made.answer
    ratio = float(of(made, "backend", pattern="seq-read").answer.split(", ")[1].split()[0])
    assert ratio == pytest.approx(2.0, rel=0.05)


def test_cells_that_disagree_are_named() -> None:
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}}, sizes=(4 * KIB, MIB))
    small = (ds["target"] == "b") & (ds["chunk"] == 4 * KIB)
    ds["bandwidth"] = ds["bandwidth"].where(~small, ds["bandwidth"] * 4)
    one = of(lessons(ds), "backend")
    assert (one.short, one.choice, one.state) == ("depends", (), "proven")
    assert "a is proven ahead in 1 of 2 cells (chunk 1 MiB)" in one.answer
    assert "b is proven ahead in 1 of 2 cells (chunk 4 KiB)" in one.answer
    assert len(one.cells) == 2


def test_cells_that_are_proven_where_their_pattern_is_not_are_an_answer_in_part() -> None:
    """One cell of two is far ahead, the other spreads so much that together it may be chance."""
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}}, sizes=(4 * KIB, MIB))
    wild = np.random.default_rng(4).lognormal(-0.5, 2.5, ds.sizes["run"])
    ds["bandwidth"] = ds["bandwidth"].where(
        ds["chunk"] == MIB, ds["bandwidth"] * xr.DataArray(wild, dims="run")
    )
    made = lessons(ds)
    one = of(made, "backend")
    assert (one.choice, one.state) == (("a",), "proven in part")
    assert "proven in 1 of 2 single cells, over all of them it may be chance" in one.answer
    assert "a is the fastest in seq-read (in part)" in made.answer


def test_three_targets_two_of_them_alike() -> None:
    ds = targets(
        {"a": {"read": 4e8}, "b": {"read": 4e8}, "c": {"read": 1e8}}, attachments=14, spread=0.004
    )
    one = of(lessons(ds), "backend")
    assert (one.choice, one.state) == (("a", "b"), "proven")
    assert "no difference larger than 5 %" in one.answer
    assert one.answer.count(" times as fast as c in all 14 blocks (") == 2


def test_targets_that_are_alike_have_no_winner() -> None:
    ds = targets({"a": {"read": 4e8}, "b": {"read": 4e8}}, attachments=12, spread=0.004)
    made = lessons(ds)
    one = of(made, "backend")
    assert (one.short, one.state) == ("no difference", "equal")
    assert "no difference that matters" in made.answer


def test_false_winners_are_rare() -> None:
    """Null campaigns of 8 cells: in at most 5 % of them any pattern has a winner."""
    names, count, wrong = ("seq-read", "rand-read", "seq-write", "rand-write"), 40, 0
    same = {t: dict.fromkeys(names, 1e8) for t in "ab"}
    for seed in range(count):
        ds = targets(same, attachments=10, seed=seed, spread=0.05, sizes=(KIB, MIB))
        found, _ = backend_lessons("ab", *pairs_compared(ds, "ab"))
        assert len(found) == 5  # four patterns, and all together
        wrong += any(one.choice and one.short != "no difference" for one in found)
    assert wrong <= stats.binom.ppf(0.999, count, 0.05)


def test_all_cells_together_decide_where_single_cells_do_not() -> None:
    """A small difference in 16 cells: none of them can be decided, their mean can."""
    patterns = ("seq-read", "rand-read", "seq-write", "rand-write")
    slow = {"b": dict.fromkeys(patterns, 2e8), "a": dict.fromkeys(patterns, 2.075e8)}
    made = lessons(targets(slow, attachments=9, sizes=(4 * KIB, 16 * KIB, 64 * KIB, MIB), seed=3))
    (whole,) = [one for one in made.lessons if one.where == "all cells together"]
    assert (whole.choice, whole.state) == (("a",), "proven")
    assert {cell.kind for cell in made.compared[0].cells} == {"too few"}
    ratio = float(whole.answer.split("ratio ")[1].split(",")[0])
    assert ratio == pytest.approx(1.04, rel=0.03)
    assert whole.answer.startswith("a, ")
    assert " % faster than b in 8 of 9 blocks (ratio 1.0" in whole.answer
    assert f"over all cells together {whole.answer}" in made.answer


def test_one_cell_is_not_said_twice() -> None:
    made = lessons(targets({"a": {"read": 4e8}, "b": {"read": 1e8}}))
    assert [one.where for one in made.lessons if one.question == "backend"] == ["read"]


def test_six_blocks_tell_the_best_of_three_over_all_cells_together() -> None:
    """Holm over three pairs would need seven: max-T over the means takes the blocks together."""
    three = {
        name: dict.fromkeys(("seq-read", "rand-read"), rate)
        for name, rate in (("a", 3e8), ("b", 2e8), ("c", 2e8))
    }
    made = lessons(targets(three, attachments=6, sizes=(4 * KIB, MIB)))
    (whole,) = [one for one in made.lessons if one.where == "all cells together"]
    assert (whole.choice, whole.state) == (("a",), "proven")
    fewer = lessons(targets(three, attachments=5, sizes=(4 * KIB, MIB)))
    (whole,) = [one for one in fewer.lessons if one.where == "all cells together"]
    assert (whole.choice, whole.state) == ((), "undecided")


def test_what_is_open_beside_a_winner_is_said() -> None:
    """b and c cannot be told apart: that a is ahead of both is proven all the same."""
    three = {name: {"read": rate} for name, rate in (("a", 3e8), ("b", 2e8), ("c", 2e8))}
    made = lessons(targets(three, attachments=8, spread=0.05))
    one = of(made, "backend")
    assert (one.choice, one.state, one.certainty) == (("a",), "proven", "proven")
    assert {cell.kind for each in made.compared for cell in each.cells} == {"faster", "too few"}
    assert "a is the fastest in read." in made.answer
    assert all(
        f" as {name} in all 8 blocks" in one.answer or f"than {name} in" in one.answer
        for name in "bc"
    )


def test_too_few_attachments_name_no_winner_and_how_many_it_takes() -> None:
    made = lessons(targets(FAST, attachments=5))
    for one in made.lessons:
        assert one.choice == ()
    one = of(made, "backend", pattern="seq-read")
    assert one.state == "undecided"
    assert "; 5 blocks are too few; 6 are needed" in one.says
    assert one.says.count("too few") == 1
    assert "Add 1 block (6 in all), the fewest" in made.answer
    assert made.answer.startswith("No target is proven to be faster")
