"""Pairs of sides: which are compared, and the ratios of their cells before any test."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.cells import Match, Matched, matched
from fsmatrix.analysis.comparison.options import ComparisonOptions
from fsmatrix.analysis.comparison.rows import Table, Where
from fsmatrix.analysis.comparison.whole import units_of
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.stats.estimates.intervals import Ratio, ratio
from fsmatrix.analysis.stats.estimates.medians import per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs, runs

MOST_PAIRS = 300  # of sides that nobody named: 25 sides


@dataclass(frozen=True, order=True)
class WorkPart:
    """What the cells of one mean have in common."""

    metric: str  # that their phases are judged by: bandwidth before iops
    engines: tuple[str, str]  # of both sides
    kind: str  # units.work_kind: no mean mixes fsyncs with what they secure, or with metadata

    def words(self, every: Sequence[WorkPart]) -> str:
        """It in words that tell it from the other parts; "" if there is no other."""
        words = (
            [" and ".join(dict.fromkeys(self.engines))]
            if len({p.engines for p in every}) > 1
            else []
        )
        if len({p.kind for p in every}) > 1:
            words.append(self.kind)
        return ", ".join(words)


def parts_of(of: Table, matches: Sequence[Match]) -> dict[WorkPart, list[int]]:
    """Part -> places of its matches, sorted."""
    places: dict[WorkPart, list[int]] = defaultdict(list)
    for place, match in enumerate(matches):
        engines = (_level(of, "engine", match.a), _level(of, "engine", match.b))
        metric = str(of.metrics[match.a[0]])
        kind = units.work_kind(metric, _level(of, "phase", match.a))
        places[WorkPart(metric, engines, kind)].append(place)
    return dict(sorted(places.items()))


def _level(of: Table, name: str, where: Where) -> str:
    """The level of a factor in a cell, as text; "" if there is no such factor."""
    axis = of.factors.get(name)
    return str(axis.levels[axis.codes[where[0]]]) if axis else ""


@dataclass(frozen=True)
class Pair:
    """Two sides with the cells that they share."""

    sides: tuple[str, str]
    cells: Matched
    parts: dict[WorkPart, list[int]]  # places in `cells.matches`
    blocks: Codes  # of each row, the groups of blocks that share attachments
    ratios: tuple[tuple[Ratio, Runs, Runs], ...]  # of each match, with the runs of both sides


def pairs_of(
    of: Table,
    sides: Sequence[str],
    baseline: str,
    free: Sequence[str],
    options: ComparisonOptions,
) -> list[Pair]:
    """Every pair of `sides` (all of them if none is named), or every other one with `baseline`.

    `free`: GUARDED names that may differ.  ValueError as `compare.comparisons`.
    """
    names = _chosen(of, sides)
    pairs = list(itertools.combinations(names, 2))
    if baseline:
        pairs = [(name, baseline) for name in names if name != baseline]
    elif len(pairs) > MOST_PAIRS and not sides:
        raise ValueError(
            f"{units.factor_title(' and '.join(of.by))} has {len(names)} levels, {len(pairs)} "
            f"pairs: name those to compare (--levels {names[0]},{names[1]})"
        )
    matched_cells = [matched(of, a, b, free, options.ignore) for a, b in pairs]
    return [
        _with_ratios(of, pair, cells, 1 - options.alpha)
        for pair, cells in zip(pairs, matched_cells, strict=True)
    ]


def _with_ratios(of: Table, sides: tuple[str, str], cells: Matched, level: float) -> Pair:
    blocks = units_of(of, cells.matches)
    ratios = tuple(_ratio(of, match, blocks, level) for match in cells.matches)
    return Pair(sides, cells, parts_of(of, cells.matches), blocks, ratios)


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
        lost = "; ".join(without(of))
        if lost and not sides:
            raise ValueError(
                f"only {chosen[0]} has runs that count: nothing to compare it with. {lost}"
            )
        raise ValueError(f"{named} has one level, {chosen[0]}: nothing to compare it with")
    return chosen


def without(of: Table) -> list[str]:
    """Sides that have no value at all, and why."""
    return [f"{side} has none: {why}" for side, why in of.valueless.items()]


def _ratio(of: Table, match: Match, unit: Codes, level: float) -> tuple[Ratio, Runs, Runs]:
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
