"""Percentiles of latency with intervals over attachments, and how factors change them.

A percentile of a run is one number of its slowest operations; percentiles of several runs have no
mean that means anything, but their histograms add up, over the runs of an attachment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.counted_rows import Levels, Table, table
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.columns import plain as texts
from fsmatrix.analysis.data.factors import OF_PHASES, by_size, follows_in, rows_by_group, several
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.intervals import quantile_bounds
from fsmatrix.analysis.stats.estimates.medians import (
    SMALLEST,
    Floats,
    Median,
    of_independent,
    per_group,
)
from fsmatrix.analysis.stats.estimates.runs import independent
from fsmatrix.analysis.stats.testing import quantile_regression as regression
from fsmatrix.analysis.stats.testing.quantile_regression import Contrasts, Slope
from fsmatrix.analysis.stats.words import IMPORTED, few
from fsmatrix.analysis.units import Level, Unit, brief, text
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.fio.fio_options import LATENCIES
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METRIC = "latency_mean"  # the rows that have latencies
NEEDED = (
    "latency_of",
    "latency_first",
    "latency_size",
    "latency_kind",
    "latency_bin",
    "latency_count",
    "kind_name",
)
MOST_ROWS = 60  # cells in a figure
Counts = npt.NDArray[np.int64]

FEWEST_STEPS = 3  # levels of a number from which on growth per doubling is a fit and not a ratio


@dataclass(frozen=True)
class Tail:
    """One cell: the quantile over attachments, and how sure one run of it is."""

    named: str
    levels: Levels
    quantile: Median  # of the attachments' quantiles, seconds
    operations: int
    within: tuple[float, float]  # of a typical run: low and high over its quantile
    logs: Floats = field(repr=False)  # of each block's quantile, [block]; NaN: no quantile there

    @property
    def width(self) -> float:
        """High over low of the quantile's interval over attachments."""
        return self.quantile.high / self.quantile.low if self.quantile.low > 0 else math.nan


@dataclass(frozen=True)
class Tails:
    """All cells of a campaign that have histograms of latencies."""

    q: float
    unit: Unit
    cells: tuple[Tail, ...]
    effects: Effects

    @property
    def title(self) -> str:
        """Which share of the operations the quantile is of."""
        return f"Latency, {100 * self.q:.10g} % of the operations below"

    @property
    def says(self) -> list[str]:
        """How far one run can be trusted, and how far the cells are known."""
        measured = [c for c in self.cells if c.quantile.kind != "none"]
        if not measured:
            return [
                f"{self.title}: too few operations in every cell, it takes "
                f"{math.ceil(round(10 / (1 - self.q), 3))}."
            ]
        worst = max(measured, key=lambda c: c.quantile.median)
        shown = f"{text(worst.quantile.median, self.unit)} {self.unit.label}"
        sentences = [f"{self.title}: at most {shown} ({worst.named or 'the only cell'})."]
        alone = np.array([c.within for c in measured if not math.isnan(c.within[0])])
        if alone.size:
            low, high = 100 * (np.median(alone, axis=0) - 1)
            sentences.append(
                f"A typical run alone knows it to {low:.2g} to {high:+.2g} % at best (as if its "
                "operations were independent of each other)."
            )
        sure = [c.width for c in measured if c.quantile.decides]
        if sure:
            sentences.append(
                f"95 % sure over attachments: a range of {brief(float(np.median(sure)))} times in "
                f"the typical cell, {brief(max(sure))} times in the widest."
            )
        if few := sum(not c.quantile.decides for c in measured):
            sentences.append(f"{few} of {len(measured)} cells have too few attachments for 95 %.")
        return sentences + self.effects.says

    def table(self) -> pd.DataFrame:
        """One row per cell; latencies in the unit of the heading."""
        import pandas as pd

        scale, label = self.unit.divisor, self.unit.label
        return pd.DataFrame(
            [
                {
                    "cell": c.named or "the only cell",
                    f"quantile {self.q:g}, {label}": c.quantile.median / scale,
                    f"low, {label}": c.quantile.low / scale,
                    f"high, {label}": c.quantile.high / scale,
                    "kind": c.quantile.kind,
                    "attachments": c.quantile.independent,
                    "operations": c.operations,
                    "one run, low %": 100 * (c.within[0] - 1),
                    "one run, high %": 100 * (c.within[1] - 1),
                }
                for c in self.cells
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "q": self.q,
                "says": self.says,
                "cells": self.cells,
                "effects": self.effects,
            }
        )
        return data

    def figure(self) -> Figure:
        """A row for each cell, the slowest first, on a log axis; ValueError without any."""
        from fsmatrix.analysis.draw import drawing

        measured = [c for c in self.cells if c.quantile.kind != "none"]
        if not measured:
            raise ValueError(self.says[0])
        cells = sorted(measured, key=lambda c: -c.quantile.median)[:MOST_ROWS]
        left = len(measured) - len(cells)
        figure, ax = drawing.panel(
            title=self.title,
            notes=[f"{left} cells are not shown."] if left else [],
            width=8.6,
            height=0.24 * len(cells) + 1.0,
        )
        scale = self.unit.divisor
        for place, cell in enumerate(cells):
            ax.errorbar(
                [cell.quantile.median / scale],
                [-place],
                xerr=drawing.whiskers([cell.quantile], scale),
                marker="o",
                color=drawing.colour(0),
                capsize=2,
                linestyle="",
                markerfacecolor=drawing.colour(0) if cell.quantile.decides else "white",
            )
        names = [(c.named or "the only cell").replace("$", r"\$") for c in cells]
        ax.set_yticks([-i for i in range(len(cells))], names, fontsize=drawing.SMALL)
        ax.set_xscale("log")
        ax.set_xlabel(f"{self.unit.label}, log scale", fontsize=drawing.MEDIUM)
        return figure


