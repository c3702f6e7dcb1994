"""Quantile regression of latencies on factors, from histograms.

A histogram of a cell (one level of every factor) holds the operations of an attachment, thousands
of them, so the conditional quantile of the cell in that attachment is a number that can be read.
What is left is a linear regression of the logs of these quantiles on the factors: minimum distance
(Chamberlain, "Quantile regression, censoring, and the structure of wages", in Advances in
Econometrics, Sixth World Congress, 1994), with each group of observations by itself (Chetverikov,
Larsen and Palmer, Econometrica 84, 2016).  It is done in each block, which repeats the whole
experiment, and only among cells that differ in the one factor: what else the block or the other
factors do to all of them cancels.  Blocks are independent, so the interval of the typical block's
slope is that of a median (`intervals.from_logs`), whatever the distribution of latencies.

The other way, check loss over the operations of all attachments and a bootstrap of attachments,
estimates a quantile of the mixture of attachments: far out that is a quantile of the slowest of
them, of which 6 to 12 say little.  Its 95 % interval covers less (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.results import histogram

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
# of a log quantile: half a bin above its middle, the most that a histogram hides
HALF_BIN = math.log1p(1 / (2 * histogram.PER_GROUP))


@dataclass(frozen=True)
class Slope:
    """A ratio of quantiles: of the typical block, with its 95 % interval.

    The ends hold what bins hide too.  `low` and `high` are NaN with fewer than SMALLEST blocks.
    """

    ratio: float
    low: float
    high: float

    @property
    def decides(self) -> bool:
        """Whether there is an interval."""
        return not math.isnan(self.low)

    @property
    def proven(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.low > 1 or self.high < 1

    @property
    def turned(self) -> Slope:
        """The ratio the other way round."""
        return Slope(1 / self.ratio, 1 / self.high, 1 / self.low)


@dataclass(frozen=True)
class Contrasts:
    """A contrast of log quantiles in each block, of several series of cells.

    `hidden`: the most that bins change it, [series].
    """

    values: Floats  # [block, series]
    hidden: Floats

    def __sub__(self, other: Contrasts) -> Contrasts:
        """The difference of two contrasts of the same series."""
        return Contrasts(self.values - other.values, self.hidden + other.hidden)

    def of(self, series: int) -> Contrasts:
        """One series alone."""
        return Contrasts(self.values[:, [series]], self.hidden[[series]])


def complete(present: Mask) -> tuple[Places, Places]:
    """(blocks, cells) of which each block has each cell, by number; known: [block, cell].

    Cells that not all of the SMALLEST fullest blocks have are left out, then blocks that lack one
    of the other cells.  The fullest: they have most of the cells of the one with most cells.
    """
    first = present[int(np.argmax(present.sum(axis=1)))]
    fullest = np.argsort((first & ~present).sum(axis=1), kind="stable")[:SMALLEST]
    cells = np.flatnonzero(present[fullest].all(axis=0))
    return np.flatnonzero(present[:, cells].all(axis=1) & (cells.size > 0)), cells


def contrasts(logs: Floats, series: Sequence[tuple[Sequence[int], Floats]]) -> Contrasts:
    """logs: of quantiles, [block, cell]; series: the cells of each and their weights, of sum 0."""
    values = [logs[:, list(cells)] @ weights for cells, weights in series]
    hidden = [HALF_BIN * float(np.abs(weights).sum()) for _, weights in series]
    return Contrasts(np.stack(values, axis=1), np.array(hidden))


def weights(x: npt.ArrayLike) -> Floats:
    """What least squares multiply values at x [cell] with for their slope; two different x."""
    at = np.asarray(x, dtype=np.float64)
    away = at - at.mean()
    return np.asarray(away / np.square(away).sum())


def slope(of: Contrasts) -> Slope:
    """The mean of all series as a ratio, over blocks."""
    return _over_blocks(of.values.mean(axis=1), float(of.hidden.mean()))


def unlike(of: Contrasts) -> list[int]:
    """Series that differ from the mean of all, with 5 % for any false one.

    max-T over sign flips of whole blocks, and an interval of the difference without what bins hide.
    """
    blocks, size = of.values.shape
    if size < 2 or blocks < SMALLEST:
        return []
    away = of.values - of.values.mean(axis=1, keepdims=True)
    p = signflips.max_t(away, ALPHA).p
    hidden = of.hidden + of.hidden.mean()
    return [
        int(i)
        for i in np.flatnonzero(p <= ALPHA)
        if _over_blocks(away[:, i], float(hidden[i])).proven
    ]


def _over_blocks(values: Floats, hidden: float) -> Slope:
    ratio = intervals.from_logs((values,))
    if ratio.kind != "interval":
        return Slope(float(np.exp(np.median(values))), math.nan, math.nan)
    times = math.exp(hidden)
    return Slope(ratio.ratio, ratio.low / times, ratio.high * times)
