"""One value per attachment of every cell of a campaign, for one metric.

Whatever varies beside the roles of `factors.py` (target, cache state, engine...) is kept apart,
never averaged over.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data import doubts, matrices, summary
from fsmatrix.analysis.data.cells import Cell, Values, values_of
from fsmatrix.analysis.data.cluster import Cluster
from fsmatrix.analysis.data.columns import Mask, coded, combined
from fsmatrix.analysis.data.doubts import audits_of
from fsmatrix.analysis.data.factors import (
    NUMERIC,
    OF_PHASES,
    ORDER,
    ROLES,
    TITLES,
    Key,
    by_size,
    factor_of,
    follows,
    level_text,
    same,
)
from fsmatrix.analysis.data.load import open_loops, rows, runs_of, saturated_points
from fsmatrix.analysis.stats.estimates.intervals import Ratio, ratio
from fsmatrix.analysis.stats.estimates.medians import LEVEL
from fsmatrix.analysis.stats.estimates.runs import runs
from fsmatrix.analysis.units import METRICS, OWN, Level, Metric, Unit, metric_of
from fsmatrix.results.evidence.workloads import SATURATED
from fsmatrix.results.units import plural

# Why runs gave no value: how many failed and of what, are invalid by which audit, or lack it.


MOST_CHARACTERS = 160  # of an error's text
OFFERED = "the rate was given: see `fsmatrix response`, or compare a latency"


def why_no_value(ds: xr.Dataset, among: Mask, metric: str = OWN) -> str:
    """Of these rows (shape [row]), none of which gave a value: what became of their runs.

    "12 runs failed (9 of them: ENOSPC); 4 runs are invalid (read-served-by-cache)".
    """
    data = rows(ds)
    failed = among & data.failed
    invalid = among & data.invalid
    rest = among & ~failed & ~invalid
    run = runs_of(data)

    def number(mask: Mask) -> int:
        return int(np.unique(run[mask]).size)

    sentences = []
    if failed.any():
        sentences.append(f"{plural(number(failed), 'run')} failed{_errors(ds, failed)}")
    if invalid.any():
        where = np.flatnonzero(invalid)
        audits_by_row = audits_of(ds, where, np.zeros(where.size, dtype=np.int64), ("invalid",))
        names = ", ".join(sorted(audits_by_row.get(0, ())))
        be = "is" if number(invalid) == 1 else "are"
        why = f" ({names})" if names else ""
        sentences.append(f"{plural(number(invalid), 'run')} {be} invalid{why}")
    if rest.any():
        why = ""
        if "latency" in metric:
            why = f" ({SATURATED}: no latency counts)" if saturated_points(ds)[rest].any() else ""
        elif open_loops(ds)[rest].all():
            why = f" ({OFFERED})"
        sentences.append(f"{plural(number(rest), 'run')} ended well without it{why}")
    return "; ".join(sentences) or "there is no run of it"


def rows_of(ds: xr.Dataset, cells: Sequence[Cell]) -> Mask:
    """Rows of the newest attempts at these cells, also of runs that failed before a phase."""
    data = rows(ds)
    names = [name for name in cells[0].levels if name not in OF_PHASES] if cells else []
    columns = [data.factor(name) for name in names]
    first, group = combined([coded(column)[1] for column in columns], len(data))
    wanted = {tuple(repr(cell.levels[name]) for name in names) for cell in cells}
    texts = [[repr(level) for level in column[first].tolist()] for column in columns]
    wanted_rows = [tuple(text[i] for text in texts) in wanted for i in range(first.size)]
    inside: Mask = np.array(wanted_rows, dtype=bool)[group]
    return inside & data.current


def _errors(ds: xr.Dataset, failed: Mask) -> str:
    """The most frequent error of these rows' runs, with its number where there are others."""
    data = rows(ds)
    first = np.flatnonzero(failed)
    first = first[np.unique(runs_of(data)[first], return_index=True)[1]]
    texts = Counter(text for text in data["error"][first].tolist() if text)
    if not texts:
        return ""
    text, number = texts.most_common(1)[0]
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS].rstrip()} ..."
    return f" ({text})" if number == first.size else f" ({number} of them: {text})"


