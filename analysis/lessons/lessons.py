"""Lessons: what a campaign says to somebody who must choose, and what it does not say.

Which target for which pattern, the best chunk size (under a bound of latency), the processes at
which growth ends and why, the storage nodes that a bandwidth needs; each with number, interval and
attachments, and how sure it is.  Everything comes from valid runs by the analyses that exist:
`compare`, `bottleneck`, `scalability`, `study`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.comparison_result import extension_of
from fsmatrix.analysis.comparison.counted_rows import TOLERANCE, ComparisonOptions
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.data.factors import ROLES
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.lessons import lessons_figure
from fsmatrix.analysis.lessons import limits as evidence
from fsmatrix.analysis.lessons.backend import backend_lessons, only_one, pairs_compared
from fsmatrix.analysis.lessons.chunk import Setting, chunk_lessons
from fsmatrix.analysis.lessons.lessons_result import Lessons
from fsmatrix.analysis.lessons.lessons_words import (
    Bound,
    Lesson,
    attachments,
    doubts_of,
    measured,
    ranked,
    unanswerable,
)
from fsmatrix.analysis.questions import scalability as scaling
from fsmatrix.analysis.questions.bottleneck import bottleneck as bottlenecks
from fsmatrix.analysis.questions.bottleneck.bottleneck_result import (
    Bottleneck,
    GrowthStep,
    GrowthVerdict,
)
from fsmatrix.analysis.questions.scalability import FEWEST_LEVELS, NodeSeries
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Median
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.analysis.stats.words import few
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.units import METRICS, Level, brief
from fsmatrix.results.units import plural

# Storage nodes that reach a bandwidth: the fewest measured, and what a fitted law says beyond.
#
# Levels are never interpolated: between and beyond them only a law of scalability speaks, if one
# was fitted, and is called a model.


NODES = scaling.NODES
MOST_NODES = 10_000  # beyond, a law is no plan
ROUNDING = 1e-9  # of a number of nodes that is whole
RATE = METRICS["bandwidth"]


@dataclass(frozen=True)
class _Series:
    """A line over storage nodes against a bandwidth (SI)."""

    line: NodeSeries
    cells: tuple[Values, ...]  # [step]
    shown: tuple[str, ...]  # [step] "3 storage nodes"
    wanted: float

    def number(self, i: int) -> str:
        """The bandwidth of a step."""
        return measured(self.cells[i].median, RATE)

    def reaches(self, i: int) -> bool:
        """Whether the whole interval of a step reaches the bandwidth."""
        m = self.cells[i].median
        return m.decides and m.low >= self.wanted

    def misses(self, i: int) -> bool:
        """Whether the whole interval of a step lies below the bandwidth."""
        m = self.cells[i].median
        return m.decides and m.high < self.wanted


@dataclass(frozen=True)
class _Answer:
    short: str
    answer: str
    certainty: Certainty
    why: str
    place: int = -1  # of the step that was chosen
    partly: bool = False


def node_lessons(
    of: Study, ds: xr.Dataset, bandwidth: float | None, where: Mapping[str, Level]
) -> list[Lesson]:
    """One lesson for each series over storage nodes; without a bandwidth how much it grows."""
    try:
        scalability = scaling.scalability(ds, "bandwidth", where=where, studied=of)
    except ValueError as error:
        return [unanswerable("nodes", str(error))]
    if bandwidth is None:
        grown = [sentence for sentence in scalability.says if sentence.startswith("Bandwidth from")]
        growth = "; ".join(grown).rstrip(".") or "one number of storage nodes only"
        return [
            Lesson(
                "nodes",
                "",
                (),
                "no bandwidth asked for",
                growth,
                None if grown else Certainty.INVALID,
            )
        ]
    marked = scalability.study.cluster.emulated.get(NODES, "")
    cells = scalability.study.series(NODES)
    return [
        _lesson(
            scalability,
            _Series(
                line,
                tuple(cells[line.key]),
                tuple(plural(int(step.nodes), "storage node") + marked for step in line.steps),
                bandwidth,
            ),
        )
        for line in scalability.series
    ]


def _lesson(scalability: scaling.Scalability, series: _Series) -> Lesson:
    steps = range(len(series.cells))
    if any(series.reaches(i) for i in steps):
        answer = _reached(series, next(i for i in steps if series.reaches(i)))
    elif all(series.misses(i) for i in steps):
        answer = _missed(series)
    else:
        answer = _open(series, next(i for i in steps if not series.misses(i)))
    chosen = answer.place >= 0
    return Lesson(
        "nodes",
        scalability.study.describe(series.line.key),
        series.line.key,
        answer.short,
        answer.answer,
        answer.certainty,
        answer.why,
        (int(series.line.steps[answer.place].nodes),) if chosen else (),
        series.shown,
        doubts_of([series.cells[answer.place]] if chosen else series.cells),
        series.cells[answer.place].median if chosen else None,
        answer.partly,
    )


def _reached(series: _Series, place: int) -> _Answer:
    """The step at `place` is the first whose interval reaches the bandwidth."""
    shown, number = series.shown[place], series.number(place)
    answer = f"{shown}: {number}, {attachments([series.cells[place]])}"
    open_ = [i for i in range(place) if not series.misses(i)]
    short = f"{shown} at the latest" if open_ else shown
    if place == 0:
        short, why = f"{shown} or fewer", "fewer were not measured"
    elif open_:
        why = f"{series.shown[open_[0]]} may do: {series.number(open_[0])}"
    else:
        why = f"{series.shown[place - 1]} do not: {series.number(place - 1)}"
        if series.line.steps[place].nodes - series.line.steps[place - 1].nodes > 1:
            why += f", and none between were measured{_model(series)}"
    later = [i for i in range(place + 1, len(series.cells)) if not series.reaches(i)]
    if later:
        why += f"; yet {series.shown[later[0]]} are not proven to: {series.number(later[0])}"
    return _Answer(short, answer, Certainty.PROVEN, why, place, bool(open_ or later))


def _missed(series: _Series) -> _Answer:
    best = max(range(len(series.cells)), key=lambda i: series.cells[i].median.median)
    answer = (
        f"not reached; most at {series.shown[best]}: {series.number(best)}, "
        f"{attachments(series.cells)}"
    )
    beyond = _model(series)
    if not beyond:
        lacking = len(series.cells) < FEWEST_LEVELS
        why = f"that takes {FEWEST_LEVELS} numbers of nodes" if lacking else series.line.why_no_laws
        beyond = f", and no law was fitted to extrapolate ({why})"
    return _Answer(
        f"not reached at {series.shown[-1]}",
        answer,
        Certainty.PROVEN,
        f"more were not measured{beyond}",
    )


def _open(series: _Series, near: int) -> _Answer:
    answer = (
        f"no number of nodes is proven to reach it; {series.shown[near]}: {series.number(near)}, "
        f"{attachments(series.cells)}"
    )
    have = series.cells[near].median.independent
    why = few(have) if have < SMALLEST else "more attachments would narrow it down"
    return _Answer(Certainty.UNDECIDED.value, answer, Certainty.UNDECIDED, why)


def _model(series: _Series) -> str:
    """What the better law says, marked as a model; "" without a law."""
    laws, most = series.line.laws, series.line.steps[-1].nodes
    if laws is None:
        return ""
    if laws.superlinear:
        return "; growth is more than proportional: no law fits"
    if not laws.hold:
        return f"; no law fits: {laws.top.says}"
    estimate = laws.nodes_for(series.wanted)
    count, low, high = (nodes_of(n) for n in (estimate.value, estimate.low, estimate.high))
    model = f"a model ({laws.chosen.name}'s law, fitted)"
    if low is None:
        return f"; {model} never reaches it"
    ends = f"95 % sure, if the law holds there: {low} to {high or 'never'}"
    if count is None:
        return f"; {model} does not reach it ({ends})"
    how = "inside the data" if count <= most else "extrapolated"
    return f"; {model} says {count}, {how} ({ends})"


def nodes_of(number: float) -> int | None:
    """Whole nodes, at least one; None above MOST_NODES."""
    return max(math.ceil(number - ROUNDING), 1) if number <= MOST_NODES else None


# Processes per client node at which bandwidth stops growing, and why.


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


@summary.made_once
def lessons(
    ds: xr.Dataset,
    *,
    latency_bound: Bound | None = None,
    bandwidth: float | None = None,
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
    where: Mapping[str, Level] | None = None,
) -> Lessons:
    """The lessons of a campaign, of those runs whose levels are as `where` says.

    `bandwidth` in bytes per second.  `tolerance`: the share that is no difference that matters.
    ValueError if no run has a value, for unknown names and levels, and for a tolerance, alpha
    or bandwidth that makes no sense.
    """
    options = ComparisonOptions(tolerance=tolerance, alpha=alpha)
    if bandwidth is not None and not 0 < bandwidth < np.inf:
        raise ValueError(f"a bandwidth must be positive and finite, not {bandwidth}")
    only = dict(where or {})
    name = latency_bound.metric if latency_bound else "latency_p99"
    step("lessons: medians of every cell")
    of = _study(ds, only)
    whole = summary.summarise(ds)
    targets = [str(name) for name in of.levels("target", of.valued)]
    step(f"lessons: {len(targets)} targets")
    few = len(targets) <= summary.MOST_TARGETS
    factors = _by_factor(ds, only)
    lost = evidence.valueless(ds, factors)
    options = replace(options, where=factors)
    apart = few and not of.cluster.one_machine
    compared, refused = pairs_compared(ds, targets if apart else (), options)
    if of.cluster.one_machine:
        answers = [unanswerable("backend", ONE_MACHINE)]
    elif not few:
        answers = ranked(of, targets)
    elif len(targets) < 2:
        answers = [only_one(targets, lost)]
    else:
        answers, refused = backend_lessons(targets, compared, refused)
    latencies: dict[int, Median] = {}
    if of.metric.name == "bandwidth":
        latencies = {id(cell): cell.cell.metrics[name] for cell in of.cells}
        step("lessons: chunk sizes, processes, storage nodes")
        answers += chunk_lessons(Setting(of, latency_bound, latencies, tolerance, alpha))
        answers += process_lessons(of, ds, only)
        answers += node_lessons(of, ds, bandwidth, only)
    limits = evidence.limits(of, whole, ds, latency_bound)
    if record_of(ds).imported:
        answers = [_without_more(lesson) for lesson in answers]
    return Lessons(
        lessons=tuple(answers),
        limits=(*refused, *limits),
        excluded=tuple(evidence.excluded(of, ds, lost)),
        study=of,
        bound=latency_bound,
        bandwidth=bandwidth,
        tolerance=tolerance,
        alpha=alpha,
        latencies=latencies,
        compared=tuple(compared),
        extension=extension_of(compared) if compared else None,
        chart=lessons_figure,
    )


def _without_more(lesson: Lesson) -> Lesson:
    """Of imported runs: without how many attachments an open answer takes."""
    open_ = lesson.question != "backend" and lesson.certainty is Certainty.UNDECIDED
    return replace(lesson, why="") if open_ else lesson


def _study(ds: xr.Dataset, where: Mapping[str, Level]) -> Study:
    """By bandwidth; by operations per second where nothing moved bytes (metadata)."""
    try:
        return study(ds, "bandwidth", where)
    except ValueError as error:
        try:
            return study(ds, "iops", where)
        except ValueError:
            raise error from None


def _by_factor(ds: xr.Dataset, where: Mapping[str, Level]) -> dict[str, Level]:
    """Names of roles as the factors that a campaign has."""
    factors = rows(ds).factors
    levels = {}
    for name, level in where.items():
        choices = (name, *ROLES.get(name, ()))
        levels[next((n for n in choices if n in factors or n in ("engine", "phase")), name)] = level
    return levels
