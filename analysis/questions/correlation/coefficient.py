"""r of a factor and a metric over cells, with its interval.

A value is one attachment's median of one cell.  Intervals are a jackknife over attachments (of
Fisher's z, with Student's t), not Fisher's own: cells of one attachment are not independent, and
the levels of a factor are no sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from fsmatrix.analysis.data.roles import Key
from fsmatrix.analysis.data.study import Values
from fsmatrix.analysis.stats.estimates.intervals import Curve
from fsmatrix.analysis.stats.estimates.medians import LEVEL, SMALLEST, Floats

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