def tails(
    ds: xr.Dataset, q: float = 0.99, *, where: Levels | None = None, unit: Unit | None = None
) -> Tails:
    """The quantile q of latencies of every cell, from the histograms of its runs.

    ValueError for a q outside (0, 1), and for a campaign without histograms.
    """
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, such as 0.99, not {q}")
    if any(name not in ds.variables for name in NEEDED):
        raise ValueError("no histograms of latencies in this campaign")
    of = table(ds, METRIC, ("target",), where)
    axes = {"target": of.sides, **of.factors}
    groups = rows_by_group(combined([axis.codes for axis in axes.values()], of.values.size)[1])
    rows = [{name: axis.levels[axis.codes[g[0]]] for name, axis in axes.items()} for g in groups]
    varying = several(rows)
    stored = {name: ds[name].values for name in NEEDED}
    blocks = independent(of.blocks, of.attachments)
    cells = sorted(
        (
            _cell(of, stored, blocks, group, levels, varying, q)
            for group, levels in zip(groups, rows, strict=True)
        ),
        key=lambda c: c.named,
    )
    shown = [c.quantile.median for c in cells if c.quantile.runs]
    analysed = effects(
        [c.levels for c in cells], np.stack([c.logs for c in cells], axis=1), record_of(ds).imported
    )
    return Tails(q, unit or units.fitting("time", shown), tuple(cells), analysed)


def _cell(
    of: Table,
    stored: Mapping[str, npt.NDArray[Any]],
    blocks: Counts,
    group: Any,
    levels: Levels,
    varying: list[str],
    q: float,
) -> Tail:
    counts = np.stack([_histogram(stored, int(row)) for row in of.index[group]])
    owners, first = _numbered(of.attachments[group])
    pooled = np.zeros((int(owners.max()) + 1, histogram.BINS), dtype=np.int64)
    np.add.at(pooled, owners, counts)
    each = [(histogram.percentile(count, q), *quantile_bounds(count, q)) for count in counts]
    quantiles = np.array([histogram.percentile(counts_of_block, q) for counts_of_block in pooled])
    shares = [(low / middle, high / middle) for middle, low, high in each if middle > 0]
    low, high = np.median(shares, axis=0).tolist() if shares else (math.nan, math.nan)
    return Tail(
        named=units.described(levels, varying),
        levels=levels,
        quantile=of_independent(quantiles),
        operations=int(counts.sum()),
        within=(low, high),
        logs=_of_blocks(quantiles, blocks[group][first], int(blocks.max()) + 1),
    )


