"""Lessons: right where the data decide, open where they do not, on campaigns of known truth."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from fsmatrix import analysis
from fsmatrix.analysis.lessons.backend import backend_lessons
from fsmatrix.analysis.lessons.lessons import Lessons, lessons
from fsmatrix.analysis.lessons.lines import MOST_LINES
from fsmatrix.analysis.lessons.overall import TOGETHER
from fsmatrix.analysis.lessons.words import Bound, Lesson, bound_of, rate_of, rate_text, share_of
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.scalability.laws import throughput
from fsmatrix.results.units import UnitError
from fsmatrix.suite.cli import main as cli

from . import campaigns, studies
from .studies import KIB, MIB, Levels

CHUNKS = (64 * KIB, 256 * KIB, MIB, 4 * MIB)
TEN = Bound("latency_p99", 0.010)


def of(made: Lessons, question: str, **levels: Any) -> Lesson:
    """The only lesson of a question with these levels."""
    (found,) = [
        one
        for one in made.lessons
        if one.question == question
        and one.where != TOGETHER
        and all(dict(one.levels)[n] == v for n, v in levels.items())
    ]
    return found


def chunks(truth: Callable[[Levels], Mapping[str, float]], **options: Any) -> xr.Dataset:
    return studies.campaign(
        truth, {"pattern": ("seq-read",), "chunk": CHUNKS}, between=0.02, within=0.01, **options
    )


def curve(cell: Levels) -> dict[str, float]:
    """Latency 1, 3, 8, 30 ms; bandwidth grows with each chunk size."""
    i = CHUNKS.index(cell["chunk"])
    return {"bandwidth": (1e8, 2e8, 4e8, 4.4e8)[i], "latency_p99": (1e-3, 3e-3, 8e-3, 3e-2)[i]}


def targets(
    speed: Mapping[str, Mapping[str, float]], *, attachments: int = 8, seed: int = 1,
    sizes: Sequence[int] = (MIB,), spread: float = 0.02, **columns: Any,
) -> xr.Dataset:  # fmt: skip
    """target -> pattern -> bandwidth; each target has its own attachment in each block."""
    rng = np.random.default_rng(seed)
    rows = []
    for target, patterns in speed.items():
        shifts = rng.normal(0, spread, attachments)
        for (pattern, rate), chunk, block in itertools.product(
            patterns.items(), sizes, range(attachments)
        ):
            rows.append({
                "target": target, "pattern": pattern, "chunk": chunk, "block": block,
                "attachment": f"{target}-{block}", "cache": "cold", "work_id": f"{pattern}{chunk}",
                "phase": "write" if "write" in pattern else "read", "processes_per_node": 1,
                "bandwidth": rate * math.exp(shifts[block] + rng.normal(0, spread)),
                **{name: value(target, block) for name, value in columns.items()},
            })  # fmt: skip
    return studies.dataset(rows, ["pattern", "chunk", "cache", "processes_per_node"])


# chunk size


def test_the_fastest_chunk_under_the_bound() -> None:
    made = lessons(chunks(curve), latency_bound=TEN)
    assert isinstance(made, Result)
    one = of(made, "chunk")
    assert (one.choice, one.sure, one.short) == ((MIB,), "decided", "1 MiB")
    assert one.estimate is not None
    assert one.estimate.low <= 4e8 <= one.estimate.high
    assert "8 attachments" in one.answer
    assert "p99" in one.answer
    assert "4 MiB gives 1.1" in one.why  # what the bound costs
    assert "misses the bound" in one.why


def test_a_chunk_whose_interval_holds_the_bound_is_not_recommended() -> None:
    truth = lambda c: curve(c) | ({"latency_p99": 0.010} if c["chunk"] == MIB else {})  # noqa: E731
    one = of(lessons(chunks(truth), latency_bound=TEN), "chunk")
    assert (one.choice, one.sure) == ((256 * KIB,), "in part")
    assert "1 MiB is faster and may do too (p99" in one.why


def test_ties_are_named() -> None:
    flat = lambda c: curve(c) | {"bandwidth": 3e8}  # noqa: E731
    one = of(lessons(chunks(flat), latency_bound=TEN), "chunk")
    assert sorted(one.choice) == [64 * KIB, 256 * KIB, MIB]
    assert one.short == "64 KiB or 256 KiB or 1 MiB"
    assert one.sure == "decided"  # they differ by less than the tolerance, shown
    rough = studies.campaign(flat, {"pattern": ("seq-read",), "chunk": CHUNKS},
                             between=0.02, within=0.1, attachments=8)  # fmt: skip
    loose = of(lessons(rough, latency_bound=Bound("latency_p99", 0.02)), "chunk")
    assert len(loose.choice) == 3
    assert loose.sure == "in part"
    assert "not told apart" in loose.why


def test_no_chunk_keeps_the_bound() -> None:
    one = of(lessons(chunks(curve), latency_bound=Bound("latency_p99", 1e-4)), "chunk")
    assert (one.short, one.sure, one.choice) == ("none", "decided", ())
    assert "64 KiB has the lowest" in one.answer


def test_a_percentile_that_was_not_measured() -> None:
    made = lessons(chunks(curve), latency_bound=Bound("latency_p99_9", 1e-2))
    one = of(made, "chunk")
    assert one.sure == "cannot be said"
    assert "no p99.9 was measured" in one.answer
    assert len(made.figure().axes) == 1  # over chunk size instead


@pytest.mark.parametrize("bound", [None, TEN])
def test_few_attachments_decide_no_chunk(bound: Bound | None) -> None:
    one = of(lessons(chunks(curve, attachments=5), latency_bound=bound), "chunk")
    assert (one.short, one.sure, one.choice) == ("not decided", "too few", ())
    assert "6" in one.why


def test_without_a_bound_where_bandwidth_stops_growing() -> None:
    flat = lambda c: {"bandwidth": (1e8, 2e8, 4e8, 4.05e8)[CHUNKS.index(c["chunk"])]}  # noqa: E731
    made = lessons(chunks(flat))
    one = of(made, "chunk")
    assert (one.choice, one.sure) == ((MIB,), "decided")
    assert any("no bound of a latency was given" in text for text in made.limits)
    grows = of(lessons(chunks(curve)), "chunk")  # 10 % more at the last step
    assert (grows.choice, grows.short) == ((4 * MIB,), "4 MiB or more")
    assert "still grows there" in grows.why
    generous = of(lessons(chunks(curve), tolerance=0.25), "chunk")
    assert (generous.choice, generous.sure) == ((MIB,), "decided")


def test_growth_just_at_the_tolerance_is_open() -> None:
    edge = lambda c: {"bandwidth": (1e8, 2e8, 4e8, 4.2e8)[CHUNKS.index(c["chunk"])]}  # noqa: E731
    kinds = [of(lessons(chunks(edge, seed=s)), "chunk").sure for s in range(10)]
    assert kinds.count("too few") >= 8


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
        "bandwidth": 3.03e8 if c["chunk"] == 4 * MIB else 3e8, "latency_p99": 1e-3,
    }  # fmt: skip
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
        {"pattern": ("seq-read",), "processes_per_node": levels}, between=0.01, within=0.01,
    )  # fmt: skip
    size = ds.sizes["run"]
    return ds.assign({name: ("run", np.full(size, value)) for name, value in shares.items()})


def test_processes_where_growth_ends_and_why() -> None:
    made = lessons(growing((1e8, 2e8, 4e8, 4.1e8), cpu_busy=0.99, device_busy=0.4))
    one = of(made, "processes")
    assert (one.choice, one.sure, one.short) == ((4,), "decided", "4 processes")
    assert "at the limit: client CPU" in one.why
    assert one.estimate is not None
    assert one.estimate.low <= 4e8 <= one.estimate.high
    unknown = of(lessons(growing((1e8, 2e8, 4e8, 4.1e8))), "processes")
    assert "unknown" in unknown.why
    assert "not measured" in unknown.why


def test_processes_that_still_grow_have_no_best_number() -> None:
    one = of(lessons(growing((1e8, 2e8, 4e8, 8e8))), "processes")
    assert (one.choice, one.sure) == ((), "decided")
    assert "still grows at 8 processes" in one.answer
    edge = of(lessons(growing((1e8, 2e8, 4e8, 4.4e8))), "processes")  # 10 %, the threshold
    assert (edge.choice, edge.sure) == ((), "too few")


# storage nodes


def nodes(
    truth: Callable[[float], float], levels: Sequence[int], emulated: bool = False, **options: Any
) -> xr.Dataset:
    return studies.campaign(
        lambda c: {"bandwidth": truth(c["storage_nodes"])},
        {"pattern": ("seq-read",), "storage_nodes": levels}, between=0.02, within=0.01,
        emulated=("storage_nodes",) if emulated else (), **options,
    )  # fmt: skip


def test_the_fewest_nodes_that_reach_a_bandwidth() -> None:
    ds = nodes(lambda n: n * 1e8, (2, 3, 4, 5), emulated=True)
    made = lessons(ds, bandwidth=3.5e8)
    one = of(made, "nodes")
    assert (one.choice, one.sure) == ((4,), "decided")
    assert "(emulated)" in one.short
    assert "emulated" in made.answer
    assert "3 storage nodes (emulated) do not" in one.why
    first = of(lessons(ds, bandwidth=1e8), "nodes")
    assert (first.choice, first.short) == ((2,), "2 storage nodes (emulated) or fewer")
    edge = of(lessons(ds, bandwidth=3e8), "nodes")
    assert (edge.choice, edge.sure) == ((4,), "in part")
    assert "whether 3 storage nodes (emulated) would do is open" in edge.why


def test_nothing_is_interpolated_or_extrapolated_without_a_law() -> None:
    gap = of(lessons(nodes(lambda n: n * 1e8, (2, 5)), bandwidth=2.5e8), "nodes")
    assert gap.choice == (5,)
    assert gap.why.endswith("none between were measured")
    beyond = of(lessons(nodes(lambda n: n * 1e8, (2, 3, 4)), bandwidth=9e8), "nodes")
    assert (beyond.choice, beyond.sure) == ((), "decided")
    assert "no law was fitted" in beyond.why
    assert "9" not in beyond.why.split("were not measured")[1]  # no number of nodes is named


def test_beyond_the_data_a_law_is_called_a_model() -> None:
    usl = lambda n: float(throughput(np.array([n]), 1e8, 0.05, 0.0)[0])  # noqa: E731
    ds = nodes(usl, (1, 2, 3, 4, 5, 6, 7, 8), attachments=10)
    needed = next(n for n in range(1, 99) if usl(n) >= 7.5e8)
    one = of(lessons(ds, bandwidth=7.5e8), "nodes")
    assert (one.choice, one.sure) == ((), "decided")
    assert "a model" in one.why
    assert "extrapolated, without an interval" in one.why
    told = int(one.why.split(" says ")[1].split(",")[0])
    assert abs(told - needed) <= 3
    never = of(lessons(ds, bandwidth=1e12), "nodes")
    assert "never reaches it" in never.why


def test_few_attachments_decide_no_number_of_nodes() -> None:
    ds = nodes(lambda n: n * 1e8, (2, 3, 4), attachments=4)
    for wanted in (1e8, 3.5e8, 9e8):
        one = of(lessons(ds, bandwidth=wanted), "nodes")
        assert (one.short, one.sure, one.choice) == ("not decided", "too few", ())
    assert of(lessons(ds), "nodes").sure == "not asked"


# targets

FAST = {"a": {"seq-read": 4e8, "rand-read": 1e8}, "b": {"seq-read": 2e8, "rand-read": 2e8}}


def test_each_pattern_has_its_winner() -> None:
    made = lessons(targets(FAST))
    for pattern, name in (("seq-read", "a"), ("rand-read", "b")):
        one = of(made, "backend", pattern=pattern)
        assert (one.choice, one.sure) == ((name,), "decided")
        assert f"faster than {'ab'.replace(name, '')} in 1 of 1 cell: " in one.answer
    assert made.answer.startswith("By bandwidth: ")
    assert "a for seq-read" in made.answer
    assert "b for rand-read" in made.answer
    ratio = float(of(made, "backend", pattern="seq-read").answer.split("cell: ")[1].split()[0])
    assert ratio == pytest.approx(2.0, rel=0.05)


def test_cells_that_disagree_are_named() -> None:
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}}, sizes=(4 * KIB, MIB))
    small = (ds["target"] == "b") & (ds["chunk"] == 4 * KIB)
    ds["bandwidth"] = ds["bandwidth"].where(~small, ds["bandwidth"] * 4)
    one = of(lessons(ds), "backend")
    assert (one.short, one.choice, one.sure) == ("depends", (), "decided")
    assert "a is faster than b in 1 of 2 cells (chunk 1 MiB)" in one.answer
    assert "b is faster than a in 1 of 2 cells (chunk 4 KiB)" in one.answer
    assert len(one.cells) == 2


def test_three_targets_two_of_them_alike() -> None:
    ds = targets({"a": {"read": 4e8}, "b": {"read": 4e8}, "c": {"read": 1e8}}, attachments=14,
                 spread=0.004)  # fmt: skip
    one = of(lessons(ds), "backend")
    assert (one.choice, one.sure) == (("a", "b"), "decided")
    assert "no difference larger than 5 % between them" in one.answer


def test_targets_that_are_alike_have_no_winner() -> None:
    ds = targets({"a": {"read": 4e8}, "b": {"read": 4e8}}, attachments=12, spread=0.004)
    made = lessons(ds)
    one = of(made, "backend")
    assert (one.short, one.sure) == ("no difference", "decided")
    assert "no difference that matters" in made.answer


def test_false_winners_are_rare() -> None:
    """Null campaigns of 8 cells: in at most 5 % of them any pattern has a winner."""
    names, count, wrong = ("seq-read", "rand-read", "seq-write", "rand-write"), 40, 0
    same = {t: dict.fromkeys(names, 1e8) for t in "ab"}
    for seed in range(count):
        ds = targets(same, attachments=10, seed=seed, spread=0.05, sizes=(KIB, MIB))
        found, _ = backend_lessons(ds, "ab", "bandwidth", {}, 0.05, 0.05)
        assert len(found) == 5  # four patterns, and all together
        wrong += any(one.choice and one.short != "no difference" for one in found)
    assert wrong <= stats.binom.ppf(0.999, count, 0.05)


def test_all_cells_together_decide_where_single_cells_do_not() -> None:
    """Seven attachments, 8 cells: none of the cells can be decided, their mean can."""
    slow = {"b": dict.fromkeys(("seq-read", "rand-read"), 2e8), "a": dict.fromkeys(
        ("seq-read", "rand-read"), 3e8)}  # fmt: skip
    made = lessons(targets(slow, attachments=7, sizes=(4 * KIB, 16 * KIB, 64 * KIB, MIB)))
    (whole,) = [one for one in made.lessons if one.where == "all cells together"]
    assert (whole.choice, whole.sure) == (("a",), "decided")
    assert [one.choice for one in made.lessons if one.levels and one.question == "backend"] == [
        (), ()]  # fmt: skip
    ratio = float(whole.answer.split("gives ")[1].split()[0])
    assert ratio == pytest.approx(1.5, rel=0.05)
    assert "a over all cells together" in made.answer


def test_too_few_attachments_name_no_winner_and_how_many_it_takes() -> None:
    made = lessons(targets(FAST, attachments=5))
    for one in made.lessons:
        assert one.choice == ()
    one = of(made, "backend", pattern="seq-read")
    assert one.sure == "too few"
    assert "at least 7 can decide one of 2" in one.why
    assert made.answer.startswith("No target is shown to be the better one")


# what is left out, and what cannot be said


def test_invalid_runs_never_decide() -> None:
    """The invalid runs of `a` would make it ten times as fast."""
    ds = targets(FAST, attachments=16, worst_finding=lambda t, b: (
        "invalid" if t == "a" and b % 2 else ""))  # fmt: skip
    bad = (ds["worst_finding"] == "invalid").values
    ds["bandwidth"] = ds["bandwidth"].where(~bad, ds["bandwidth"] * 10)
    made = lessons(ds)
    assert of(made, "backend", pattern="rand-read").choice == ("b",)
    assert made.excluded == ("16 values of invalid runs",)
    assert "16 values of invalid runs" in made.answer


def test_what_the_data_cannot_say_is_said() -> None:
    made = lessons(targets(FAST, attachments=3))
    whole = " ".join(made.limits)
    for text in ("fewer than 6 attachments", "chunk size matters: one level (1 MiB)",
                 "processes matter: one level", "warm, bypass: not measured",
                 "no counters of network, devices or CPUs"):  # fmt: skip
        assert text in whole
    assert "one target" not in whole
    assert "emulated" not in whole
    single = lessons(targets({"a": FAST["a"]}))
    assert any("one target" in text for text in single.limits)
    assert of(single, "backend").sure == "cannot be said"


def test_an_unbalanced_design_is_said_and_answered_where_it_can_be() -> None:
    ds = targets({**FAST, "b": {"rand-read": 2e8}})
    made = lessons(ds)
    assert of(made, "backend").where == "rand-read"  # b has no seq-read
    assert any("3 of the 4 combinations" in text for text in made.limits)


@pytest.mark.parametrize(("column", "word"), [("engine", "--across-engines"),
                                              ("cache", "--across-cache")])  # fmt: skip
def test_mixed_engines_and_caches_are_not_compared(column: str, word: str) -> None:
    ds = targets(FAST, **{column: lambda t, b: "other" if t == "b" else "player-c"})
    made = lessons(ds)
    one = of(made, "backend")
    assert one.sure == "cannot be said"
    assert word in one.answer
    assert not any(one.choice for one in made.lessons if one.question == "backend")


def test_a_pair_that_cannot_be_compared_leaves_the_others() -> None:
    speed = {"a": {"read": 4e8}, "b": {"read": 1e8}, "c": {"read": 9e8}}
    ds = targets(speed, attachments=9, engine=lambda t, b: "fio" if t == "c" else "player-c")
    made = lessons(ds)
    one = of(made, "backend")
    assert one.choice == ("a",)
    assert "than b" in one.answer
    assert sum("cannot be compared" in text for text in made.limits) == 2


def test_constant_data_are_said_to_be_that() -> None:
    ds = targets(FAST, attachments=8)
    ds["bandwidth"] = ("run", np.where(ds["target"] == "a", 4e8, 2e8))
    assert any("same value in every attachment" in text for text in lessons(ds).limits)


def test_one_run_decides_nothing() -> None:
    ds = targets(FAST, attachments=1).isel(run=[0])
    made = lessons(ds, latency_bound=TEN, bandwidth=1e8)
    assert {one.sure for one in made.lessons} <= {"cannot be said", "too few"}
    assert "one value per cell" in made.limits[0]
    json.dumps(made.to_dict(), allow_nan=False)


def test_nothing_at_all_is_refused() -> None:
    empty = targets(FAST).isel(run=slice(0))
    with pytest.raises(ValueError, match="no runs"):
        lessons(empty)
    failed = targets(FAST, attachments=2, status=lambda t, b: "failed")
    with pytest.raises(ValueError, match=r"no run gave a bandwidth: \d+ failed"):
        lessons(failed)
    blank = targets(FAST, attachments=2, iops=lambda t, b: math.nan)
    blank["bandwidth"] = blank["bandwidth"] * math.nan
    with pytest.raises(ValueError, match="no run gave"):
        lessons(blank)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"tolerance": 0.0}, "tolerance"), ({"alpha": 1.0}, "alpha"),
     ({"bandwidth": -1.0}, "bandwidth"), ({"bandwidth": math.inf}, "bandwidth"),
     ({"where": {"colour": "red"}}, "colour"), ({"where": {"target": "zfs"}}, "zfs")],
)  # fmt: skip
def test_bad_options_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        lessons(targets(FAST), **options)


@pytest.mark.parametrize(
    ("text", "metric", "seconds"),
    [("p99 < 10ms", "latency_p99", 0.01), ("mean<1.5s", "latency_mean", 1.5),
     ("p99.9 < 200us", "latency_p99_9", 2e-4), ("10ms", "latency_p99", 0.01),
     ("p50 < 2", "latency_p50", 2.0)],
)  # fmt: skip
def test_bounds_are_read(text: str, metric: str, seconds: float) -> None:
    assert bound_of(text) == Bound(metric, pytest.approx(seconds))


@pytest.mark.parametrize(
    "text", ["", "p98 < 10ms", "p99 > 10ms", "p99 < ", "p99 < 0ms", "p99 < -1ms",
             "p99 < 10 furlongs", "p99 < nan", "< 10ms", "p99 <= 10ms"],
)  # fmt: skip
def test_bad_bounds_are_refused(text: str) -> None:
    with pytest.raises(UnitError):
        bound_of(text)


def test_bandwidths_are_read_and_shown_as_asked() -> None:
    for text, value in (("500MB/s", 5e8), ("4 Gb/s", 5e8), ("1.5GiB/s", 1.5 * 2**30)):
        assert rate_of(text) == value
    assert rate_text(5e8) == "500 MB/s"
    assert rate_text(2.0**31) == "2 GiB/s"
    for text in ("", "500", "500MB", "500 M/s", "fast", "-5MB/s", "0MB/s", "1e9B/s", "5 mb/s"):
        with pytest.raises(UnitError):
            rate_of(text)


# as a whole


def test_the_whole_is_usable_by_a_page_and_by_a_program() -> None:
    made = lessons(studies.table3(attachments=8), bandwidth=2e8)
    json.dumps(made.to_dict(), allow_nan=False)
    assert [group.question for group in made.groups] == ["backend", "chunk", "processes", "nodes"]
    assert sum(len(group.lessons) for group in made.groups) == len(made.lessons)
    assert len(made.table()) == len(made.lessons)
    for group in made.groups:
        assert len(group.lines) <= max(MOST_LINES, len({one.short for one in group.lessons}) * 3)
    assert 1 <= made.answer.count(". ") + 1 <= 4
    figure = made.figure()
    assert len([ax for ax in figure.axes if ax.get_visible()]) == 8  # interface x pattern
    assert all(ax.get_ylabel() == "MiB/s" for ax in figure.axes if ax.get_visible())
    with pytest.raises(ValueError, match="page"):
        made.figure(7)


def test_a_figure_needs_chunk_sizes() -> None:
    made = lessons(targets(FAST))
    assert "one chunk size" in made.drawable
    with pytest.raises(ValueError, match="one chunk size"):
        made.figure()


def test_the_cern_tables_decide_nothing() -> None:
    made = lessons(analysis.open("published:cern-lhcb-rntuple"))
    assert not any(one.choice for one in made.lessons)
    one = of(made, "backend", phase="read")
    assert "one value per cell in 16 of 16" in one.why
    assert any("background-load-suspected" in doubt for doubt in one.doubts)


# the command


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["fsmatrix", "lessons", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = campaigns.realistic(("xfs", "btrfs"), blocks=9)  # with failed and invalid runs
    return campaigns.write(tmp_path_factory.mktemp("lessons") / "c.h5", records)


def test_the_command_prints_text_json_and_a_picture(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert call(monkeypatch, campaign, "--where", "pattern=seq-read") == 0
    said = capsys.readouterr().out
    assert "xfs for seq-read" in said
    assert "invalid runs (read-served-by-cache)" in said
    picture = tmp_path / "lessons.png"
    words = ("--latency", "p99 < 20ms", "--bandwidth", "500MB/s", "--json", "--out", picture)
    assert call(monkeypatch, campaign, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["latency_bound"] == {"metric": "latency_p99", "seconds": 0.02}
    assert found["bandwidth"] == 5e8
    assert {one["question"] for one in found["lessons"]} == {"backend", "chunk", "processes",
                                                             "nodes"}  # fmt: skip
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--latency", "p98 < 10ms"], "--latency p98 < 10ms"),
        (["--latency", "p99 < 10 parsecs"], "parsecs"),
        (["--bandwidth", "500MB"], "--bandwidth 500MB"),
        (["--bandwidth", "0MB/s"], "more than zero"),
        (["--tolerance", "much"], "--tolerance much"),
        (["--where", "pattern=sideways"], "sideways"),
        (["--where", "colour=red"], "colour"),
        (["--where", "chunk=4096"], "nothing to draw"),
    ],
)
def test_bad_words_are_refused_and_nothing_is_written(
    words: list[str], told: str, campaign: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    picture = tmp_path / "lessons.png"
    assert call(monkeypatch, campaign, *words, "--out", picture) == 2
    captured = capsys.readouterr()
    assert told in captured.err.replace("\n", " ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not picture.exists()
