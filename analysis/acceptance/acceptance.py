"""Acceptance: new campaigns against a baseline, passed or failed by declared conditions.

A campaign passes if no condition is met, no cell of the baseline is lost (unless allowed), and at
least one cell could be told for each condition on speed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison import compare
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.counted_rows import (
    CAMPAIGN,
    ComparisonOptions,
    Levels,
    Table,
    table,
    without_blocks,
)
from fsmatrix.analysis.data.columns import Mask, combined
from fsmatrix.analysis.data.factors import varying_names
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.matrices import factor_columns
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Curve, Ratio
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.units import METRICS, OWN, brief, labelled
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


# Conditions of an acceptance test (`slower > 10 %`), and what cells say to them.
#
# `slower > x`: the same work takes more than 1 + x times as long.  So a time is beyond 1 + x of
# the baseline, a rate below 1 / (1 + x) of it.  With R the ratio of medians new / old and L its
# log:
#
#     met       the interval of R lies wholly beyond the limit: the smallest alpha whose interval
#               does, corrected over all cells (as `compare` does), is at most alpha
#     not met   the interval of R lies wholly on this side of the limit, at alpha
#     open      neither: it is undecided
#
# "not met" needs no correction: that no cell is beyond is one statement about all of them, false
# with at most alpha if each is tested at alpha (an intersection-union test: Berger, Technometrics
# 24, 1982).  Without a magnitude the verdict of `compare` decides.


# Cells that one side of a comparison has and another one lost: never run, failed, or invalid.


Why = Literal["missing", "failed", "invalid"]
WHYS: tuple[Why, ...] = ("missing", "failed", "invalid")
NO_PHASE = ("phase", "engine")  # what a run that failed may lack


@dataclass(frozen=True)
class Lost:
    """A cell without a counterpart.

    `missing`: no run of it, or of other work; `failed`: no run of it ended well; `invalid`:
    findings say of all that did that they do not count.
    """

    side: str
    levels: Levels
    named: str
    why: Why
    detail: str

    @property
    def says(self) -> str:
        """It in a sentence."""
        return f"{self.side}: {self.named or 'the only cell'} is {self.why} ({self.detail})"


def cells_of(of: Table, side: str) -> list[Levels]:
    """The levels of every cell of a side that has a value."""
    if side not in of.sides.levels:
        return []
    use = np.flatnonzero(of.sides.codes == of.sides.levels.index(side))
    axes = list(of.factors.values())
    first = combined([axis.codes[use] for axis in axes], use.size)[0]
    return [{axis.name: axis.levels[axis.codes[row]] for axis in axes} for row in use[first]]


def lost(
    of: Table, side: str, cells: Sequence[tuple[Levels, str]], varying: Sequence[str]
) -> list[Lost]:
    """Why `side` has no value of these cells; beside each what is known already, or ""."""
    data = rows(of.ds)
    axes = factor_columns(of.ds, data.factors)
    keys = [axes[name] for name in of.by]
    wanted = of.side_levels.get(side)
    rows_of_campaign = of.current.copy()
    for axis, level in zip(keys, wanted or (), strict=bool(wanted)):
        rows_of_campaign &= np.array([own == level for own in axis.levels])[axis.codes]
    every_lost = []
    for levels, reason in cells:
        here = rows_of_campaign.copy()
        for name, level in levels.items():
            if name in axes and name not in NO_PHASE and level == level and level != "":
                here &= np.array([own == level for own in axes[name].levels])[axes[name].codes]
        why, detail = _why(data, here, str(levels.get("phase", "")))
        named = ", ".join(labelled(n, levels[n]) for n in varying if levels.get(n, "") != "")
        every_lost.append(
            Lost(side, levels, named, why, reason if why == "missing" and reason else detail)
        )
    return every_lost


def _why(data: Rows, here: Mask, phase: str) -> tuple[Why, str]:
    if not here.any():
        return "missing", "no run of it"
    ended = here & ~data.failed
    if not ended.any():
        errors = [text for text in data["error"][here].tolist() if text]
        first = f": {errors[0]}" if errors else ""
        return "failed", f"{_runs(data, here)} runs, none succeeded{first}"
    timed = ended & (data["phase"] == phase) if phase else ended
    if not timed.any():
        return "missing", f"{_runs(data, ended)} runs, none with the phase {phase}"
    if (timed & data.invalid == timed).all():
        return "invalid", f"{_runs(data, timed)} runs, all with a finding that makes them invalid"
    return "missing", "no comparable value"


def _runs(data: Rows, here: Mask) -> int:
    return len(set(data["run_id"][here].tolist()))


State = Literal["met", "not met", "open"]
CHANGES = ("faster", "slower")
UNDECIDED = Certainty.UNDECIDED.value
WORDS = (*CHANGES, UNDECIDED, *WHYS)
GRAMMAR = "slower, faster (or with a magnitude: slower > 10 %), " + ", ".join((UNDECIDED, *WHYS))
MOST = 1000.0  # per cent


@dataclass(frozen=True)
class Condition:
    """A word of WORDS; with `slower` and `faster` perhaps a magnitude, as a share."""

    word: str
    beyond: float | None = None

    def __str__(self) -> str:
        return self.word if self.beyond is None else f"{self.word} > {100 * self.beyond:.4g} %"

    @property
    def changes(self) -> bool:
        """Whether it is about a change of speed."""
        return self.word in CHANGES

    def limit(self, more_is_better: bool) -> float:
        """The log of the ratio new / old beyond which it is met, away from 0."""
        rises = (self.word == "faster") == more_is_better
        return math.log1p(self.beyond or 0.0) * (1 if rises else -1)


@dataclass(frozen=True)
class Outcome:
    """What one cell says to one condition; p is corrected, NaN without a magnitude."""

    condition: Condition
    state: State
    p: float

    @property
    def certainty(self) -> Certainty:
        """How sure the state is."""
        return Certainty.UNDECIDED if self.state == "open" else Certainty.PROVEN


def parse(text: str) -> Condition:
    """`slower > 10 %`, `slower`, `missing`...; ValueError for anything else."""
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:>\s*([0-9]+(?:\.[0-9]+)?)\s*%)?\s*", text.lower())
    word, share = match.groups() if match else ("", None)
    if word not in WORDS or (share is not None and word not in CHANGES):
        raise ValueError(f"no condition {text!r}: there are {GRAMMAR}")
    if share is None:
        return Condition(word)
    if not 0 < float(share) < MOST:
        raise ValueError(f"{text!r}: the magnitude must lie between 0 and {MOST:g} %")
    return Condition(word, float(share) / 100)


def outcomes(
    condition: Condition,
    ratios: Sequence[Ratio],
    kinds: Sequence[str],
    more_is_better: bool,
    alpha: float,
    correction: Correction,
) -> list[Outcome]:
    """What each cell says to a condition of `CHANGES`; `kinds` are the cells' verdicts."""
    if condition.beyond is None:
        return [Outcome(condition, _by_verdict(condition.word, kind), math.nan) for kind in kinds]
    limit = condition.limit(more_is_better)
    p = tests.correct(np.array([p_beyond(r.curve, limit) for r in ratios]), correction)
    results = []
    for ratio, own in zip(ratios, p.tolist(), strict=True):
        state: State = "open"
        if ratio.kind == "interval" and own <= alpha:
            state = "met"
        elif ratio.kind == "interval" and p_beyond(ratio.curve, limit, inner=True) <= alpha:
            state = "not met"
        results.append(Outcome(condition, state, own))
    return results


