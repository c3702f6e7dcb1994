"""Correlation of factors with metrics: heat maps of r, and r itself with its interval.

Import `correlation.correlation`; the claims of studies use `coefficient`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy
import xarray as xr

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import NUMERIC, Key
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.intervals import Curve
from fsmatrix.analysis.stats.estimates.medians import LEVEL, SMALLEST, Floats
from fsmatrix.analysis.units import SHORT_TITLES, Level
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Correlation of factors with metrics per pattern and number of storage nodes (figure 6).
#
# A correlation over a designed grid describes the grid: r depends on which levels were chosen and
# how a level is coded as a number.  The study's chunk sizes span three decades, so r with bytes
# and r with their logarithm differ much, with the same measurements; Spearman's r needs no coding.


# r of a factor and a metric over cells, with its interval.
#
# A value is one attachment's median of one cell.  Intervals are a jackknife over attachments (of
# Fisher's z, with Student's t), not Fisher's own: cells of one attachment are not independent, and
# the levels of a factor are no sample.


Coding = Literal["raw", "log2"]
FACTORS = ("processes", "chunk")
_GRID = np.logspace(-9, 0, 181)  # alphas at which an interval by Student's t is kept


@dataclass(frozen=True)
class Correlation:
    """r of one factor and one metric in one panel; NaN with the reason where there is none."""

    panel: Key
    factor: str
    metric: str
    pearson: float
    pearson_low: float  # jackknife over attachments; NaN with fewer than 6
    pearson_high: float
    spearman: float
    values: int
    attachments: int
    cells: int
    absent: str

    @property
    def curve(self) -> Curve:
        """The interval at all levels, of Fisher's z; empty where there is none."""
        if math.isnan(self.pearson_low):
            empty = np.empty(0)
            z = math.atanh(min(max(self.pearson, -1 + 1e-12), 1 - 1e-12))
            return Curve(z, empty, empty, empty)
        low, high = math.atanh(self.pearson_low), math.atanh(self.pearson_high)
        centre, reach = (low + high) / 2, (high - low) / 2
        freedom = self.attachments - 1
        error = reach / float(scipy.special.stdtrit(freedom, (1 + LEVEL) / 2))
        widths = error * np.asarray(scipy.special.stdtrit(freedom, 1 - _GRID / 2))
        return Curve(centre, _GRID, centre - widths, centre + widths)


def correlated(
    key: Key, factor: str, metric: str, cells: Sequence[Values], coding: Coding
) -> Correlation:
    """r over the cells of one panel, weighted by their attachments."""
    level = np.array([cell.number(factor) for cell in cells])
    if factor == "chunk" and coding == "log2":
        level = np.log2(level)
    x = np.repeat(level, [cell.values.size for cell in cells])
    y = np.concatenate([cell.values for cell in cells])
    names, owner = np.unique(
        [name for cell in cells for name in cell.attachments], return_inverse=True
    )
    absent = ""
    if np.unique(x).size < 2:
        absent = f"{factor} constant"
    elif np.ptp(y) <= 1e-12 * np.abs(y).max():
        absent = "metric constant"
    elif x.size < 3:
        absent = "two values"
    nan = float("nan")
    pearson, spearman, low, high = nan, nan, nan, nan
    if not absent:
        pearson, spearman = _pearson(x, y), float(scipy.stats.spearmanr(x, y).statistic)
        low, high = _jackknifed(x, y, owner, names.size)
    return Correlation(
        key,
        factor,
        metric,
        pearson,
        low,
        high,
        spearman,
        int(x.size),
        int(names.size),
        len(cells),
        absent,
    )


def _pearson(x: Floats, y: Floats) -> float:
    a, b = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else float("nan")


def _jackknifed(
    x: Floats, y: Floats, owner: np.ndarray[Any, Any], number: int
) -> tuple[float, float]:
    """Interval of r: Fisher's z, its error from leaving out one attachment, Student's t."""
    if number < SMALLEST:
        return math.nan, math.nan
    with np.errstate(divide="ignore"):
        left = np.arctanh([_pearson(x[owner != i], y[owner != i]) for i in range(number)])
        z = math.atanh(max(min(_pearson(x, y), 1.0 - 1e-15), -1.0 + 1e-15))
    if not np.all(np.isfinite(left)):
        return math.nan, math.nan
    error = math.sqrt((number - 1) / number * float(np.square(left - left.mean()).sum()))
    reach = float(scipy.special.stdtrit(number - 1, (1 + LEVEL) / 2)) * error
    return math.tanh(z - reach), math.tanh(z + reach)


