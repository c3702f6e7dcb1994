"""Storage nodes that reach a bandwidth: the fewest measured, and what a fitted law says beyond.

Levels are never interpolated: between and beyond them only a law of scalability speaks, if one was
fitted, and is called a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

from fsmatrix.analysis.data.study import Study, Values
from fsmatrix.analysis.lessons.words import Lesson, attachments, doubts_of, measured, unanswerable
from fsmatrix.analysis.questions.scalability import scalability as scaling
from fsmatrix.analysis.questions.scalability.laws import FEWEST_LEVELS
from fsmatrix.analysis.questions.scalability.series import NodeSeries
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.words import few
from fsmatrix.analysis.units import METRICS, Level
from fsmatrix.results.units import plural

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