def _by_verdict(word: str, kind: str) -> State:
    if kind == word:
        return "met"
    return "not met" if kind in (*CHANGES, "no difference") else "open"


def p_beyond(curve: Curve, limit: float, *, inner: bool = False) -> float:
    """The smallest alpha whose interval of the log lies wholly beyond `limit`, away from 0.

    `inner`: wholly on the side of 0.  1 if none does, NaN without intervals.  For a limit that is
    not 0.
    """
    if not curve.alphas.size:
        return math.nan
    above = (limit > 0) != inner
    outside = np.flatnonzero(curve.low > limit if above else curve.high < limit)
    return float(curve.alphas[outside[0]]) if outside.size else 1.0


# The result of an acceptance test: cells and conditions, why it failed, tables and figures.


SHOWN = 12  # cells that are named in a sentence of their own
LIMIT = "#CC79A7"
IN_WORDS = {"open": UNDECIDED}  # of states that tables show


@dataclass(frozen=True)
class JudgedCondition:
    """One compared cell and what it says to each condition on speed."""

    side: str
    cell: Compared
    outcomes: tuple[Outcome, ...]

    @property
    def undecided(self) -> bool:
        """Whether a condition is open; without conditions, whether the verdict is."""
        if self.outcomes:
            return not all(outcome.certainty.settled for outcome in self.outcomes)
        return not self.cell.certainty.settled