def metric_for(ds: xr.Dataset, metric: str = OWN) -> str:
    """`metric`; for OWN bandwidth, and where no run has any bytes (transactions, names), iops."""
    if metric != OWN:
        return metric
    data = rows(ds)
    some = [n for n in ("bandwidth", "iops") if np.isfinite(values_of(data, n)).any()]
    return some[0] if some else "bandwidth"


@dataclass(frozen=True)
class Study:
    """Every cell of a campaign for one metric."""

    metric: Metric
    cells: tuple[Values, ...]  # also those without a value
    varying: tuple[str, ...]  # roles, then other factors, that have several levels
    confounded: Mapping[str, str]  # factor that changes with a role's level -> that role
    cluster: Cluster
    invalid_runs: int
    only: Key = ()  # levels that `where` kept

    @property
    def valued(self) -> tuple[Values, ...]:
        """Cells that have a value."""
        return tuple(cell for cell in self.cells if cell.values.size)

    def levels(self, name: str, cells: Iterable[Values] | None = None) -> list[Level]:
        """Levels of a role or factor, in the order of the paper, or by size or name."""
        levels = {cell.level(name) for cell in (self.cells if cells is None else cells)}
        order = ORDER.get(name, ())
        return sorted(
            levels - {""}, key=lambda v: (order.index(v) if v in order else len(order), by_size(v))
        )

    def series(self, *along: str) -> dict[Key, list[Values]]:
        """Cells with values that differ in `along` only, sorted by it; keys in sorted order."""
        apart = [name for name in self.varying if name not in along]
        lines: dict[Key, list[Values]] = defaultdict(list)
        for cell in self.valued:
            if all(math.isfinite(cell.number(name)) for name in along if name in NUMERIC):
                lines[tuple((name, cell.level(name)) for name in apart)].append(cell)
        places = {name: self.levels(name) for name in apart}
        order = sorted(
            lines, key=lambda key: [places[n].index(v) if v != "" else -1 for n, v in key]
        )
        return {
            key: sorted(lines[key], key=lambda c: [c.number(n) for n in along if n in NUMERIC])
            for key in order
        }

    def label(self, name: str, level: Level) -> str:
        """A level in words that say what it is."""
        if name == "processes":
            return f"{level_text(name, level)} process{'' if level == 1 else 'es'}"
        if name == "chunk":
            return level_text(name, level)
        text = str(level) if name == "interface" else units.labelled(factor_of(name), level)
        return text + self.cluster.emulated.get(factor_of(name), "")

    def describe(self, key: Key) -> str:
        """A key in words; "all" if it holds nothing."""
        return ", ".join(self.label(name, level) for name, level in key if level != "") or "all"

    def title(self, name: str) -> str:
        """A role's name for readers, which says if its levels are emulated."""
        shown = TITLES.get(name, units.factor_title(factor_of(name)))
        return shown + self.cluster.emulated.get(factor_of(name), "")

    def fitting(self, unit: Unit | None = None) -> Unit:
        """`unit`, or the one that fits the medians."""
        values = [cell.median.median for cell in self.valued]
        return unit or units.fitting(self.metric.quantity, values)

    def named(self, cell: Values) -> str:
        """A cell in words: its levels of all that varies."""
        return self.describe(tuple((name, cell.level(name)) for name in self.varying))

    def doubts(self, cells: Iterable[Values] | None = None) -> list[str]:
        """Sentences on findings that warn, and on values far off, of these cells or of all."""
        chosen = self.valued if cells is None else cells
        return doubts.doubt_sentences(
            [(self.named(c), c.cell, c.median) for c in chosen], self.metric
        )

    @property
    def remarks(self) -> list[str]:
        """What must stand beside every result of all cells of this campaign."""
        return self.setting + self.doubts()

    @property
    def setting(self) -> list[str]:
        """What must stand beside every result, of whichever cells."""
        sentences = [f"Only {self.describe(self.only)}."] if self.only else []
        sentences += [f"{text}." for text in (self.cluster.setting,) if text]
        sentences += [self.cluster.explanation] if self.cluster.explanation else []
        if self.invalid_runs:
            verb = "is" if self.invalid_runs == 1 else "are"
            sentences.append(f"{plural(self.invalid_runs, 'invalid run')} {verb} not in it.")
        sentences += [
            f"{units.factor_title(factor)} changes with {TITLES.get(role, role)}: "
            "their effects cannot be told apart."
            for factor, role in self.confounded.items()
        ]
        return sentences


