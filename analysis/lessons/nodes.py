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
from fsmatrix.analysis.lessons.words import (
    UNDECIDED,
    Lesson,
    Sure,
    attachments,
    doubts_of,
    few,
    measured,
    plural,
)
from fsmatrix.analysis.questions.scalability import scalability as scaling
from fsmatrix.analysis.questions.scalability.laws import FEWEST_LEVELS
from fsmatrix.analysis.questions.scalability.series import NodeSeries
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.units import METRICS, Level

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
    sure: Sure
    why: str
    place: int = -1  # of the step that was chosen


def node_lessons(
    of: Study, ds: xr.Dataset, bandwidth: float | None, where: Mapping[str, Level]
) -> list[Lesson]:
    """One lesson for each series over storage nodes; without a bandwidth how much it grows."""
    try:
        found = scaling.scalability(ds, "bandwidth", where=where, known=of)
    except ValueError as error:
        return [Lesson("nodes", "", (), "cannot be said", str(error), "cannot be said")]
    if bandwidth is None:
        grown = [said for said in found.says if said.startswith("Bandwidth from")]
        said = "; ".join(grown).rstrip(".") or "one number of storage nodes only"
        return [Lesson("nodes", "", (), "no bandwidth asked for", said,
                       "not asked" if grown else "cannot be said")]  # fmt: skip
    marked = found.study.cluster.emulated.get(NODES, "")
    cells = found.study.series(NODES)
    return [
        _lesson(found, _Series(
            line, tuple(cells[line.key]),
            tuple(plural(int(step.nodes), "storage node") + marked for step in line.steps),
            bandwidth,
        ))
        for line in found.series
    ]  # fmt: skip


def _lesson(found: scaling.Scalability, one: _Series) -> Lesson:
    steps = range(len(one.cells))
    if any(one.reaches(i) for i in steps):
        answer = _reached(one, next(i for i in steps if one.reaches(i)))
    elif all(one.misses(i) for i in steps):
        answer = _missed(one)
    else:
        answer = _open(one, next(i for i in steps if not one.misses(i)))
    chosen = answer.place >= 0
    return Lesson(
        "nodes", found.study.describe(one.line.key), one.line.key, answer.short, answer.answer,
        answer.sure, answer.why,
        (int(one.line.steps[answer.place].nodes),) if chosen else (), one.shown,
        doubts_of([one.cells[answer.place]] if chosen else one.cells),
        one.cells[answer.place].median if chosen else None,
    )  # fmt: skip


def _reached(one: _Series, place: int) -> _Answer:
    """The step at `place` is the first whose interval reaches the bandwidth."""
    shown, number = one.shown[place], one.number(place)
    answer = f"{shown}: {number}, {attachments([one.cells[place]])}"
    open_ = [i for i in range(place) if not one.misses(i)]
    sure: Sure = "in part" if open_ else "decided"
    short = f"{shown} at the latest" if open_ else shown
    if place == 0:
        short, why = f"{shown} or fewer", "fewer were not measured"
    elif open_:
        why = f"{one.shown[open_[0]]} may do: {one.number(open_[0])}"
    else:
        why = f"{one.shown[place - 1]} do not: {one.number(place - 1)}"
        if one.line.steps[place].nodes - one.line.steps[place - 1].nodes > 1:
            why += f", and none between were measured{_model(one)}"
    later = [i for i in range(place + 1, len(one.cells)) if not one.reaches(i)]
    if later:
        sure = "in part"
        why += f"; yet {one.shown[later[0]]} are not proven to: {one.number(later[0])}"
    return _Answer(short, answer, sure, why, place)


def _missed(one: _Series) -> _Answer:
    best = max(range(len(one.cells)), key=lambda i: one.cells[i].median.median)
    answer = f"not reached; most at {one.shown[best]}: {one.number(best)}, " \
             f"{attachments(one.cells)}"  # fmt: skip
    beyond = _model(one)
    if not beyond:
        lacking = len(one.cells) < FEWEST_LEVELS
        why = f"that takes {FEWEST_LEVELS} numbers of nodes" if lacking else one.line.why_no_laws
        beyond = f", and no law was fitted to extrapolate ({why})"
    return _Answer(f"not reached at {one.shown[-1]}", answer, "decided",
                  f"more were not measured{beyond}")  # fmt: skip


def _open(one: _Series, near: int) -> _Answer:
    answer = f"no number of nodes is proven to reach it; {one.shown[near]}: {one.number(near)}, " \
             f"{attachments(one.cells)}"  # fmt: skip
    have = one.cells[near].median.independent
    why = few(have) if have < SMALLEST else "more attachments narrow it"
    return _Answer(UNDECIDED, answer, "too few", why)


def _model(one: _Series) -> str:
    """What the better law says, marked as a model; "" without a law."""
    laws, most = one.line.laws, one.line.steps[-1].nodes
    if laws is None:
        return ""
    if laws.superlinear:
        return "; growth is more than proportional: no law fits"
    found = laws.nodes_for(one.wanted)
    count, low, high = (nodes_of(n) for n in (found.value, found.low, found.high))
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