@dataclass(frozen=True)
class Acceptance:
    """New campaigns against the baseline."""

    baseline: str
    sides: tuple[str, ...]
    metric: str
    alpha: float
    conditions: tuple[Condition, ...]
    allowed: tuple[str, ...]  # words that do not fail
    cells: tuple[JudgedCondition, ...]
    lost: tuple[Lost, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def failures(self) -> list[str]:
        """Why it is not passed: one sentence for each cell and condition; empty if it is."""
        asked = {condition.word for condition in self.conditions}
        sentences = [
            f"{_subject(entry)} is {outcome.condition}: {_span(entry)}"
            for entry in self.cells
            for outcome in entry.outcomes
            if outcome.state == "met"
        ]
        sentences += [
            lost_cell.says for lost_cell in self.lost if lost_cell.why not in self.allowed
        ]
        if UNDECIDED in asked:
            sentences += [
                f"{_subject(entry)} is undecided: {entry.cell.says}"
                for entry in self.cells
                if entry.undecided
            ]
        elif UNDECIDED not in self.allowed:
            sentences += self._nothing_tested
        return sentences

    @property
    def _nothing_tested(self) -> list[str]:
        """Conditions on speed to which no cell of a side has an answer: nothing was tested."""
        sentences = []
        for number, condition in enumerate(c for c in self.conditions if c.changes):
            for side in self.sides:
                cells = [cell for cell in self.cells if cell.side == side]
                states = [cell.outcomes[number].state for cell in cells]
                if set(states) <= {"open"}:
                    sentences.append(
                        f"{side}: whether it is `{condition}` could not be decided in any of "
                        f"{len(states)} cells, so nothing was tested ({_fewest(cells)})"
                    )
        return sentences

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the new campaigns."""
        return not self.failures

    @property
    def says(self) -> list[str]:
        """Passed or failed, then why, then what was not told."""
        failures, count = self.failures, len(self.cells)
        asked = ", ".join(map(str, self.conditions))
        new = ", ".join(self.sides)
        head = f"{new} against the baseline {self.baseline}, {self._title}, fail if {asked}: "
        if failures:
            head += f"failed, {plural(len(failures), 'reason')}."
        else:
            head += f"passed, {plural(count, 'cell')}."
        sentences = [head, *(f"{line}." for line in failures[:SHOWN])]
        if len(failures) > SHOWN:
            sentences.append(f"And {len(failures) - SHOWN} more, see the table.")
        open_cells = [entry for entry in self.cells if entry.undecided]
        if open_cells and count:
            names = "; ".join(entry.cell.named or "the only cell" for entry in open_cells[:3])
            more = "; and others" if len(open_cells) > 3 else ""
            sentences.append(f"Not sure in {len(open_cells)} of {count} cells: {names}{more}.")
        allowed = [lost_cell for lost_cell in self.lost if lost_cell.why in self.allowed]
        sentences += [f"Allowed: {lost_cell.says}." for lost_cell in allowed[:SHOWN]]
        return sentences

    @property
    def _title(self) -> str:
        title = METRICS[self.metric].title.lower() if self.metric in METRICS else self.metric
        return title or "each phase in its own metric"

    def table(self) -> pd.DataFrame:
        """One row per cell of the baseline and new campaign; ratios new / old."""
        import pandas as pd

        rows: list[dict[str, Json]] = [
            {
                "campaign": entry.side,
                "cell": entry.cell.named,
                "ratio": entry.cell.ratio.ratio,
                "low": entry.cell.ratio.low,
                "high": entry.cell.ratio.high,
                **{str(o.condition): IN_WORDS.get(o.state, o.state) for o in entry.outcomes},
                **{
                    f"p, {outcome.condition}": outcome.p
                    for outcome in entry.outcomes
                    if outcome.condition.beyond is not None
                },
                "verdict": entry.cell.kind,
            }
            for entry in self.cells
        ]
        rows += [
            {
                "campaign": lost_cell.side,
                "cell": lost_cell.named,
                "verdict": f"{lost_cell.why}: {lost_cell.detail}",
            }
            for lost_cell in self.lost
        ]
        return pd.DataFrame(rows)

    @property
    def pages(self) -> int:
        """Number of figures: those of the comparisons."""
        return sum(comparison.pages for comparison in self.comparisons)

    def figure(self, page: int = 0) -> Figure:
        """Ratios new / old with intervals and limits; ValueError if nothing was compared."""
        for comparison in self.comparisons:
            if page < comparison.pages:
                return self._limited(comparison.figure(page), comparison)
            page -= comparison.pages
        raise ValueError("no cell could be compared: there is nothing to draw")

    def _limited(self, figure: Figure, comparison: Comparison) -> Figure:
        """The conditions' limits as lines."""
        ax = figure.axes[0]
        low, high = ax.get_xlim()
        for condition in self.conditions:
            if condition.beyond is not None:
                limit = math.exp(condition.limit(comparison.metric.more_is_better))
                ax.axvline(limit, color=LIMIT, linewidth=1.2, linestyle="--", label=str(condition))
                low, high = min(low, limit / 1.01), max(high, limit * 1.01)
        ax.set_xlim(low, high)
        figure.legends.clear()
        drawing.legend(figure, [[ax]], "verdict; limits")
        return figure

    def to_dict(self) -> dict[str, Json]:
        """Everything, SI units."""
        data: dict[str, Json] = plain(
            {
                "passed": self.passed,
                "baseline": self.baseline,
                "campaigns": self.sides,
                "metric": self.metric,
                "alpha": self.alpha,
                "conditions": [str(condition) for condition in self.conditions],
                "allowed": self.allowed,
                "failures": self.failures,
                "says": self.says,
                "cells": [
                    {
                        "campaign": cell.side,
                        "levels": cell.cell.levels,
                        "named": cell.cell.named,
                        "ratio": cell.cell.ratio.to_dict(),
                        "verdict": cell.cell.kind,
                        "undecided": cell.undecided,
                        "outcomes": [
                            {
                                "condition": str(o.condition),
                                "state": o.state,
                                "certainty": o.certainty,
                                "p": o.p,
                            }
                            for o in cell.outcomes
                        ],
                    }
                    for cell in self.cells
                ],
                "lost": self.lost,
            }
        )
        return data | {"comparisons": [comparison.to_dict() for comparison in self.comparisons]}


def _subject(judged: JudgedCondition) -> str:
    return f"{judged.side}: {judged.cell.named or 'the only cell'}"


def _span(judged: JudgedCondition) -> str:
    ratio = judged.cell.ratio
    return (
        f"{brief(ratio.ratio)} times the baseline ({100 * ratio.level:.3g} % sure: "
        f"{brief(ratio.low)} to {brief(ratio.high)})"
    )


def _fewest(cells: Sequence[JudgedCondition]) -> str:
    """How many attachments there are, and how many can tell at all."""
    have = min((min(judged.cell.ratio.units) for judged in cells), default=0)
    needed = f"{SMALLEST} of each campaign are the fewest that can tell"
    return (
        f"{plural(have, 'attachment')}; {needed}"
        if have < SMALLEST
        else "more attachments may tell"
    )


def acceptance(
    ds: xr.Dataset,
    baseline: str,
    metric: str = OWN,
    *,
    conditions: Sequence[Condition],
    allow: Sequence[str] = (),
    only: Sequence[str] = (),
    options: ComparisonOptions = compare.DEFAULTS,
) -> Acceptance:
    """Every other campaign of `ds` (`rows.together`), or `only` these, against `baseline`.

    Campaigns share no blocks, so Holm stands for max-t.  ValueError as `compare.comparisons`, for
    words that cannot be allowed, and for a baseline without a run that counts.
    """
    _check(conditions, allow)
    options = replace(options, correction=without_blocks(options.correction))
    of = table(ds, metric, (CAMPAIGN,), options.where)
    with_values = {str(of.sides.levels[code]) for code in set(of.sides.codes.tolist())}
    if baseline not in with_values:
        raise ValueError(f"the baseline {baseline!r} has no run that counts: nothing to test by")
    campaigns = [name for name in dict.fromkeys(ds[CAMPAIGN].values.tolist()) if name != baseline]
    sides = [name for name in campaigns if not only or name in only]
    if not sides:
        raise ValueError("there is no campaign to compare with the baseline")
    valued = [name for name in sides if name in with_values]
    compared: tuple[Comparison, ...] = ()
    if valued:
        compared = compare.comparisons(
            ds,
            metric,
            by=CAMPAIGN,
            sides=[baseline, *valued],
            baseline=baseline,
            options=options,
        )
    return Acceptance(
        baseline=baseline,
        sides=tuple(sides),
        metric=metric,
        alpha=options.alpha,
        conditions=tuple(conditions),
        allowed=tuple(allow),
        cells=tuple(_judged(compared, conditions, options.alpha, options.correction)),
        lost=tuple(_lost(of, baseline, sides, compared)),
        comparisons=compared,
    )


def _check(conditions: Sequence[Condition], allow: Sequence[str]) -> None:
    words = (UNDECIDED, *WHYS)
    for word in allow:
        if word not in words:
            raise ValueError(f"{word!r} cannot be allowed: there are {', '.join(words)}")
        if word in {condition.word for condition in conditions}:
            raise ValueError(f"{word!r} is both a condition to fail and allowed")
    if not conditions:
        raise ValueError("an acceptance test needs a condition, such as `slower > 10 %`")


def _judged(
    compared: Sequence[Comparison],
    conditions: Sequence[Condition],
    alpha: float,
    correction: Correction,
) -> list[JudgedCondition]:
    """Every cell; a condition is corrected over the cells of all comparisons."""
    cells = [(comparison, cell) for comparison in compared for cell in comparison.cells]
    if not cells:
        return []
    better = cells[0][0].metric.more_is_better
    ratios, kinds = [cell.ratio for _, cell in cells], [cell.kind for _, cell in cells]
    each = [
        outcomes(condition, ratios, kinds, better, alpha, correction)
        for condition in conditions
        if condition.changes
    ]
    return [
        JudgedCondition(comparison.a, cell, tuple(outcomes[i] for outcomes in each))
        for i, (comparison, cell) in enumerate(cells)
    ]


def _lost(
    of: Table, baseline: str, sides: Sequence[str], compared: Sequence[Comparison]
) -> list[Lost]:
    every = cells_of(of, baseline)
    varying = varying_names(every)
    every_lost = []
    for side in sides:
        own = next((comparison for comparison in compared if comparison.a == side), None)
        cells: list[tuple[Levels, str]] = [(levels, "") for levels in every]
        if own is not None:
            cells = [
                (levels, why if why.startswith("other work") else "")
                for name, levels, why in own.alone
                if name == baseline
            ]
        every_lost += lost(of, side, cells, varying)
    return every_lost
