"""Draws that depend on their index alone: uniform, Zipfian, and sizes of a given mean.

Positions of the same trace agree on one machine and numpy; another library of logarithms may
round one draw in 10^8 to a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.mixing import Integers, drawn, mix, permuted

Reals = npt.NDArray[np.float64]
_DIGITS = 1 << 53
_BINS = 200_000  # of ranks, for sums over all of them; those below about 10^4 are exact


def uniform(index: Integers, key: int) -> Reals:
    """Independent draws from [0, 1), one for each index."""
    return drawn(index, _DIGITS, key) / _DIGITS


@dataclass(frozen=True)
class Zipf:
    """P(rank k) ~ k^-exponent, k = 1 ... n; exponent other than 1.

    Drawn by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): exact, and
    without a table of n entries.
    """

    n: int
    exponent: float

    def ranks(self, index: Integers, key: int) -> Integers:
        """A rank for each index; the most frequent one is 0."""
        lowest, highest = float(self._area(np.array(1.5))) - 1, float(self._area(self.n + 0.5))
        # below this distance from a rank every draw is accepted
        near = 2 - float(self._position(self._area(np.array(2.5)) - 2.0**-self.exponent))
        ranks = np.ones(len(index), dtype=np.int64)
        open_, turn = np.arange(len(index)), 0
        while len(open_):
            area = highest + uniform(index[open_], mix(key, turn)) * (lowest - highest)
            at = self._position(area)
            rank = np.clip(np.floor(at + 0.5), 1, self.n)
            taken = (rank - at <= near) | (area >= self._area(rank + 0.5) - rank**-self.exponent)
            ranks[open_[taken]] = rank[taken]
            open_, turn = open_[~taken], turn + 1
        return ranks - 1

    def untouched(self, draws: int) -> float:
        """Expected share of the n ranks that `draws` draws leave out."""
        edges = np.unique(np.rint(np.geomspace(1, self.n + 1, _BINS)))
        width, middle = np.diff(edges), (edges[:-1] + edges[1:] - 1) / 2
        weight = middle**-self.exponent
        share = weight / (weight @ width)
        return float(np.exp(draws * np.log1p(-np.minimum(share, 1 - 1e-12))) @ width / self.n)

    def _area(self, x: Reals | float) -> Reals:
        """Integral of t^-exponent from 1 to x."""
        power = 1 - self.exponent
        return np.asarray(np.expm1(power * np.log(x)) / power)

    def _position(self, area: Reals) -> Reals:
        """The x that has this area."""
        power = 1 - self.exponent
        return np.asarray(np.exp(np.log1p(power * area) / power))


@dataclass(frozen=True)
class Sizes:
    """n whole numbers from least to most, most of them small, with a given sum.

    The n quantiles 0, 1/(n-1), ... 1 of a bounded Pareto distribution, each once and in random
    order: least, most and mean are those wanted for every n, which independent draws of so heavy
    a tail are not (for 57 bytes of up to 1 MB: 1 % off with 2e7 draws, 12 % with 2e5).
    """

    n: int
    least: int
    most: int
    mean: float

    def of(self, index: Integers, key: int) -> Integers:
        """Sizes of operations 0 ... n-1."""
        share = permuted(index, self.n, key) / max(self.n - 1, 1)
        shape = _shape(self)
        left = 1 - share + share * (self.least / self.most) ** shape
        sizes = self.least * left ** (-1 / shape)
        whole: Integers = np.minimum(sizes * (1 + 1e-12), self.most).astype(np.int64)
        return whole


@lru_cache(maxsize=16)
def _shape(sizes: Sizes) -> float:
    """Shape of the Pareto distribution whose quantiles have the mean, by bisection.

    The sum of whole numbers is the sum, over s, of how many are s or more.
    """
    logs = np.log(np.arange(sizes.least + 1, sizes.most + 1) / sizes.least)
    low, high = 1e-3, 16.0
    for _ in range(28):
        shape = (low + high) / 2
        share = np.expm1(-shape * logs) / np.expm1(-shape * logs[-1]) if len(logs) else logs
        above = sizes.n - np.ceil(share * (sizes.n - 1))
        mean = sizes.least + float(above.sum()) / sizes.n
        low, high = (shape, high) if mean > sizes.mean else (low, shape)
    return high