def _numbered(labels: Any) -> tuple[Counts, Counts]:
    """(number of each label from 0, place of the first of each number)."""
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return numbers, first


def _of_blocks(quantiles: Floats, blocks: Counts, size: int) -> Floats:
    """Logs of the quantile of each of `size` blocks, the median of its attachments' [attachment].

    NaN where it has none.
    """
    logs = np.full(size, math.nan)
    with np.errstate(divide="ignore"):
        groups, middle = per_group(np.log(quantiles), blocks)
    logs[groups] = middle
    return np.where(np.isfinite(logs), logs, math.nan)


def _histogram(stored: Mapping[str, npt.NDArray[Any]], row: int) -> Counts:
    """Counts [bin] of the kinds that the latencies of a row pool."""
    first, size = int(stored["latency_first"][row]), int(stored["latency_size"][row])
    part = slice(first, first + size)
    wanted = str(stored["latency_of"][row]).split("+")
    names = np.array([str(name) for name in texts(stored["kind_name"])])
    kept = np.isin(names[stored["latency_kind"][part]], wanted)
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    np.add.at(counts, stored["latency_bin"][part][kept], stored["latency_count"][part][kept])
    return counts


@dataclass(frozen=True)
class Part:
    """The same change among some cells only: `named` has their levels of the other factors."""

    named: str
    slope: Slope


@dataclass(frozen=True)
class Effect:
    """What one factor does to the percentile, over all levels of the others.

    `slope`: the ratio of `level` to `reference`; of a number with FEWEST_STEPS levels or more
    (`doubling`) that of each doubling from `reference` to `level`.
    """

    factor: str
    reference: Level
    level: Level
    doubling: bool
    slope: Slope
    compared: int  # sets of cells that differ in this factor only
    unlike: tuple[Part, ...] = ()  # those proven to differ from the typical one, lowest first
    steps: tuple[Part, ...] = ()  # first and last step, per doubling, where they are not alike

    @property
    def says(self) -> str:
        """The change in words."""
        low, high, slope, unlike = self.reference, self.level, self.slope, self.unlike
        if self.doubling:
            span = " to ".join(units.level_text(self.factor, level) for level in (low, high))
            title = units.factor_title(self.factor)
            sentence = f"each doubling of {title} from {span} makes it {_times(slope)}"
        else:
            if slope.ratio < 1:  # the slower one first
                low, high, slope = high, low, slope.turned
                unlike = tuple(Part(p.named, p.slope.turned) for p in reversed(unlike))
            names = [units.labelled(self.factor, level) for level in (high, low)]
            sentence = f"{names[0]} takes {_times(slope, f'as long as {names[1]}')}"
        if slope.decides and not slope.proven:
            sentence += ", may be chance"
        if self.steps:
            shown = [f"{brief(p.slope.ratio)} times {p.named}" for p in self.steps]
            sentence += f"; not evenly: per doubling {' and '.join(shown)}"
        if unlike:
            ends = list(dict.fromkeys((unlike[0], unlike[-1])))
            sentence += "; not alike everywhere: " + " to ".join(
                f"{brief(p.slope.ratio)} times ({p.named})" for p in ends
            )
        return sentence