PAPER_METRICS = ("bandwidth", "iops", "latency_mean")
MOST_ROWS = 8  # of panels in one figure


@dataclass(frozen=True)
class Correlations:
    """Heat maps of a campaign."""

    study: Study
    metrics: tuple[str, ...]
    factors: tuple[str, ...]
    coding: Coding
    panels: tuple[Key, ...]
    correlations: tuple[Correlation, ...]

    @property
    def coded(self) -> str:
        """How chunk size became a number, in words."""
        return "chunk size in bytes" if self.coding == "raw" else "log2 of the chunk size"

    @property
    def says(self) -> list[str]:
        """Ranges over the panels, the coding, what has no number."""
        sentences = [
            f"r is 1 where a metric rises with a factor along a straight line, -1 where it falls, "
            f"0 where neither (Pearson's r, with {self.coded}; the table has Spearman's too)."
        ]
        for factor in self.factors:
            for metric in self.metrics:
                correlations = [
                    c for c in self.correlations if (c.factor, c.metric) == (factor, metric)
                ]
                known = [c for c in correlations if c.pearson == c.pearson]
                if known:
                    r = [c.pearson for c in known]
                    name = f"{SHORT_TITLES[metric]} {_way(known)} with {self.study.title(factor)}"
                    span = f"{min(r):.2f}" if len(r) == 1 else f"{min(r):.2f} to {max(r):.2f}"
                    many = f" in {len(r)} combinations of the other factors" * (len(r) > 1)
                    sentences.append(f"{name[0].upper()}{name[1:]}: r = {span}{many}.")
        why = sorted({c.absent for c in self.correlations if c.absent})
        number = sum(bool(c.absent) for c in self.correlations)
        if why:
            sentences.append(f"{number} have no r: {'; '.join(why)}.")
        grids = {_grid(cells) for cells in self.study.series(*self.factors).values()}
        if len(grids) > 1:
            sentences.append(
                "The panels do not have the same cells, and r depends on which cells there are: "
                "compare only panels with the same ones."
            )
        return sentences + self.study.remarks

    def table(self) -> pd.DataFrame:
        """One row per panel, factor and metric."""
        import pandas as pd

        frame = pd.DataFrame(
            [
                {
                    **dict(c.panel),
                    "factor": c.factor,
                    "metric": c.metric,
                    "pearson": c.pearson,
                    "pearson low": c.pearson_low,
                    "pearson high": c.pearson_high,
                    "spearman": c.spearman,
                    "values": c.values,
                    "cells": c.cells,
                    "attachments": c.attachments,
                    "absent": c.absent,
                }
                for c in self.correlations
            ]
        )
        frame.attrs |= {"coding": self.coded}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        rows = [{**vars(c), "panel": dict(c.panel)} for c in self.correlations]
        data: dict[str, Json] = plain(
            {"coding": self.coding, "correlations": rows, "says": self.says}
        )
        return data

    @property
    def pages(self) -> int:
        """Number of figures."""
        return max(math.ceil(len(self._rows()) / MOST_ROWS), 1)

    def _rows(self) -> list[Key]:
        return list(dict.fromkeys(_apart(panel) for panel in self.panels))

    def figure(self, page: int = 0) -> Figure:
        """Columns are patterns, rows what else varies; colour is Pearson's r."""
        from fsmatrix.analysis.draw import drawing

        rows = self._rows()[page * MOST_ROWS : (page + 1) * MOST_ROWS]
        if not rows:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        patterns = self.study.levels("pattern") or [""]
        notes = [
            f"In each field: Pearson's r (colour; {self.coded}), Spearman's r, number of "
            "values (one per attachment and cell). Grey: no number, with the reason.",
            *self.study.remarks,
        ]
        figure, axes = drawing.frame(
            len(rows),
            len(patterns),
            title="Correlation of factors with metrics",
            notes=notes,
            width=0.8 + 0.85 * len(self.metrics),
            height=0.75 + 0.55 * len(self.factors),
        )
        image = None
        for r, row in enumerate(rows):
            for c, pattern in enumerate(patterns):
                image = self._panel(axes[r][c], row, pattern) or image
        if image is not None:
            figure.colorbar(
                image,
                ax=[ax for row in axes for ax in row],
                shrink=0.8,
                label="Pearson's r",
                pad=0.01,
            )
        return figure

    def _panel(self, ax: Axes, row: Key, pattern: Level) -> Any:
        by_pair = {
            (c.factor, c.metric): c
            for c in self.correlations
            if _apart(c.panel) == row and dict(c.panel).get("pattern", "") in (pattern, "")
        }
        head = [self.study.label("pattern", pattern)] if pattern != "" else []
        where = self.study.describe(row)
        ax.set_title("\n".join([*head, *([where] if where != "all" else [])]), fontsize=8)
        grid = np.full((len(self.factors), len(self.metrics)), np.nan)
        for (factor, metric), c in by_pair.items():
            place = self.factors.index(factor), self.metrics.index(metric)
            grid[place] = c.pearson
            sentence = f"{c.pearson:.2f}\n{c.spearman:.2f}\nn={c.values}"
            dark = abs(c.pearson) > 0.7
            ax.annotate(
                c.absent.replace(" ", "\n") if c.absent else sentence,
                (place[1], place[0]),
                ha="center",
                va="center",
                fontsize=6.2,
                color="white" if dark else "black",
            )
        ax.set_facecolor("#d9dce0")
        ax.grid(visible=False)
        ax.set_xticks(range(len(self.metrics)), [SHORT_TITLES[m] for m in self.metrics], fontsize=7)
        ax.set_yticks(range(len(self.factors)), list(self.factors), fontsize=7)
        return ax.imshow(grid, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")


def correlation(
    ds: xr.Dataset,
    *,
    coding: Coding = "raw",
    metrics: Sequence[str] = PAPER_METRICS,
    factors: Sequence[str] = FACTORS,
    where: Mapping[str, Level] | None = None,
) -> Correlations:
    """r of numeric factors and metrics, apart for each combination of whatever else varies.

    `coding`: chunk size in bytes ("raw") or its log2.  ValueError where no metric has values,
    for another coding and for factors that are no numbers.
    """
    if coding not in ("raw", "log2"):
        raise ValueError(f"chunk size is coded raw or log2, not {coding!r}")
    if wrong := [name for name in factors if name not in NUMERIC]:
        raise ValueError(f"{', '.join(wrong)}: no numeric factor; there are {', '.join(NUMERIC)}")
    studies: dict[str, Study] = {}
    refused = []
    for metric in metrics:
        try:
            studies[metric] = study(ds, metric, where)
        except ValueError as error:
            refused.append(str(error))
    if not studies:
        raise ValueError(refused[0] if refused else "no metric to correlate")
    panels: dict[Key, list[Correlation]] = {}
    for metric, of in studies.items():
        for key, cells in of.series(*factors).items():
            members = panels.setdefault(key, [])
            members += [correlated(key, name, metric, cells, coding) for name in factors]
    first = next(iter(studies.values()))
    ordered = tuple(c for panel in panels.values() for c in panel)
    return Correlations(first, tuple(studies), tuple(factors), coding, tuple(panels), ordered)


def _way(known: Sequence[Correlation]) -> str:
    """ "rises" or "falls" where the interval of r leaves out 0; how often, where that differs."""
    up = sum(c.pearson_low > 0 for c in known)
    down = sum(c.pearson_high < 0 for c in known)
    rest = len(known) - up - down
    ways = [(up, "rises"), (down, "falls"), (rest, "is not shown to rise or fall")]
    seen = [(count, way) for count, way in ways if count]
    if len(seen) == 1:
        return seen[0][1]
    return ", ".join(f"{way} ({count})" for count, way in seen)


def _grid(cells: Sequence[Values]) -> frozenset[tuple[float, float]]:
    return frozenset((cell.number("chunk"), cell.number("processes")) for cell in cells)


def _apart(key: Key) -> Key:
    return tuple(pair for pair in key if pair[0] != "pattern")
