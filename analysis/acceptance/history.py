"""The same cells over many campaigns in the order of time: medians, steps, and what changed.

A step is a change of the median from the campaign before (that has the cell), or from the first
one, by the interval of the ratio of two medians over attachments (docs/statistics.md).  p is
corrected over all cells and campaigns, in two families: against the campaign before, and against
the first.  No change point is searched for: every boundary between two campaigns is tested.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, get_args

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.acceptance import acceptance_chart
from fsmatrix.analysis.acceptance.acceptance import Lost, lost
from fsmatrix.analysis.acceptance.acceptance_result import (
    Campaign,
    CampaignStep,
    CellHistory,
    History,
    NotCompared,
    changes,
    facts_of,
    following,
)
from fsmatrix.analysis.comparison import compare
from fsmatrix.analysis.comparison.compared import sortable
from fsmatrix.analysis.comparison.counted_rows import (
    CAMPAIGN,
    Levels,
    Table,
    VerdictOptions,
    Where,
    table,
    without_blocks,
)
from fsmatrix.analysis.comparison.matched_cells import GUARDED, STATED
from fsmatrix.analysis.data import matrices
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import rows_by_group, varying_names
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.stats.estimates.intervals import ratio
from fsmatrix.analysis.stats.estimates.medians import of_runs, per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs, runs
from fsmatrix.analysis.stats.testing.verdict import verdicts
from fsmatrix.analysis.units import Level, labelled
from fsmatrix.results.units import plural

Order = Literal["time", "given"]
DEFAULTS = VerdictOptions()


@dataclass(frozen=True)
class _Cell:
    """A cell, and its rows of `Table` in each campaign."""

    levels: Levels
    rows: tuple[Where, ...]


def history(
    ds: xr.Dataset,
    metric: str = "bandwidth",
    *,
    by: str = "target",
    order: Order = "time",
    options: VerdictOptions = DEFAULTS,
) -> History:
    """The history of a Dataset of several campaigns (comparison: `rows.together`).

    `by`: the factor whose levels are lines of one panel.  `order`: by the start of the first
    run, or as the campaigns stand in `ds`.  Campaigns share no blocks, so Holm stands for max-t.
    ValueError: fewer than two campaigns, unknown names, no run that counts, start times that are
    missing or cannot be read.
    """
    options = replace(options, correction=without_blocks(options.correction))
    if CAMPAIGN not in ds.variables:
        raise ValueError("a history needs two campaigns or more")
    if order not in get_args(Order):
        raise ValueError(f"order {order!r}: one of {', '.join(get_args(Order))}")
    kind, shown = compare.metric_of(ds, metric), matrices.unit_of(ds, metric, options.unit)
    of = table(ds, metric, (CAMPAIGN,), options.where)
    if by not in of.factors:
        raise ValueError(f"no factor {by!r}: there are {', '.join(sorted(of.factors))}")
    campaigns = _campaigns(of, order)
    names = [campaign.name for campaign in campaigns]
    cells = _cells(of, names)
    tested = _tested(of, cells, kind.more_is_better, options)
    if options.unit is None:
        shown = units.fitting(kind.quantity, [float(np.median(of.values))])
    facts = facts_of(of, names)
    varying = varying_names([cell.levels for cell in cells])
    return History(
        chart=acceptance_chart,
        metric=kind,
        unit=shown,
        by=by,
        tolerance=options.tolerance,
        alpha=options.alpha,
        correction=options.correction,
        families=tested.families,
        campaigns=tuple(campaigns),
        varying=tuple(varying),
        lines=tuple(
            CellHistory(
                cell.levels,
                _named(cell.levels, varying),
                tuple(of_runs(of.values[r], of.attachments[r]) for r in cell.rows),
                tuple(own),
            )
            for cell, own in zip(cells, tested.steps, strict=True)
        ),
        changes=tuple(changes(facts[old], facts[new]) for old, new in itertools.pairwise(names)),
        lost=tuple(_lost(of, cells, names, varying)),
        apart=tuple(tested.apart),
        remarks=tuple(_remarks(campaigns, order)),
    )


@dataclass(frozen=True)
class _Tested:
    """All steps that were tested, in their two families."""

    families: dict[str, int]  # against which campaign -> ratios over which p is corrected
    steps: list[list[CampaignStep]]  # of each cell
    apart: list[NotCompared]  # against the campaign before


def _tested(
    of: Table, cells: Sequence[_Cell], more_is_better: bool, options: VerdictOptions
) -> _Tested:
    """Each cell against the campaign before, and against the first one."""
    tested = _Tested({}, [[] for _ in cells], [])
    for against in ("previous", "first"):
        pairs, ratios = [], []
        for line, cell in enumerate(cells):
            for old, new in _pairs(cell, first=against == "first"):
                before, after = cell.rows[old], cell.rows[new]
                why = _incomparable(of, before, after)
                if not why:
                    pairs.append((line, old, new))
                    sides = _values(of, after), _values(of, before)
                    ratios.append(ratio(*sides, 1 - options.alpha))
                elif against == "previous":
                    tested.apart.append(NotCompared(line, old, new, why))
        judged = verdicts(
            ratios, options.tolerance, options.alpha, options.correction, more_is_better
        )
        for (line, old, new), verdict in zip(pairs, judged, strict=True):
            tested.steps[line].append(CampaignStep(against, old, new, verdict))
        tested.families[against] = len(pairs)
    return tested


def _campaigns(of: Table, order: Order) -> list[Campaign]:
    """Every campaign, also one without a run that counts, in its order."""
    data = rows(of.ds)
    column = of.ds[CAMPAIGN].values.astype(str)
    campaigns = []
    for name in dict.fromkeys(column.tolist()):
        in_campaign = column == name
        started = (
            data["started"][in_campaign] if "started" in data.columns else np.empty(0, dtype=str)
        )
        times = [_time(text, name) for text in np.unique(started).tolist() if text]
        campaigns.append(
            Campaign(
                name,
                min(times, default=None),
                max(times, default=None),
                of.failed.get(name, 0),
                of.invalid.get(name, 0),
            )
        )
    if len(campaigns) < 2:
        raise ValueError("a history needs two campaigns or more")
    if order == "given":
        return campaigns
    dated = [(campaign.began, campaign) for campaign in campaigns if campaign.began is not None]
    if len(dated) < len(campaigns):
        unknown = ", ".join(campaign.name for campaign in campaigns if campaign.began is None)
        raise ValueError(f"no start times in {unknown}: give the order yourself with --as-given")
    return [campaign for _, campaign in sorted(dated, key=lambda pair: pair[0])]


def _time(text: str, name: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{name}: a run's start time {text!r} cannot be read") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _cells(of: Table, names: Sequence[str]) -> list[_Cell]:
    """Rows that agree in every factor, but for those that follow the campaign (its target's name).

    Engine, cache state and device state always tell cells apart.
    """
    loose = set(following(of)) - {*GUARDED, *STATED}
    axes = [axis for name, axis in of.factors.items() if name not in loose]
    group = combined([axis.codes for axis in axes], of.index.size)[1]
    codes = [of.sides.levels.index(n) if n in of.sides.levels else -1 for n in names]
    cells = []
    for places in rows_by_group(group):
        levels: dict[str, Level] = {a.name: a.levels[a.codes[places[0]]] for a in axes}
        parts = tuple(places[of.sides.codes[places] == code] for code in codes)
        cells.append(_Cell(levels, parts))
    varying = varying_names([cell.levels for cell in cells])
    return sorted(cells, key=lambda c: [sortable(c.levels[name]) for name in varying])


def _pairs(cell: _Cell, *, first: bool) -> list[tuple[int, int]]:
    """(old, new) of each campaign that has the cell: against the one before, or the first.

    Against the first only where that is not the one before.
    """
    have = [number for number, part in enumerate(cell.rows) if part.size]
    if first:
        return [(have[0], new) for new in have[2:]]
    return list(itertools.pairwise(have))


def _values(of: Table, where: Where) -> Runs:
    """One value for each attachment: the median of its logs."""
    logs = per_attachment(np.log(of.values[where]), of.attachments[where])
    return runs(np.exp(logs), np.unique(of.attachments[where]))


def _incomparable(of: Table, old: Where, new: Where) -> str:
    """Why no ratio of two cells means anything; "" if it does."""
    values = of.values[np.concatenate([old, new])]
    if not (np.all(values > 0) and np.all(np.isfinite(values))):
        return "a value of 0 or infinity has no ratio"
    return "" if set(of.works[old]) & set(of.works[new]) else "other work (another work_id)"


def _named(levels: Levels, varying: Sequence[str]) -> str:
    return ", ".join(labelled(n, levels[n]) for n in varying if levels.get(n, "") != "")


def _lost(
    of: Table, cells: Sequence[_Cell], names: Sequence[str], varying: Sequence[str]
) -> list[Lost]:
    """Cells that the campaign before has and this one has not."""
    every_lost = []
    for number, name in enumerate(names[1:], 1):
        gone: list[tuple[Levels, str]] = [
            (cell.levels, "")
            for cell in cells
            if cell.rows[number - 1].size and not cell.rows[number].size
        ]
        every_lost += lost(of, name, gone, varying)
    return every_lost


def _remarks(campaigns: Sequence[Campaign], order: Order) -> list[str]:
    sentences = ["Blocks of different campaigns are not paired."]
    if order == "given":
        sentences.append("The campaigns stand in the order in which they were given, not of time.")
    for campaign in campaigns:
        if campaign.failed or campaign.invalid:
            sentences.append(
                f"{campaign.name}: {campaign.failed} failed and "
                f"{plural(campaign.invalid, 'invalid run')} are not in it."
            )
    for old, new in itertools.pairwise(campaigns):
        if old.ended and new.began and old.ended > new.began:
            sentences.append(f"{old.name} and {new.name} overlap in time.")
    return sentences
