"""Compare two sides (targets, levels of a factor, campaigns) cell by cell.

Rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC'15:
medians with intervals over attachments, ratios with intervals, tests corrected for the number of
cells, a geometric mean of ratios and never a mean of rates.  The statistics are those of
`analysis/stats` (docs/statistics.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison import chart, questions
from fsmatrix.analysis.comparison.cells import Match, Matched, matched
from fsmatrix.analysis.comparison.checks import (
    checked,
    common,
    differing,
    doubts_of,
    named,
    shared,
    spreads_of,
)
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.comparison.parts import parts_of
from fsmatrix.analysis.comparison.remarks import remarks
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import Levels, Table, table
from fsmatrix.analysis.comparison.whole import (
    differences_of,
    factor_effects,
    units_of,
    whole_mean,
)
from fsmatrix.analysis.data import matrices
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.stats.estimates.intervals import Ratio, ratio
from fsmatrix.analysis.stats.estimates.medians import of_runs, per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs, runs
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.pooled import Pooled, pooled
from fsmatrix.analysis.stats.testing.tests import ALPHA, Correction
from fsmatrix.analysis.stats.testing.verdict import Verdict, verdicts
from fsmatrix.analysis.units import METRICS, OWN, Level, Metric, Unit

TOLERANCE = 0.05
MOST_PAIRS = 300  # of sides that nobody named: 25 sides


def compare(
    ds: xr.Dataset, a: str, b: str, metric: str = "bandwidth", **options: Any
) -> Comparison:
    """Side `a` against side `b` (levels of `by`); options as in `comparisons`.

    ValueError also if that takes several comparisons: of several engines, or data and metadata.
    """
    found = comparisons(ds, metric, sides=(a, b), **options)
    if len(found) > 1:
        raise ValueError(f"{a} and {b} have {', '.join(one.part for one in found)}: never in one "
                         "comparison; choose with where")  # fmt: skip
    return found[0]


def comparisons(
    ds: xr.Dataset,
    metric: str = OWN,
    *,
    by: str | Sequence[str] = "target",
    sides: Sequence[str] = (),
    baseline: str = "",
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
    correction: Correction = "max-t",
    unit: str | None = None,
    where: Levels | None = None,
    across_engines: bool = False,
    across_cache: bool = False,
    ignore: Sequence[str] = (),
) -> tuple[Comparison, ...]:
    """Every pair of `sides` (levels of `by`; all of them by default), p corrected over all cells.

    A pair has a comparison of its own for each engine, and for data and metadata, so that no mean
    mixes them; by default each phase is compared in its own metric (`units.own_metric`).

    `alpha`: of a false claim in all looks at the campaign; this one has a share (`stats/looks`).
    `correction`: max-t where both sides of every cell share blocks; otherwise Holm takes its place.
    `baseline`: one of the sides; only the pairs of every other one with it, as b.
    `by`: a factor, or several (their combinations are sides: "ice-lake / 2").  `tolerance`: the
    share that is no difference that matters.  `ignore`: factors in which the cells of a pair may
    differ; `work_id`: in options that are no factor.  ValueError: an unknown name or level,
    fewer than two sides, no run that counts, mixed engines or cache states, no common cell.
    """
    if not 0 < tolerance < math.inf:
        raise ValueError(f"the tolerance must be positive, such as 0.05, not {tolerance}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, such as 0.05, not {alpha}")
    if metric != OWN:
        metric_of(ds, metric)
    matrices.unit_of(ds, metric or "bandwidth", unit)  # an own metric's unit is that of data
    of = table(ds, metric, (by,) if isinstance(by, str) else by, where, sides)
    names = _chosen(of, sides)
    free = [n for n, may in (("engine", across_engines), ("cache", across_cache)) if may]
    pairs = list(itertools.combinations(names, 2))
    if baseline:
        pairs = [(name, baseline) for name in names if name != baseline]
    elif len(pairs) > MOST_PAIRS and not sides:
        raise ValueError(
            f"{units.factor_title(' and '.join(of.by))} has {len(names)} levels, {len(pairs)} "
            f"pairs: name those to compare (--levels {names[0]},{names[1]})"
        )
    found = [matched(of, a, b, free, ignore) for a, b in pairs]
    groups = [units_of(of, one.matches) for one in found]
    ready = [
        [_ratio(of, match, unit, 1 - alpha) for match in one.matches]
        for one, unit in zip(found, groups, strict=True)
    ]
    ratios = [r for many in ready for r, *_ in many]
    record = record_of(ds)
    level = record.level(alpha)
    rising = metric == OWN or metric_of(ds, metric).more_is_better
    differences, together = None, None
    summed: list[questions.Question] = []
    if correction == "max-t" and all(r.design == "paired by block" for r in ratios):
        differences, last = differences_of(of, [one.matches for one in found])
        asked = questions.of_pairs([(one.matches, parts_of(of, one.matches)) for one in found])
        together, p, means = questions.together(differences, last, asked, record.looks, alpha)
        summed = questions.answers(asked, p, means, tolerance, level, 1 - alpha, rising)
    elif correction == "max-t":
        correction = "holm"
    judged = iter(verdicts(
        ratios, tolerance, level, correction, rising, differences,
        together, record.next_level(alpha),
    ))  # fmt: skip
    result: list[Comparison] = []
    first = 0  # column of a pair's differences
    for (a, b), one, blocks, many in zip(pairs, found, groups, ready, strict=True):
        sentences = [next(judged) for _ in many]
        state = checked(of, one.matches)
        doubts = doubts_of(of, one.matches, [(x, y) for _, x, y in many], state, (a, b))
        parts = parts_of(of, one.matches)
        for number, (part, places) in enumerate(parts.items()):
            matches = tuple(one.matches[i] for i in places)
            kind = metric_of(ds, metric or part.metric)
            shown = unit if kind.name == (metric or "bandwidth") else None
            varying = varying_names([match.levels for match in matches])
            ratios = [many[i][0] for i in places]
            mean, missing = whole_mean(of, matches, blocks, ratios, 1 - alpha)
            mine = replace(one, matches=matches, alone=() if number else one.alone)
            columns = first + np.array(places)
            own = None if differences is None else differences[:, columns]
            result.append(Comparison(
                chart=chart,
                a=a, b=b, by=of.by, metric=kind, unit=_unit(ds, of, kind, matches, shown),
                tolerance=tolerance, alpha=alpha, record=record, correction=correction,
                family=sentences[0].cells if sentences else 0, part=part.words(list(parts)),
                varying=tuple(varying),
                cells=_cells(of, mine, (a, b), [many[i] for i in places],
                             [sentences[i] for i in places], varying, [doubts[i] for i in places],
                             () if own is None else pooled(own)),
                mean=mean, mean_missing=missing,
                questions=tuple(one for one in summed if set(one.columns) <= {*columns.tolist()}),
                differences=own,
                effects=factor_effects(of, matches, (a, b), varying),
                spreads=spreads_of(
                    state.at(places), [named(m, varying, common(matches)) for m in matches], (a, b)
                ),
                alone=mine.alone,
                remarks=remarks(of, mine, (a, b), free, ignore)
                + (() if sides or result else tuple(f"{text}." for text in _without(of))),
            ))  # fmt: skip
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
    known = [str(of.sides.levels[code]) for code in np.unique(of.sides.codes)]
    named = units.factor_title(" and ".join(of.by))
    for side in sides:
        if side not in known:
            why = f"has no run that counts ({of.valueless[side]})" if side in of.valueless \
                else "is not there"  # fmt: skip
            raise ValueError(f"{named} {side!r} {why}: there are {', '.join(sorted(known))}")
    chosen = list(dict.fromkeys(sides or known))
    if len(chosen) < 2:
        lost = "; ".join(_without(of))
        if lost and not sides:
            raise ValueError(f"only {chosen[0]} has runs that count: nothing to compare it with. "
                             f"{lost}")  # fmt: skip
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


def varying_names(cells: Sequence[Levels]) -> list[str]:
    """Factors that tell cells apart; one that follows an earlier one comes only if it must."""
    names = list(dict.fromkeys(name for levels in cells for name in levels))
    first = ("workload", "pattern", "phase")
    names.sort(key=lambda n: first.index(n) if n in first else len(first))
    kept: list[str] = []
    for name in names:
        found = {levels.get(name, "") for levels in cells}
        known = {tuple(levels.get(n, "") for n in kept) for levels in cells}
        finer = {tuple(levels.get(n, "") for n in (*kept, name)) for levels in cells}
        if len(found) > 1 and len(finer) > len(known):
            kept.append(name)
    return kept


def _cells(
    of: Table, found: Matched, names: tuple[str, str], ready: Sequence[Ready],
    said: Sequence[Verdict], varying: Sequence[str], doubts: Sequence[tuple[str, ...]],
    drawn: Sequence[Pooled | None],
) -> tuple[Compared, ...]:  # fmt: skip
    cells, warned, same = [], shared(of, found.matches), common(found.matches)
    for match, (one, a, b), verdict, doubt, warns, near in zip(
        found.matches, ready, said, doubts, warned, drawn or [None] * len(ready), strict=True
    ):
        paired = len(one.parts) == 1
        sides = [of_runs(of.values[w], of.attachments[w]) for w in (match.a, match.b)]
        far = [f"a value of {name} is far from all others of its cell"
               for name, m in zip(names, sides, strict=True) if m.far]  # fmt: skip
        cells.append(Compared(
            levels=match.levels, named=named(match, varying, same), apart=differing(match, same),
            differs=dict(match.differs), a=sides[0], b=sides[1], verdict=verdict,
            effect=tests.effect(a.logs, b.logs),
            test=tests.signed_rank(one.parts[0]) if paired else tests.mann_whitney(*one.parts),
            doubts=(*doubt, *far), warned=(warns[0], warns[1]), both=warns[2],
            pooled=near,
        ))  # fmt: skip
    order = {n: sorted({sortable(c.levels.get(n, "")) for c in cells}) for n in varying}
    return tuple(sorted(
        cells, key=lambda c: [order[n].index(sortable(c.levels.get(n, ""))) for n in varying]
    ))  # fmt: skip


def sortable(level: Level) -> tuple[int, float, str]:
    """A key that puts numbers, by their size, before texts."""
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")
