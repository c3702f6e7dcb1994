"""Compare two sides (targets, levels of a factor, campaigns) cell by cell.

Rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC'15:
medians with intervals over attachments, ratios with intervals, tests corrected for the number of
cells, a geometric mean of ratios and never a mean of rates.  The statistics are those of
`analysis/stats` (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison import comparison_chart
from fsmatrix.analysis.comparison.compared import (
    Checked,
    JudgedPair,
    checked,
    common,
    doubts_of,
    judged_cells,
    named,
    spreads_of,
    versions,
)
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.counted_rows import CAMPAIGN, ComparisonOptions, Table, table
from fsmatrix.analysis.comparison.extension import Record, record_of
from fsmatrix.analysis.comparison.family import Family, Question, chosen, family_of
from fsmatrix.analysis.comparison.matched_cells import (
    MOST_PAIRS,
    Match,
    Matched,
    Pair,
    WorkPart,
    factor_effects,
    pairs_of,
    whole_mean,
    without,
)
from fsmatrix.analysis.data import cluster, matrices
from fsmatrix.analysis.data.cluster import on_one_machine
from fsmatrix.analysis.data.factors import varying_names
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.stats.testing.pooled import pooled
from fsmatrix.analysis.units import METRICS, OWN, Metric, Unit, level_text
from fsmatrix.results.units import plural

# What must stand beside a comparison: what differs, what was left out, what is emulated.


def remarks(
    of: Table,
    matched_cells: Matched,
    sides: tuple[str, str],
    free: Sequence[str],
    ignore: Sequence[str],
) -> tuple[str, ...]:
    """What must stand beside the comparison."""
    sentences = [
        f"Beside {' and '.join(of.by)}, {units.factor_title(name)} differs: "
        f"{level_text(name, x)} against {level_text(name, y)}."
        for name, (x, y) in matched_cells.differs.items()
    ]
    same = common(matched_cells.matches)
    mixed = sorted({n for match in matched_cells.matches for n in match.differs})
    for name in mixed:
        asked = " (as requested)" if name in (*free, *ignore) else ""
        if name in same:
            x, y = (level_text(name, level) for level in same[name])
            sentences.append(f"In all cells, {name} differs{asked}: {x} against {y}.")
            continue
        sentences.append(f"Cells differ in {name} between the sides{asked}.")
    sentences += [
        f"{name} is a reference, here because it was named."
        for name in sides
        if name in of.references
    ]
    for name in sides:
        left = {"failed run": of.failed.get(name, 0), "invalid run": of.invalid.get(name, 0)}
        counted = [plural(number, what) for what, number in left.items() if number]
        if number := of.open_loops.get(name, 0):
            counted.append(f"{plural(number, 'run')} {of.why_open}")
        if counted:
            sentences.append(f"Left out of {name}: {' and '.join(counted)}.")
    data = rows(of.ds)
    if "target" in data.factors:
        columns = {name: data.factor(name) for name in data.factors}
        emulated = cluster.emulated(of.ds, data, columns)
        sentences += [f"{units.factor_title(n)}{how}." for n, how in emulated.items()]
        sentences += [cluster.EMULATED] if emulated else []
    if CAMPAIGN in of.by:
        sentences.append("Two campaigns share no block: it takes more blocks than within one.")
    return (*sentences, *versions(of, matched_cells.matches, sides))


DEFAULTS = ComparisonOptions()


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
    """Every pair of `sides` (levels of `by`; all of them by default).

    p is corrected over all cells of all pairs of the campaign, whichever are asked for.

    A pair has a comparison of its own for each engine, and for data and metadata, so that no mean
    mixes them; by default each phase is compared in its own metric (`units.own_metric`).

    This made has a share of `options.alpha` (`stats/looks`).
    `baseline`: one of the sides; only the pairs of every other one with it, as b.
    `by`: a factor, or several (their combinations are sides: "ice-lake / 2").
    ValueError: an unknown name or level, fewer than two sides, no run that counts, mixed engines
    or cache states, no common cell.
    """
    if metric != OWN:
        metric_of(ds, metric)
    # of metrics of their own, that of data
    matrices.unit_of(ds, metric or "bandwidth", options.unit)
    of = table(ds, metric, (by,) if isinstance(by, str) else by, options.where, sides)
    guards = {"engine": options.across_engines, "cache": options.across_cache}
    free = [name for name, across in guards.items() if across]
    pairs = pairs_of(of, sides, baseline, free, options)
    record = record_of(ds)
    rising = metric == OWN or metric_of(ds, metric).more_is_better
    asked = _Asked(metric, sides, baseline, free, options, record, rising)
    family, apart = _family(asked, of, pairs)
    made = _ComparisonRun(of, asked, family)
    result, first = [], 0
    for pair in pairs:
        result += _of_pair(made, pair, first)
        first += len(pair.ratios)
    if not sides:
        lost = tuple(f"{text}." for text in without(of))
        result[0] = replace(result[0], remarks=result[0].remarks + lost)
    if apart:
        result[0] = replace(result[0], remarks=(*result[0].remarks, apart))
    return tuple(replace(comparison, pairs=len(result)) for comparison in result)


@dataclass(frozen=True)
class _Asked:
    """What a comparison is asked for, as `comparisons` is."""

    metric: str
    sides: Sequence[str]
    baseline: str
    free: Sequence[str]  # GUARDED names that may differ
    options: ComparisonOptions
    record: Record
    rising: bool  # more is better

    def judged(self, of: Table, pairs: Sequence[Pair]) -> Family:
        """The verdicts on these pairs together."""
        return family_of(of, pairs, self.record, self.rising, self.options)


def _family(asked: _Asked, of: Table, pairs: Sequence[Pair]) -> tuple[Family, str]:
    """(the verdicts on these pairs, "" or why they are corrected over themselves alone).

    All pairs and cells of a campaign (all pairs with a baseline) are one family: what is displayed
    of it changes no verdict.
    """
    every = [str(of.sides.levels[code]) for code in np.unique(of.sides.codes)]
    named = asked.sides or every
    if not asked.options.where and set(named) == set(every):
        return asked.judged(of, pairs), ""
    try:
        where, made = asked.options.where, () if asked.options.where else pairs
        whole = table(of.ds, asked.metric, of.by, None, asked.sides) if where else of
        levels = [str(whole.sides.levels[code]) for code in np.unique(whole.sides.codes)]
        order = [*asked.sides, *(name for name in levels if name not in asked.sides)]
        if [name for name in levels if name in asked.sides] == [*asked.sides]:
            order = levels
        if not asked.baseline and math.comb(len(order), 2) > MOST_PAIRS:
            raise ValueError(f"{math.comb(len(order), 2)} pairs would be too many")
        all_pairs = pairs_of(whole, order, asked.baseline, asked.free, asked.options, made)
    except ValueError as error:
        alone = f"Corrected over these cells alone; over the whole campaign it cannot be: {error}."
        return asked.judged(of, pairs), alone
    places = {key: column for column, key in enumerate(_cells(whole, all_pairs))}
    columns = [places.get(key, -1) for key in _cells(of, pairs)]
    if -1 in columns:
        return asked.judged(of, pairs), "Corrected over these cells alone: others mix their runs."
    return chosen(asked.judged(whole, all_pairs), columns), ""


def _cells(of: Table, pairs: Sequence[Pair]) -> list[tuple[bytes, bytes]]:
    """What identifies each cell of each pair: the rows of the campaign on both sides."""
    return [
        (np.sort(of.index[match.a]).tobytes(), np.sort(of.index[match.b]).tobytes())
        for pair in pairs
        for match in pair.cells.matches
    ]


@dataclass(frozen=True)
class _ComparisonRun:
    """What all comparisons have in common that are made together."""

    of: Table
    asked: _Asked
    family: Family


@dataclass(frozen=True)
class _JudgedPair:
    """A pair, and what its cells show; in the order of its matches."""

    pair: Pair
    columns: range  # its cells in the family
    state: Checked
    doubts: Sequence[tuple[str, ...]]


def _of_pair(made: _ComparisonRun, pair: Pair, first: int) -> list[Comparison]:
    """The comparisons of one pair, one for each part; `first`: its first cell in the family."""
    matches = pair.cells.matches
    state = checked(made.of, matches)
    doubts = doubts_of(made.of, matches, [(a, b) for _, a, b in pair.ratios], state, pair.sides)
    judged = _JudgedPair(pair, range(first, first + len(matches)), state, doubts)
    return [_of_part(made, judged, part) for part in pair.parts]


def _of_part(made: _ComparisonRun, judged: _JudgedPair, part: WorkPart) -> Comparison:
    """The comparison of those cells of a pair that may share a mean."""
    of, asked, family, pair = made.of, made.asked, made.family, judged.pair
    options = asked.options
    places = pair.parts[part]
    columns = [judged.columns[i] for i in places]
    matches = tuple(pair.cells.matches[i] for i in places)
    kind = _as_known(metric_of(of.ds, asked.metric or part.metric), of, matches)
    shown = options.unit if kind.name == (asked.metric or "bandwidth") else None
    varying = varying_names([match.levels for match in matches])
    ratios = [pair.ratios[i][0] for i in places]
    questions = tuple(q for q in family.questions if set(q.columns) <= set(columns))
    if not any(question.named == "" for question in questions):  # a pattern that is all of it
        questions = tuple(
            replace(q, named="") if len(q.columns) == len(columns) else q for q in questions
        )
    mean, missing = None, _untested(family, questions) if len(places) > 1 else ""
    if not missing:
        mean, missing = whole_mean(of, matches, pair.blocks, ratios, 1 - options.alpha)
    alone = pair.cells.alone if part == next(iter(pair.parts)) else ()
    cells = replace(pair.cells, matches=matches, alone=alone)
    differences = None if family.differences is None else family.differences[:, columns]
    near = [None] * len(places) if differences is None else pooled(differences)
    judged_pairs = [
        JudgedPair(*pair.ratios[i], family.verdicts[column], judged.doubts[i], pool)
        for i, column, pool in zip(places, columns, near, strict=True)
    ]
    return Comparison(
        chart=comparison_chart,
        a=pair.sides[0],
        b=pair.sides[1],
        by=of.by,
        metric=kind,
        unit=_unit(of, kind, matches, shown),
        tolerance=options.tolerance,
        alpha=options.alpha,
        record=asked.record,
        correction=family.correction,
        family=family.cells,
        part=part.words(list(pair.parts)),
        varying=tuple(varying),
        cells=judged_cells(of, cells, pair.sides, varying, judged_pairs),
        mean=mean,
        mean_missing=missing,
        questions=questions,
        differences=differences,
        effects=factor_effects(of, matches, pair.sides, varying),
        spreads=spreads_of(
            judged.state.at(places),
            [named(match, varying, common(matches)) for match in matches],
            pair.sides,
        ),
        alone=alone,
        remarks=remarks(of, cells, pair.sides, asked.free, options.ignore),
        one_machine=of.by == ("target",) and on_one_machine(of.ds, rows(of.ds), pair.sides),
    )


def _untested(family: Family, questions: Sequence[Question]) -> str:
    """Why the mean over the cells of a comparison is in no test; "" if it is, or has its own."""
    if family.differences is None:
        return ""
    whole = next((question for question in questions if not question.named), None)
    if whole is None:
        return "over just these cells nothing was tested"
    return "no block has all cells" if whole.kind == "no data" else ""


def _unit(of: Table, kind: Metric, matches: Sequence[Match], name: str | None) -> Unit:
    """The display unit of that name, or one that fits the values."""
    if name is not None:
        return matrices.unit_of(of.ds, kind.name, name)
    values = np.concatenate([of.values[where] for m in matches for where in (m.a, m.b)])
    return units.fitting(kind.quantity, [float(np.median(values))])


def _as_known(kind: Metric, of: Table, matches: Sequence[Match]) -> Metric:
    """The metric as readers of these cells know it."""
    if kind.name not in METRICS:
        return kind
    return of.metric(kind.name, [where[0] for m in matches for where in (m.a, m.b)])


def metric_of(ds: xr.Dataset, name: str) -> Metric:
    """A known metric, or any variable that is a rate or a time by its unit."""
    metric = matrices.metric_in(ds, name)
    if metric.quantity == "number":
        raise ValueError(f"{name} is no rate and no time, so no ratio of it is a comparison")
    return metric