@dataclass(frozen=True)
class Effects:
    """All factors, and why some have no number."""

    effects: tuple[Effect, ...]
    missing: tuple[tuple[str, str], ...]  # (factor, why)
    blocks: int  # that all cells which are compared have
    cells: int
    left_out: tuple[int, int]  # blocks, cells
    imported: bool = False  # no blocks can be added

    @property
    def says(self) -> list[str]:
        """One sentence for each factor; nothing where no factor varies."""
        sentences = []
        if self.effects:
            blocks = plural(self.blocks, "block")
            sentences.append(f"What changes it where the other factors are equal, in {blocks}:")
            sentences += [f"  {effect.says}." for effect in self.effects]
            if self.blocks < SMALLEST:
                why = IMPORTED if self.imported else few(self.blocks, what="blocks")
                sentences.append(f"{why}.")
        titles = ((units.factor_title(name), why) for name, why in self.missing)
        sentences += [f"What {title} changes cannot be said: {why}." for title, why in titles]
        blocks_out, cells_out = self.left_out
        if self.effects and (blocks_out or cells_out):
            out = f"{cells_out} of {self.cells + cells_out} cells and {blocks_out} of "
            sentences.append(
                f"Left out of that: {out}{self.blocks + blocks_out} blocks, so that each "
                "block has a number for each cell."
            )
        return sentences


def effects(levels: Sequence[Levels], logs: Floats, imported: bool = False) -> Effects:
    """What each factor that varies does to a quantile.

    levels: of each cell; logs: of the quantile in each block, [block, cell], NaN where there is
    none; imported: as of `Effects`.
    """
    finite = np.isfinite(logs)
    there = [i for i in range(len(levels)) if finite[:, i].any()]
    varying = several([levels[i] for i in there])
    if not varying:
        return Effects((), (), 0, 0, (0, 0))
    blocks, cells = regression.complete(finite)
    kept = [levels[int(i)] for i in cells]
    values = logs[np.ix_(blocks, cells)]
    contrasts, missing = [], []
    for name in varying:
        of_factor = _of_factor(name, varying, kept, values)
        if isinstance(of_factor, str):
            missing.append((name, of_factor))
        contrasts += [] if isinstance(of_factor, str) else of_factor
    shown = [(n, why) for n, why in missing if n not in OF_PHASES or "changes with" not in why]
    used = int(finite.any(axis=1).sum())
    return Effects(
        tuple(contrasts),
        tuple(shown),
        len(values),
        len(kept),
        (used - len(values), len(there) - len(kept)),
        imported,
    )


def _of_factor(
    name: str, varying: Sequence[str], cells: Sequence[Levels], logs: Floats
) -> list[Effect] | str:
    """The effects of one factor, one for each level beyond the first; or why there is none.

    Cells are compared that agree in all other factors but those that follow this one.
    """
    if name == LATENCIES:
        return "its levels are two definitions of latency"
    if len({str(cell[name]) for cell in cells}) < 2:
        return "no block has a number for two of its levels"
    others = [n for n in varying if n != name and not follows_in(cells, n, name)]
    alias = [n for n in varying if n != name and n not in others and follows_in(cells, name, n)]
    if earlier := [n for n in alias if varying.index(n) < varying.index(name)]:
        return f"it changes with {units.factor_title(earlier[0])}"
    series = defaultdict(list)
    for i, cell in enumerate(cells):
        series[tuple(str(cell[n]) for n in others)].append(i)
    groups = [places for places in series.values() if len(places) > 1]
    if not groups:
        owners = [units.factor_title(n) for n in others if follows_in(cells, name, n)]
        return (
            f"it changes with {owners[0]}"
            if owners
            else "no two of its levels were measured with the other factors equal"
        )
    shown = [n for n in others if len({str(cells[places[0]][n]) for places in groups}) > 1]
    shown = [
        n
        for n in shown
        if n not in OF_PHASES
        or not any(follows_in(cells, n, o) for o in shown if o not in OF_PHASES)
    ]
    of = _Comparison(name, cells, logs, groups, shown)
    return [of.doubling()] if of.numeric else of.ratios()


