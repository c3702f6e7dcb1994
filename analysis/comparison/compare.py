"""Compare two sides (targets, levels of a factor, campaigns) cell by cell.

Rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC'15:
medians with intervals over attachments, ratios with intervals, tests corrected for the number of
cells, a geometric mean of ratios and never a mean of rates.  The statistics are those of
`analysis/stats` (docs/statistics.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison import chart, questions
from fsmatrix.analysis.comparison.cells import Match, matched
from fsmatrix.analysis.comparison.checks import (
    checked,
    common,
    doubts_of,
    named,
    spreads_of,
)
from fsmatrix.analysis.comparison.compared import JudgedPair, judged_cells, varying_names
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.comparison.options import ComparisonOptions, without_blocks
from fsmatrix.analysis.comparison.parts import parts_of
from fsmatrix.analysis.comparison.remarks import remarks
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import Table, table
from fsmatrix.analysis.comparison.whole import (
    differences_of,
    factor_effects,
    units_of,
    whole_mean,
)
from fsmatrix.analysis.data import matrices
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.stats.estimates.intervals import Ratio, ratio
from fsmatrix.analysis.stats.estimates.medians import per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs, runs
from fsmatrix.analysis.stats.testing.pooled import pooled
from fsmatrix.analysis.stats.testing.verdict import verdicts
from fsmatrix.analysis.units import METRICS, OWN, Metric, Unit

DEFAULTS = ComparisonOptions()
MOST_PAIRS = 300  # of sides that nobody named: 25 sides


def compare(
    ds: xr.Dataset,
    a: str,
    b: str,
    metric: str = "bandwidth",
    *,
    by: str | Sequence[str] = "target",
    options: ComparisonOptions = DEFAULTS,
) -> Comparison:
    """Side `a` against side `b` (levels of `by`), as in `comparisons`.

    ValueError also if that takes several comparisons: of several engines, or data and metadata.
    """
    parts = comparisons(ds, metric, by=by, sides=(a, b), options=options)
    if len(parts) > 1:
        raise ValueError(
            f"{a} and {b} have {', '.join(comparison.part for comparison in parts)}: never in one "
            "comparison; choose with where"
        )
    return parts[0]


def comparisons(
    ds: xr.Dataset,
    metric: str = OWN,
    *,
    by: str | Sequence[str] = "target",
    sides: Sequence[str] = (),
    baseline: str = "",
    options: ComparisonOptions = DEFAULTS,
) -> tuple[Comparison, ...]:
    """Every pair of `sides` (levels of `by`; all of them by default), p corrected over all cells.

    A pair has a comparison of its own for each engine, and for data and metadata, so that no mean
    mixes them; by default each phase is compared in its own metric (`units.own_metric`).

    This look has a share of `options.alpha` (`stats/looks`).
    `baseline`: one of the sides; only the pairs of every other one with it, as b.
    `by`: a factor, or several (their combinations are sides: "ice-lake / 2").
    ValueError: an unknown name or level, fewer than two sides, no run that counts, mixed engines
    or cache states, no common cell.
    """
    tolerance, alpha, correction = options.tolerance, options.alpha, options.correction
    if metric != OWN:
        metric_of(ds, metric)
    # of metrics of their own, that of data
    matrices.unit_of(ds, metric or "bandwidth", options.unit)
    of = table(ds, metric, (by,) if isinstance(by, str) else by, options.where, sides)
    names = _chosen(of, sides)
    guards = {"engine": options.across_engines, "cache": options.across_cache}
    free = [name for name, across in guards.items() if across]
    pairs = list(itertools.combinations(names, 2))
    if baseline:
        pairs = [(name, baseline) for name in names if name != baseline]
    elif len(pairs) > MOST_PAIRS and not sides:
        raise ValueError(
            f"{units.factor_title(' and '.join(of.by))} has {len(names)} levels, {len(pairs)} "
            f"pairs: name those to compare (--levels {names[0]},{names[1]})"
        )
    matched_cells = [matched(of, a, b, free, options.ignore) for a, b in pairs]
    groups = [units_of(of, cells.matches) for cells in matched_cells]
    ready = [
        [_ratio(of, match, blocks, 1 - alpha) for match in cells.matches]
        for cells, blocks in zip(matched_cells, groups, strict=True)
    ]
    ratios = [r for many in ready for r, *_ in many]
    record = record_of(ds)
    level = record.level(alpha)
    rising = metric == OWN or metric_of(ds, metric).more_is_better
    differences, together = None, None
    summed: list[questions.Question] = []
    if correction == "max-t" and all(r.design == "paired by block" for r in ratios):
        differences, last = differences_of(of, [cells.matches for cells in matched_cells])
        asked = questions.of_pairs(
            [(cells.matches, parts_of(of, cells.matches)) for cells in matched_cells]
        )
        together, p, means = questions.together(differences, last, asked, record.looks, alpha)
        summed = questions.answers(asked, p, means, tolerance, level, 1 - alpha, rising)
    else:
        correction = without_blocks(correction)
    judged = iter(
        verdicts(ratios, tolerance, level, correction, rising, together, record.next_level(alpha))
    )
    result: list[Comparison] = []
    first = 0  # column of a pair's differences
    for (a, b), cells, blocks, many in zip(pairs, matched_cells, groups, ready, strict=True):
        own_verdicts = [next(judged) for _ in many]
        state = checked(of, cells.matches)
        doubts = doubts_of(of, cells.matches, [(x, y) for _, x, y in many], state, (a, b))
        parts = parts_of(of, cells.matches)
        for number, (part, places) in enumerate(parts.items()):
            matches = tuple(cells.matches[i] for i in places)
            kind = _as_known(metric_of(ds, metric or part.metric), of, matches)
            shown = options.unit if kind.name == (metric or "bandwidth") else None
            varying = varying_names([match.levels for match in matches])
            ratios = [many[i][0] for i in places]
            mean, missing = whole_mean(of, matches, blocks, ratios, 1 - alpha)
            own_matches = replace(cells, matches=matches, alone=() if number else cells.alone)
            columns = first + np.array(places)
            own = None if differences is None else differences[:, columns]
            near = [None] * len(places) if own is None else pooled(own)
            judged_pairs = [
                JudgedPair(*many[i], own_verdicts[i], doubts[i], pool)
                for i, pool in zip(places, near, strict=True)
            ]
            result.append(
                Comparison(
                    chart=chart,
                    a=a,
                    b=b,
                    by=of.by,
                    metric=kind,
                    unit=_unit(ds, of, kind, matches, shown),
                    tolerance=tolerance,
                    alpha=alpha,
                    record=record,
                    correction=correction,
                    family=own_verdicts[0].cells if own_verdicts else 0,
                    part=part.words(list(parts)),
                    varying=tuple(varying),
                    cells=judged_cells(of, own_matches, (a, b), varying, judged_pairs),
                    mean=mean,
                    mean_missing=missing,
                    questions=tuple(
                        question
                        for question in summed
                        if set(question.columns) <= {*columns.tolist()}
                    ),
                    differences=own,
                    effects=factor_effects(of, matches, (a, b), varying),
                    spreads=spreads_of(
                        state.at(places),
                        [named(m, varying, common(matches)) for m in matches],
                        (a, b),
                    ),
                    alone=own_matches.alone,
                    remarks=remarks(of, own_matches, (a, b), free, options.ignore)
                    + (() if sides or result else tuple(f"{text}." for text in _without(of))),
                )
            )
        first += len(many)
    return tuple(result)


def _unit(
    ds: xr.Dataset, of: Table, kind: Metric, matches: Sequence[Match], name: str | None
) -> Unit:
    """The display unit of that name, or one that fits the values."""
    if name is not None:
        return matrices.unit_of(ds, kind.name, name)
    values = np.concatenate([of.values[where] for m in matches for where in (m.a, m.b)])
    return units.fitting(kind.quantity, [float(np.median(values))])


def _as_known(kind: Metric, of: Table, matches: Sequence[Match]) -> Metric:
    """The metric as readers of these cells know it."""
    if kind.name not in METRICS:
        return kind
    return of.metric(kind.name, [where[0] for m in matches for where in (m.a, m.b)])


def metric_of(ds: xr.Dataset, name: str) -> Metric:
    """A known metric, or any variable that is a rate or a time by its unit."""
    matrices.unit_of(ds, name, None)
    if name in METRICS:
        return METRICS[name]
    stored = str(ds[name].attrs.get("units", ""))
    quantity = next((q for q, label in matrices.SI.items() if label == stored), None)
    if quantity is None:
        raise ValueError(f"{name} is no rate and no time, so no ratio of it is a comparison")
    return Metric(name, units.factor_title(name).capitalize(), quantity, quantity != "time")


def _chosen(of: Table, sides: Sequence[str]) -> list[str]:
    """The sides that have values, or those that were named."""
    levels = [str(of.sides.levels[code]) for code in np.unique(of.sides.codes)]
    named = units.factor_title(" and ".join(of.by))
    for side in sides:
        if side not in levels:
            why = (
                f"has no run that counts ({of.valueless[side]})"
                if side in of.valueless
                else "is not there"
            )
            raise ValueError(f"{named} {side!r} {why}: there are {', '.join(sorted(levels))}")
    chosen = list(dict.fromkeys(sides or levels))
    if len(chosen) < 2:
        lost = "; ".join(_without(of))
        if lost and not sides:
            raise ValueError(
                f"only {chosen[0]} has runs that count: nothing to compare it with. {lost}"
            )
        raise ValueError(f"{named} has one level, {chosen[0]}: nothing to compare it with")
    return chosen


def _without(of: Table) -> list[str]:
    """Sides that have no value at all, and why."""
    return [f"{side} has none: {why}" for side, why in of.valueless.items()]


Ready = tuple[Ratio, Runs, Runs]


def _ratio(of: Table, match: Match, unit: Codes, level: float) -> Ready:
    """Paired by attachment where both cells are of one, else by groups of blocks.

    Each attachment has one value, the median of its logs; blocks of two campaigns differ.
    """
    shared = np.intersect1d(of.attachments[match.a], of.attachments[match.b]).size > 0
    labels = of.attachments if shared else unit
    sides = []
    for where in (match.a, match.b):
        owners, first = np.unique(of.attachments[where], return_index=True)
        logs = per_attachment(np.log(of.values[where]), of.attachments[where])
        sides.append(runs(np.exp(logs), owners, labels[where][first]))
    return ratio(sides[0], sides[1], level), sides[0], sides[1]
