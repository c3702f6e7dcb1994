"""Hartigan's dip test of one mode.

The dip is the largest distance between the empirical distribution and the closest distribution
with one mode (convex below the mode, concave above).  p is from the uniform distribution, the
one-moded distribution that is hardest to tell, by Monte Carlo for the sample's size.  Source:
Hartigan and Hartigan, Annals of Statistics 13, 1985.  The library for it, diptest, is GPL and so
no dependency of an Apache-licensed package; dips are checked against recorded ones of diptest.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis.stats.estimates.medians import Floats

FEWEST = 8  # values
DRAWS = 1000  # p is known to 1/1000
SMALLEST_P = 1 / (DRAWS + 1)
LARGEST = 200  # values in a drawn sample; dip * sqrt(n) hardly changes beyond


def _minorant(x: Floats, y: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The greatest convex function below the points (x ascending) at each x, and its vertices."""
    kept: list[int] = []
    xs, ys = x.tolist(), y.tolist()
    for i in range(len(xs)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[a]) < (ys[i] - ys[a]) * (xs[b] - xs[a]):
                break
            kept.pop()
        kept.append(i)
    vertices = np.array(kept, dtype=np.int64)
    return np.interp(x, x[vertices], y[vertices]), vertices


def dip(values: npt.ArrayLike) -> float:
    """The dip of values, shape [n]; between 1 / (2 n) and 1/4.

    The modal interval shrinks from the whole range to where the convex minorant and the concave
    majorant of the distribution are furthest apart, until they are as close as the distribution
    outside is to them.
    """
    x, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    n = int(counts.sum())
    upto = np.cumsum(counts) / n  # the distribution at each x, and just below it
    below = upto - counts / n
    low, high, distance = 0, x.size - 1, 1 / n
    while True:
        part = slice(low, high + 1)
        convex, bends = _minorant(x[part], below[part])
        mirror, turned = _minorant(-x[part][::-1], -upto[part][::-1])
        concave, knees = -mirror[::-1], (high - low - turned)[::-1]
        gap = concave - convex
        left = int(bends[np.argmax(gap[bends])])
        right = int(knees[np.argmax(gap[knees])])
        if gap[left] >= gap[right]:
            right = int(knees[np.searchsorted(knees, left)])
        else:
            left = int(bends[np.searchsorted(bends, right, side="right") - 1])
        if gap[[left, right]].max() <= distance + 1e-12:
            return distance / 2
        outside_left = (upto[part] - convex)[:left].max(initial=0.0)
        outside_right = (concave - below[part])[right + 1 :].max(initial=0.0)
        distance = max(distance, float(outside_left), float(outside_right))
        if (left, right) == (0, high - low):
            return distance / 2
        low, high = low + left, low + right


@functools.cache
def _null(n: int) -> Floats:
    """Sorted dips of DRAWS uniform samples of n values."""
    random = np.random.default_rng(n)
    return np.sort([dip(random.random(n)) for _ in range(DRAWS)])


def p_of_one_mode(values: npt.ArrayLike) -> float:
    """p that the distribution of independent values [n] has one mode; NaN below FEWEST."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < FEWEST:
        return float("nan")
    size = min(array.size, LARGEST)
    scaled = dip(array) * np.sqrt(array.size / size)
    beyond = DRAWS - int(np.searchsorted(_null(size), scaled - 1e-12))
    return (beyond + 1) / (DRAWS + 1)