@dataclass(frozen=True)
class _Comparison:
    """Groups of cells that differ in one factor only."""

    name: str
    cells: Sequence[Levels]
    logs: Floats  # [block, cell]
    groups: Sequence[Sequence[int]]
    others: Sequence[str]  # factors that tell the groups apart

    @property
    def levels(self) -> list[Level]:
        by_text = {str(c[self.name]): c[self.name] for g in self.groups for c in self._of(g)}
        return sorted(by_text.values(), key=by_size)

    @property
    def numeric(self) -> bool:
        levels = self.levels
        numbers = all(not isinstance(level, str) and level > 0 for level in levels)
        return numbers and len(levels) >= FEWEST_STEPS

    def doubling(self) -> Effect:
        """Of a number: growth per doubling."""
        levels = self.levels
        growth = regression.contrasts(self.logs, [(g, self._sloping(g)) for g in self.groups])
        return Effect(
            self.name,
            levels[0],
            levels[-1],
            True,
            regression.slope(growth),
            len(self.groups),
            self._unlike(growth, self.groups),
            self._uneven(levels),
        )

    def ratios(self) -> list[Effect]:
        """Each level over the first one."""
        first, *others = self.levels
        slopes = []
        for level in others:
            groups = [g for g in self.groups if {str(first), str(level)} <= self._have(g)]
            if groups:
                ratio = self._between(groups, first, level)
                slopes.append(
                    Effect(
                        self.name,
                        first,
                        level,
                        False,
                        regression.slope(ratio),
                        len(groups),
                        self._unlike(ratio, groups),
                    )
                )
        return slopes

    def _uneven(self, levels: Sequence[Level]) -> tuple[Part, ...]:
        """Growth per doubling in the first and the last step, where they differ beyond chance."""
        whole = [g for g in self.groups if len(self._have(g)) == len(levels)]
        if not whole:
            return ()
        ends = ((levels[0], levels[1]), (levels[-2], levels[-1]))
        first, last = (self._between(whole, low, high, doubling=True) for low, high in ends)
        if not regression.slope(last - first).proven:
            return ()
        texts = [[units.level_text(self.name, level) for level in end] for end in ends]
        return tuple(
            Part(f"from {low} to {high}", regression.slope(step))
            for (low, high), step in zip(texts, (first, last), strict=True)
        )

    def _unlike(self, of: Contrasts, groups: Sequence[Sequence[int]]) -> tuple[Part, ...]:
        parts = [
            Part(self._named(groups[i]), regression.slope(of.of(i))) for i in regression.unlike(of)
        ]
        return tuple(sorted(parts, key=lambda part: part.slope.ratio))

    def _sloping(self, group: Sequence[int]) -> Floats:
        """Weights of least squares over the log2 of a group's levels."""
        return regression.weights([math.log2(float(cell[self.name])) for cell in self._of(group)])

    def _between(
        self, groups: Sequence[Sequence[int]], low: Level, high: Level, *, doubling: bool = False
    ) -> Contrasts:
        """One level over another one in each group, or per doubling of the level."""
        share = 1 / math.log2(float(high) / float(low)) if doubling else 1.0
        series = []
        for group in groups:
            names = [str(cell[self.name]) for cell in self._of(group)]
            signs = [(name == str(high)) - (name == str(low)) for name in names]
            series.append((group, share * np.array(signs, dtype=np.float64)))
        return regression.contrasts(self.logs, series)

    def _of(self, group: Sequence[int]) -> list[Levels]:
        return [self.cells[i] for i in group]

    def _have(self, group: Sequence[int]) -> set[str]:
        return {str(cell[self.name]) for cell in self._of(group)}

    def _named(self, group: Sequence[int]) -> str:
        cell = self.cells[group[0]]
        return units.described(cell, self.others) or "all"


def _times(slope: Slope, than: str = "as long") -> str:
    sentence = f"{brief(slope.ratio)} times {than}"
    if slope.decides:
        sentence += f" (95 % sure: {brief(slope.low)} to {brief(slope.high)})"
    return sentence
