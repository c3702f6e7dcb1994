"""Tails of latency: histograms added over the runs of an attachment, with intervals over these.

A percentile of a run is one number of its slowest operations; percentiles of several runs have no
mean that means anything, but their histograms add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.comparison.rows import Levels, Table, table
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.columns import plain as texts
from fsmatrix.analysis.data.factors import rows_by_group, several
from fsmatrix.analysis.questions.tails.effects import Effects, effects
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates import tails as ranks
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_independent, per_group
from fsmatrix.analysis.stats.estimates.runs import independent
from fsmatrix.analysis.units import Unit, brief, text
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Json

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
    each = [(histogram.percentile(count, q), *ranks.within(count, q)) for count in counts]
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
