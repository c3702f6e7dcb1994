"""Whether what comes later depends on what came before, over all cells of a campaign together.

One cell of six blocks cannot show it; many cells of the same six blocks can.  The lag-1
autocorrelation is averaged over the cells and compared with what it is if the blocks, each with
all its cells, come in any other order: that holds whatever the cells of a block share.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis.stats.estimates.medians import Floats

FEWEST = 5  # blocks: 120 orders; of 4 the smallest p is above 4 %
MOST_ORDERS = 1999  # drawn at random above 6 blocks, which have 720
SURE = 0.01  # p below which it is said
ROUNDING = 1e-24  # variance of logs that equal values leave


def dependence(values: Floats) -> tuple[float, float]:
    """(mean lag-1 autocorrelation, p that blocks do not resemble the one before).

    `values`: logs or log ratios, shape [block, cell], blocks in the order in which they ran; cells
    with a NaN are left out.  The p is one-sided, for a positive correlation, since that makes
    intervals too narrow.  NaN with fewer than FEWEST blocks or without a cell that varies.
    """
    whole = values[:, ~np.isnan(values).any(axis=0)]
    whole = whole - whole.mean(axis=0) if whole.size else whole
    squares = np.square(whole).sum(axis=0)
    vary = squares > ROUNDING * len(whole)
    if len(whole) < FEWEST or not vary.any():
        return math.nan, math.nan
    scaled = whole[:, vary] / np.sqrt(squares[vary])
    products = scaled @ scaled.T / np.count_nonzero(vary)  # [block, block]
    orders = _orders(len(whole))
    lags = products[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    return float(lags[0]), float(np.mean(lags >= lags[0] - 1e-12))


def dependent_words(values: Floats) -> str:
    """A sentence if blocks resemble the one before, otherwise ""; values as in `dependence`."""
    lag, p = dependence(values)
    if not p < SURE:
        return ""
    return (
        f"Blocks resemble the one before (correlation {lag:.2f} over the cells together): they "
        "count for less than so many independent ones, and intervals are too narrow."
    )


def _orders(blocks: int) -> npt.NDArray[np.int64]:
    """Orders of the blocks, the data's own first, [order, block]: all, or drawn at random."""
    if math.factorial(blocks) <= MOST_ORDERS:
        return np.array(list(itertools.permutations(range(blocks))))
    random = np.random.default_rng(0)
    drawn = random.permuted(np.tile(np.arange(blocks), (MOST_ORDERS, 1)), axis=1)
    drawn[0] = np.arange(blocks)
    return drawn
