"""Acceptance: new campaigns against a baseline, passed or failed by declared conditions.

A campaign passes if no condition is met, no cell of the baseline is lost (unless allowed), and at
least one cell could be told for each condition on speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from fsmatrix.analysis.acceptance.conditions import UNDECIDED, Condition, outcomes
from fsmatrix.analysis.acceptance.judged import Acceptance, JudgedCondition
from fsmatrix.analysis.acceptance.lost import WHYS, Lost, cells_of, lost
from fsmatrix.analysis.comparison import compare
from fsmatrix.analysis.comparison.compared import varying_names
from fsmatrix.analysis.comparison.options import ComparisonOptions, without_blocks
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import CAMPAIGN, Levels, Table, table
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.units import OWN


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
