"""Lessons: what is left out, what the data cannot say, bad options, and the whole of them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix import analysis
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.lessons_result import MOST_LINES
from fsmatrix.analysis.lessons.lessons_words import Bound, bound_of, rate_of, rate_text
from fsmatrix.results.units import UnitError
from tests.analysis import study_data as studies
from tests.analysis.lesson_data import FAST, TEN, of, targets

# what is left out, and what cannot be said


def test_invalid_runs_never_decide() -> None:
    """The invalid runs of `a` would make it ten times as fast."""
    ds = targets(
        FAST, attachments=16, worst_finding=lambda t, b: "invalid" if t == "a" and b % 2 else ""
    )
    bad = (ds["worst_finding"] == "invalid").values
    ds["bandwidth"] = ds["bandwidth"].where(~bad, ds["bandwidth"] * 10)
    made = lessons(ds)
    assert of(made, "backend", pattern="rand-read").choice == ("b",)
    assert made.excluded == ("16 values of invalid runs",)
    assert "16 values of invalid runs" in made.answer


def test_what_the_data_cannot_say_is_said() -> None:
    made = lessons(targets(FAST, attachments=3))
    whole = " ".join(made.limits)
    for text in (
        "fewer than 6 attachments",
        "chunk size matters: one level (1 MiB)",
        "processes matter: one level",
        "warm, bypass: not measured",
        "no counters of network, devices or CPUs",
    ):
        assert text in whole
    assert "one target" not in whole
    assert "emulated" not in whole
    single = lessons(targets({"a": FAST["a"]}))
    assert any("one target" in text for text in single.limits)
    assert of(single, "backend").state == "without data"


def test_an_unbalanced_design_is_said_and_answered_where_it_can_be() -> None:
    ds = targets({**FAST, "b": {"rand-read": 2e8}})
    made = lessons(ds)
    assert of(made, "backend").where == "rand-read"  # b has no seq-read
    assert any("3 of the 4 combinations" in text for text in made.limits)


@pytest.mark.parametrize(
    ("column", "word"), [("engine", "--across-engines"), ("cache", "--across-cache")]
)
def test_mixed_engines_and_caches_are_not_compared(column: str, word: str) -> None:
    ds = targets(FAST, **{column: lambda t, b: "other" if t == "b" else "player-c"})
    made = lessons(ds)
    one = of(made, "backend")
    assert one.state == "without data"
    assert word in one.answer
    assert not any(one.choice for one in made.lessons if one.question == "backend")


def test_a_pair_that_cannot_be_compared_leaves_the_others() -> None:
    speed = {"a": {"read": 4e8}, "b": {"read": 1e8}, "c": {"read": 9e8}}
    ds = targets(speed, attachments=9, engine=lambda t, b: "fio" if t == "c" else "player-c")
    made = lessons(ds)
    one = of(made, "backend")
    assert one.choice == ("a",)
    assert " times as fast as b in all 9 blocks (" in one.answer
    assert " c " not in one.answer
    assert sum("cannot be compared" in text for text in made.limits) == 2


def test_constant_data_are_said_to_be_that() -> None:
    ds = targets(FAST, attachments=8)
    ds["bandwidth"] = ("run", np.where(ds["target"] == "a", 4e8, 2e8))
    assert any("same value in every attachment" in text for text in lessons(ds).limits)


def test_one_run_decides_nothing() -> None:
    ds = targets(FAST, attachments=1).isel(run=[0])
    made = lessons(ds, latency_bound=TEN, bandwidth=1e8)
    assert {one.state for one in made.lessons} <= {"without data", "undecided"}
    assert "one value per cell" in made.limits[0]
    json.dumps(made.to_dict(), allow_nan=False)


def test_nothing_at_all_is_refused() -> None:
    empty = targets(FAST).isel(run=slice(0))
    with pytest.raises(ValueError, match="no runs"):
        lessons(empty)
    failed = targets(FAST, attachments=2, status=lambda t, b: "failed")
    with pytest.raises(ValueError, match=r"no run gave any bandwidth: \d+ runs failed"):
        lessons(failed)
    blank = targets(FAST, attachments=2, iops=lambda t, b: math.nan)
    blank["bandwidth"] = blank["bandwidth"] * math.nan
    with pytest.raises(ValueError, match="no run gave"):
        lessons(blank)


def _failing(*names: str) -> xr.Dataset:
    """Targets a, b, c with 6 blocks; those of these names fail with an error of their own."""
    speed = {name: {"seq-read": rate} for name, rate in (("a", 4e8), ("b", 2e8), ("c", 3e8))}
    ds = targets(
        speed,
        attachments=6,
        status=lambda t, _: "failed" if t in names else "ok",
        error=lambda t, _: f"no space left on {t}" if t in names else "",
    )
    return ds.assign(bandwidth=ds["bandwidth"].where(ds["status"] == "ok"))


def test_targets_that_failed_are_named_with_their_errors() -> None:
    """Two of three failed: that is no campaign of one target."""
    made = lessons(_failing("b", "c"))
    assert "one target" not in " ".join(made.says)
    assert made.answer.startswith("No choice is possible: of 3 targets only a gave a result.")
    for name in ("b", "c"):
        assert f"target {name}: 6 runs failed (no space left on {name})" in made.answer
    (choice,) = [one for one in made.lessons if one.question == "backend"]
    assert choice.why == (
        "b: 6 runs failed (no space left on b); c: 6 runs failed (no space left on c)"
    )
    with pytest.raises(ValueError, match=r"only a has runs that count.*no space left on b.* on c"):
        comparisons(_failing("b", "c"))
    alone = lessons(_failing().isel(run=slice(0, 6)))
    assert "one target (a): nothing to choose between" in " ".join(alone.says)


def test_one_of_three_targets_that_failed_stands_beside_the_answer() -> None:
    made = lessons(_failing("c"))
    assert [one.choice for one in made.lessons if one.where == "seq-read"] == [("a",)]
    assert "target c: 6 runs failed (no space left on c)" in made.answer
    (found,) = comparisons(_failing("c"))
    assert "c has none: 6 runs failed (no space left on c)." in found.remarks


def test_why_there_is_no_value_is_said_in_words() -> None:
    ds = _failing("b")
    ds["iops"] = ds["bandwidth"] * math.nan
    why = r"6 runs failed \(no space left on b\); 12 runs ended well without it$"
    with pytest.raises(ValueError, match=f"^no run gave any operations per second: {why}"):
        study(ds, "iops")
    with pytest.raises(ValueError, match=r"no run gave any operations per second: 6 runs failed"):
        comparisons(ds, "iops")
    some = _failing("b")
    some["error"] = ("run", np.where(some["block"] == 0, "killed", some["error"]))
    with pytest.raises(ValueError, match=r"6 runs failed \(5 of them: no space left on b\)"):
        study(some, "bandwidth", {"target": "b"})
    invalid = _failing().assign(worst_finding=("run", np.full(18, "invalid")))
    invalid = invalid.assign(
        finding_run=("finding", np.arange(18)),
        finding_audit=("finding", np.full(18, "read-served-by-cache")),
        finding_severity=("finding", np.full(18, "invalid")),
    )
    with pytest.raises(ValueError, match=r": 18 runs are invalid \(read-served-by-cache\)$"):
        comparisons(invalid, "bandwidth")


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
