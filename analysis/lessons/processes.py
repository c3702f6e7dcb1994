"""Processes per client node at which bandwidth stops growing, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import xarray as xr

from fsmatrix.analysis.data.study import Study, Values
from fsmatrix.analysis.lessons.words import Lesson, attachments, doubts_of, measured, unanswerable
from fsmatrix.analysis.questions.bottleneck import bottleneck as bottlenecks
from fsmatrix.analysis.questions.bottleneck.result import Bottleneck, GrowthStep, GrowthVerdict
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.words import few
from fsmatrix.analysis.units import METRICS, Level, brief

RATE = METRICS["bandwidth"]


def process_lessons(of: Study, ds: xr.Dataset, where: Mapping[str, Level]) -> list[Lesson]:
    """One lesson for each series over processes per client node."""
    if "processes" not in of.varying:
        labels = [of.label("processes", level) for level in of.levels("processes", of.valued)]
        why = f"one level ({labels[0]})" if labels else "no number of processes was recorded"
        return [unanswerable("processes", f"{why}: nothing can grow")]
    bottleneck = bottlenecks.bottleneck(ds, where=where, bandwidth=of)
    series = bottleneck.study.series("processes")
    lessons = []
    for verdict in bottleneck.verdicts:
        if verdict.axis == "processes":
            cells = series[verdict.key]
            lessons.append(_processes(bottleneck, verdict, cells))
    for key, cells in series.items():
        if len(cells) < 2:
            sentence = bottleneck.study.label("processes", cells[0].level("processes"))
            described = bottleneck.study.describe(key)
            answer = f"only {sentence} has a value"
            lessons.append(unanswerable("processes", answer, described, key))
    return lessons


def _processes(
    bottleneck: Bottleneck,
    verdict: GrowthVerdict,
    cells: Sequence[Values],
) -> Lesson:
    of, steps = bottleneck.study, verdict.steps
    shown = [of.label("processes", cell.level("processes")) for cell in cells]
    if verdict.knee == verdict.knee:
        place = next(i for i, step in enumerate(steps) if step.before == verdict.knee)
        at, next_ = cells[place], steps[place]
        late = place > 0 and steps[place - 1].growth == "cannot tell"
        short = f"{shown[place]}{' at the latest' if late else ''}"
        answer = (
            f"growth ends at {short}: {measured(at.median, RATE)}, "
            f"{attachments(cells)}; to {next_.after:g} {_percent(next_)}"
        )
        why = f"at the limit: {verdict.cause}" if verdict.full else _why(verdict)
        if late:
            step = steps[place - 1]
            why = f"it may end before: from {step.before:g} {_percent(step)}; {why}"
        return Lesson(
            "processes",
            of.describe(verdict.key),
            verdict.key,
            short,
            answer,
            Certainty.PROVEN,
            why,
            (at.number("processes"),),
            tuple(shown),
            doubts_of(cells),
            at.median,
            late,
        )
    return _no_end(bottleneck, verdict, cells, shown, doubts_of(cells))


def _no_end(
    bottleneck: Bottleneck,
    verdict: GrowthVerdict,
    cells: Sequence[Values],
    shown: Sequence[str],
    doubts: tuple[str, ...],
) -> Lesson:
    """It still grows at the largest number, or that cannot be told."""
    last = verdict.steps[-1]
    number = f"{measured(cells[-1].median, RATE)}, {attachments(cells)}"
    sure = Certainty.UNDECIDED
    if last.growth == "grows":
        short, sure = "beyond what was measured", Certainty.PROVEN
        answer = f"still grows at {shown[-1]}: {number}; from {last.before:g} {_percent(last)}"
        why = "more processes were not measured"
    else:
        short = sure.value
        answer = (
            f"growth may end before {shown[-1]}: {number}; from {last.before:g} {_percent(last)}"
        )
        fewest = min(cell.median.independent for cell in cells[-2:])
        why = f"an end would be growth below {bottleneck.threshold:.0%}"
        if fewest < SMALLEST:
            why = few(fewest)
    return Lesson(
        "processes",
        bottleneck.study.describe(verdict.key),
        verdict.key,
        short,
        answer,
        sure,
        why,
        (),
        tuple(shown),
        doubts,
    )


def _why(verdict: GrowthVerdict) -> str:
    """The cause where nothing is shown to be at its limit."""
    cause = verdict.cause
    return f"why is {cause}" if cause.startswith("unknown") else f"at the limit: {cause}"


def _percent(step: GrowthStep) -> str:
    """Growth of a step with its interval."""
    short = " per doubling" if step.after < 2 * step.before else ""
    growth = f"{_signed(step.gain)}{short}"
    if not math.isfinite(step.low):
        return f"{growth} (no interval)"
    span = f"{_signed(step.low)} to {_signed(step.high)}"
    return f"{growth} (range {span})" if step.growth == "cannot tell" else f"{growth} [{span}]"


def _signed(share: float) -> str:
    """A share in per cent with its sign, one digit below 10 %: "-0.1 %", "+59 %"."""
    percent = 100 * share
    return f"{'-' if percent < 0 else '+'}{brief(abs(percent), 2)} %"
