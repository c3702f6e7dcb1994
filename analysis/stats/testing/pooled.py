"""Cells of one comparison that borrow strength from each other: shrunken ratios and intervals.

Paired by block, the log ratio of cell j in block i is d_ij = theta_j + u_i + e_ij: u_i is what the
attachments of a block do to all cells, e_ij has a spread of its own in each cell, and the theta_j
lie around a mean with a standard deviation tau (a mixed model: target x cell, attachment random).
The mean y_j of a cell over blocks is drawn towards the mean of all cells by what its own spread
leaves in doubt, as empirical Bayes does (Morris, JASA 78, 1983, section 5: unequal variances):

    b_j = (J - 3) / (J - 1) v_j / (v_j + tau^2),   theta_j ~ y_j - b_j (y_j - mu)
    variance = v_j (1 - b_j (J - 1) / J)
               + 2 / (J - 3) b_j^2 (y_j - mu)^2 (v + tau^2) / (v_j + tau^2)

v_j: the variance of y_j apart from u, moderated over the cells (`signflips.moderate`); v: their
mean.  The mean of u is the same for all cells and is not shrunk: its half width, by Student's t
over blocks, is added as squares.  A cell that lies further from the others than UNLIKE standard
deviations would be drawn too far: it is left as it is, and the others are judged without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.analysis.stats.testing.signflips import moderate

FEWEST_CELLS = 4  # 2 / (J - 3)
FEWEST_BLOCKS = 3  # of each cell
UNLIKE = 3.0  # standard deviations: of normal cells 0.3 % lie beyond
ROUNDING = 1e-12  # of a variance


@dataclass(frozen=True)
class Pooled:
    """The shrunken ratio of one cell; low..high covers with probability `level`.

    `own`: the share of the cell's own mean in it, the rest is the mean of all cells.
    """

    ratio: float
    low: float
    high: float
    own: float
    level: float


def pooled(differences: Floats, level: float = LEVEL) -> tuple[Pooled | None, ...]:
    """The shrunken ratio of each cell from log ratios, shape [block, cell]; NaN: not measured.

    None for a cell of fewer than FEWEST_BLOCKS blocks and for one unlike the others, and for all
    with fewer than FEWEST_CELLS such cells.
    """
    size = np.count_nonzero(~np.isnan(differences), axis=0)
    use = size >= FEWEST_BLOCKS
    pools: list[Pooled | None] = [None] * size.size
    if np.count_nonzero(use) < FEWEST_CELLS:
        return tuple(pools)
    use[use] = ~_unlike(differences[:, use])
    if np.count_nonzero(use) < FEWEST_CELLS:
        return tuple(pools)
    for place, pool in zip(np.flatnonzero(use), _cells(differences[:, use], level), strict=True):
        pools[place] = pool
    return tuple(pools)


def _spreads(d: Floats) -> tuple[Floats, Floats, Floats, float]:
    """(y, v, its degrees of freedom, [cell]; the variance of u over the fewest blocks)."""
    cells = d.shape[1]
    size = np.count_nonzero(~np.isnan(d), axis=0).astype(np.float64)
    y = np.nanmean(d, axis=0)
    d = d[~np.isnan(d).all(axis=1)]
    shared = np.nanmean(d - y, axis=1)  # u of each block
    left = np.nansum((d - y - shared[:, np.newaxis]) ** 2, axis=0)
    variance = left / (size - 1) * cells / (cells - 1)
    variance = np.maximum(variance, ROUNDING * max(float(variance.max()), ROUNDING))
    variance, freedom = moderate(variance, size - 1)
    common = float(shared @ shared) / (len(shared) - 1) / float(size.min())
    return y, variance / size, freedom, common


def _unlike(d: Floats) -> npt.NDArray[np.bool_]:
    """Cells that lie further from the others than these do from each other, [cell]."""
    y, v, _, _ = _spreads(d)
    tau2, mu = _between(y, v)
    return np.asarray(np.abs(y - mu) > UNLIKE * np.sqrt(v + tau2))


def _cells(d: Floats, level: float) -> list[Pooled]:
    cells, fewest = d.shape[1], np.count_nonzero(~np.isnan(d), axis=0).min()
    y, v, freedom, common = _spreads(d)
    tau2, mu = _between(y, v)
    b = (cells - 3) / (cells - 1) * v / (v + tau2)
    far = (y - mu) ** 2 * (np.mean(v) + tau2) / (v + tau2)
    own = v * (1 - b * (cells - 1) / cells) + 2 / (cells - 3) * b**2 * far
    tail = (1 + level) / 2
    half = np.hypot(
        scipy.special.stdtrit(freedom, tail) * np.sqrt(own),
        scipy.special.stdtrit(fewest - 1, tail) * math.sqrt(common),
    )
    middle = y - b * (y - mu)
    ratio, low, high = np.exp([middle, middle - half, middle + half])
    return [
        Pooled(float(ratio[i]), float(low[i]), float(high[i]), float(1 - b[i]), level)
        for i in range(cells)
    ]


def _between(y: Floats, v: Floats) -> tuple[float, float]:
    """(variance of the cells' true means, their mean).

    The variance at which the weighted squares are what they are expected to be (Paule and Mandel,
    Journal of Research of the NBS 87, 1982); 0 where they are fewer even so.
    """

    def mean(tau2: float) -> float:
        return float(np.average(y, weights=1 / (v + tau2)))

    def excess(tau2: float) -> float:
        return float(((y - mean(tau2)) ** 2 / (v + tau2)).sum()) - (y.size - 1)

    if excess(0.0) <= 0:
        return 0.0, mean(0.0)
    most = float(((y - y.mean()) ** 2).sum()) + float(v.max())
    tau2 = float(scipy.optimize.brentq(excess, 0.0, most))
    return tau2, mean(tau2)
