"""Acceptance: new campaigns against a baseline, passed or failed by declared conditions.

A campaign passes if no condition is met, no cell of the baseline is lost (unless allowed), and at
least one cell could be told for each condition on speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import xarray as xr

from fsmatrix.analysis.acceptance.conditions import (
    UNDECIDED,
    WHYS,
    Condition,
    Lost,
    Outcome,
    cells_of,
    lost,
    outcomes,
)
from fsmatrix.analysis.comparison import compare
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import (
    CAMPAIGN,
    ComparisonOptions,
    Levels,
    Table,
    table,
    without_blocks,
)
from fsmatrix.analysis.data.factors import varying_names
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.units import METRICS, OWN, brief
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


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