def study(
    ds: xr.Dataset,
    metric: str,
    where: Mapping[str, Level] | None = None,
) -> Study:
    """The cells of a campaign, of those whose levels are as `where` says.

    ValueError for an unknown metric, a factor that is not there, and for no value at all.
    """
    known = METRICS[metric] if metric in METRICS else matrices.metric_in(ds, metric)
    summarised = summary.summarise(ds)
    values = [cell.values(metric) for cell in summarised.cells]
    chosen = tuple(
        cell for cell in values if all(same(cell.level(n), v) for n, v in (where or {}).items())
    )
    if not values and summarised.references:
        raise ValueError(f"only references were run: {', '.join(summarised.references)}")
    if not any(cell.values.size for cell in chosen):
        raise ValueError(_nothing(ds, known, values, chosen, where or {}))
    varying, confounded = _varying(chosen, summarised)
    return Study(
        metric=metric_of(metric, (c.cell.levels for c in chosen if c.values.size), known),
        cells=chosen,
        varying=varying,
        confounded=confounded,
        cluster=summarised.cluster,
        invalid_runs=sum(cell.cell.invalid for cell in chosen),
        only=tuple((where or {}).items()),
    )


def ratio_of(a: Values, b: Values, level: float = LEVEL) -> Ratio:
    """The ratio of two cells' medians, a over b, over attachments.

    Cells of one attachment are paired by it, others by their block where both have enough.
    """
    shared = set(a.attachments) & set(b.attachments)
    sides = [
        runs(cell.values, cell.attachments, cell.attachments if shared else cell.blocks)
        for cell in (a, b)
    ]
    return ratio(sides[0], sides[1], level)


def _nothing(
    ds: xr.Dataset,
    metric: Metric,
    every: Sequence[Values],
    chosen: Sequence[Values],
    where: Mapping[str, Level],
) -> str:
    for name, level in where.items():
        if not any(same(cell.level(name), level) for cell in every):
            levels = sorted({cell.level(name) for cell in every} - {""}, key=by_size)
            allowed = ", ".join(level_text(name, other) for other in levels) or "no levels of it"
            return f"no runs with {name} {level_text(name, level)}; there are {allowed}"
    why = why_no_value(ds, rows_of(ds, [cell.cell for cell in chosen]), metric.name)
    return f"no run gave any {metric.title.lower()}: {why}"


def _varying(
    cells: Sequence[Values], summarised: summary.Summary
) -> tuple[tuple[str, ...], dict[str, str]]:
    """(roles and factors of several levels, factors that follow a role)."""
    valued = [cell for cell in cells if cell.values.size]
    named = {factor for factors in ROLES.values() for factor in factors}
    others = [name for name in summarised.varying if name not in named]
    column = {
        name: [cell.level(name) for cell in valued]
        for name in dict.fromkeys((*ROLES, *others, "phase"))
    }
    several = [name for name in ROLES if len(set(column[name])) > 1]
    others += [] if follows(column["phase"], column["pattern"]) else ["phase"]
    confounded: dict[str, str] = {}
    for name in others:
        owner = next((role for role in several if follows(column[name], column[role])), "")
        if len(set(column[name])) > 1:
            if owner and name not in ("target", "phase", "engine", "cache", "workload"):
                confounded[name] = owner
            else:
                several.append(name)
    return tuple(several), confounded
