"""The best chunk size: under a bound of latency, or where bandwidth has stopped growing.

Under a bound: of the chunk sizes whose latency has the upper end of its interval below it, those
of the largest bandwidth that cannot be told apart.  Without: the smallest chunk size that no
larger one is shown, or may be shown, to exceed by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.data.metric_cells import Study, ratio_of
from fsmatrix.analysis.lessons.lessons_words import (
    Bound,
    Lesson,
    attachments,
    doubts_of,
    measured,
    names,
    share_of,
    times,
    too_few,
    unanswerable,
)
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.stats.words import few
from fsmatrix.analysis.units import METRICS


@dataclass(frozen=True)
class Setting:
    """What a search for a chunk size goes by."""

    of: Study
    bound: Bound | None
    latencies: dict[int, Median]  # by id of a cell of the study
    tolerance: float
    alpha: float


def chunk_lessons(s: Setting) -> list[Lesson]:
    """One lesson for each series of chunk sizes."""
    if "chunk" not in s.of.varying:
        labels = [s.of.label("chunk", level) for level in s.of.levels("chunk", s.of.valued)]
        why = f"one chunk size ({labels[0]})" if labels else "no chunk size was recorded"
        return [unanswerable("chunk", f"{why}: nothing to choose from")]
    return [_lesson(s, key, cells) for key, cells in s.of.series("chunk").items()]


def _lesson(s: Setting, key: Key, cells: Sequence[Values]) -> Lesson:
    where = s.of.describe(key)
    if len(cells) < 2:
        only = _size(s, cells[0])
        return unanswerable("chunk", f"only {only} has a value", where, key, cells=(only,))
    answer = _growth(s, cells) if s.bound is None else _bounded(s, cells, s.bound)
    chosen = answer.chosen
    return Lesson(
        "chunk",
        where,
        key,
        answer.short,
        answer.answer,
        answer.certainty,
        answer.why,
        tuple(cell.number("chunk") for cell in chosen),
        tuple(_size(s, cell) for cell in cells),
        doubts_of(chosen or cells),
        chosen[0].median if len(chosen) == 1 else None,
        answer.partly,
    )


@dataclass(frozen=True)
class _Answer:
    chosen: tuple[Values, ...]
    short: str
    answer: str
    certainty: Certainty
    why: str = ""
    partly: bool = False


def _bounded(s: Setting, cells: Sequence[Values], bound: Bound) -> _Answer:
    latency = [s.latencies.get(id(cell)) for cell in cells]
    measured = [(c, m) for c, m in zip(cells, latency, strict=True) if m and m.kind != "none"]
    if not measured:
        return _Answer(
            (),
            "cannot be said",
            f"no {bound.name} was measured (a percentile q needs 10/(1-q) operations in a run)",
            Certainty.INVALID,
        )
    met = [c for c, m in measured if m.decides and m.high < bound.seconds]
    open_ = [
        c
        for c, m in measured
        if not (m.decides and (m.high < bound.seconds or m.low >= bound.seconds))
    ]
    blank = [c for c in cells if c not in [c for c, _ in measured]]
    if not met:
        return _none_met(s, measured, open_, blank, bound)
    best = max(met, key=lambda c: c.median.median)
    ties, unsure = _ties(s, best, met)
    rivals = [c for c in (*open_, *blank) if c.median.median > best.median.median]
    losers = [
        c
        for c, _ in measured
        if c not in met and c not in open_ and c.median.median > best.median.median
    ]
    why = [unsure] if unsure else []
    for cell in rivals:
        why.append(f"{_size(s, cell)} is faster and may keep it too ({_latency(s, cell, bound)})")
    if losers:
        cell = max(losers, key=lambda c: c.median.median)
        why.append(
            f"{_size(s, cell)} gives {times(ratio_of(cell, best))} times that and misses "
            f"the bound ({_latency(s, cell, bound)})"
        )
    chosen = (best, *ties)
    short = " or ".join(_size(s, c) for c in sorted(chosen, key=lambda c: c.number("chunk")))
    answer = (
        f"{short}: {_bandwidth(best)}, {_latency(s, best, bound)}"
        f"{' at ' + _size(s, best) if ties else ''}, {attachments(chosen)}"
    )
    partly = bool(unsure or rivals)
    return _Answer(chosen, short, answer, Certainty.PROVEN, "; ".join(why), partly)


def _none_met(
    s: Setting,
    measured: Sequence[tuple[Values, Median]],
    open_: Sequence[Values],
    blank: Sequence[Values],
    bound: Bound,
) -> _Answer:
    lowest = min(measured, key=lambda pair: pair[1].median)[0]
    sentence = f"{_size(s, lowest)} has the lowest, {_latency(s, lowest, bound)}"
    if not open_ and not blank:
        return _Answer(
            (),
            "none",
            f"no chunk size keeps {bound.says}: {sentence}, {attachments(c for c, _ in measured)}",
            Certainty.PROVEN,
        )
    weak = [m for _, m in measured if not m.decides]
    why = few(min(c.median.independent for c in open_)) if weak and open_ else ""
    if blank:
        lacking = f"no {bound.name} of {names([_size(s, c) for c in blank])}"
        why = f"{why}; {lacking}" if why else lacking
    answer = f"no chunk size is shown to keep {bound.says}: {sentence}"
    return _Answer((), Certainty.UNDECIDED.value, answer, Certainty.UNDECIDED, why)


def _ties(s: Setting, best: Values, met: Sequence[Values]) -> tuple[list[Values], str]:
    """Cells that cannot be told from the best, and why that is open; "" if it is a true tie."""
    share = share_of(s.alpha, len(met) - 1)
    ties, open_ = [], []
    for cell in met:
        if cell is best:
            continue
        r = ratio_of(cell, best, 1 - share)
        if r.decides and r.high < 1:
            continue
        ties.append(cell)
        if not (r.decides and r.low >= 1 / (1 + s.tolerance)):
            open_.append(
                f"{_size(s, cell)} over {_size(s, best)}: {times(r)}, "
                f"{too_few(r, s.tolerance, share)}"
            )
    return ties, f"which is faster is undecided: {names(open_)}" if open_ else ""


def _growth(s: Setting, cells: Sequence[Values]) -> _Answer:
    share = share_of(s.alpha, len(cells) - 1)
    states = [_enough(s, cell, cells[i + 1 :], share) for i, cell in enumerate(cells)]
    first = next(i for i, (state, _) in enumerate(states) if state == "enough")
    cell, last = cells[first], cells[-1]
    number = f"{_bandwidth(cell)}, {attachments(cells)}"
    earlier = [i for i in range(first) if states[i][0] == "open"]
    if first == len(cells) - 1:
        return _at_the_end(s, cells, states, number, share)
    gain = ratio_of(max(cells[first + 1 :], key=lambda c: c.median.median), cell, 1 - share)
    answer = f"{_size(s, cell)}: {number}; the best larger one gives {times(gain)} times that"
    if not earlier:
        return _Answer(
            (cell,),
            _size(s, cell),
            answer,
            Certainty.PROVEN,
            f"none up to {_size(s, last)} gives {s.tolerance:.1%} more",
        )
    begin = cells[earlier[0]]
    _, r = states[earlier[-1]]
    return _Answer(
        (cell,),
        f"{_size(s, cell)} at the latest",
        answer,
        Certainty.PROVEN,
        f"{_size(s, begin)} may be enough: {too_few(r, s.tolerance, share) if r else ''}",
        partly=True,
    )


def _at_the_end(
    s: Setting,
    cells: Sequence[Values],
    states: Sequence[tuple[str, Ratio | None]],
    number: str,
    share: float,
) -> _Answer:
    """No chunk size but the largest is shown to be enough."""
    last, previous = cells[-1], cells[-2]
    grown = ratio_of(last, previous, 1 - share)
    sentence = f"{_size(s, last)} gives {times(grown)} times {_size(s, previous)}"
    open_ = [(cell, r) for cell, (_, r) in zip(cells, states, strict=True) if r is not None]
    if not open_:
        return _Answer(
            (last,),
            f"{_size(s, last)} or more",
            f"{_size(s, last)}, the largest measured: {number}",
            Certainty.PROVEN,
            f"still grows there: {sentence}; larger ones were not measured",
        )
    cell, r = open_[-1]
    why = f"{_size(s, cell)} may be enough: {too_few(r, s.tolerance, share)}"
    return _Answer(
        (),
        Certainty.UNDECIDED.value,
        f"where growth ends is undecided: {sentence}, {attachments(cells)}",
        Certainty.UNDECIDED,
        why,
    )


def _enough(
    s: Setting, cell: Values, larger: Sequence[Values], share: float
) -> tuple[str, Ratio | None]:
    """`enough`: every larger chunk is shown to give at most the tolerance more; `not enough`: one
    is shown to give more; `open`, with the ratio that is furthest from telling."""
    ratios = [ratio_of(other, cell, 1 - share) for other in larger]
    if any(r.decides and r.low > 1 + s.tolerance for r in ratios):
        return "not enough", None
    doubtful = [r for r in ratios if not (r.decides and r.high <= 1 + s.tolerance)]
    if not doubtful:
        return "enough", None
    return "open", max(doubtful, key=lambda r: r.ratio)


def _bandwidth(cell: Values) -> str:
    return measured(cell.median, METRICS["bandwidth"])


def _latency(s: Setting, cell: Values, bound: Bound) -> str:
    median = s.latencies.get(id(cell))
    if median is None or median.kind == "none":
        return f"no {bound.name}"
    return f"{bound.name} {measured(median, METRICS[bound.metric])}"


def _size(s: Setting, cell: Values) -> str:
    return s.of.label("chunk", cell.level("chunk"))
