"""Intervals of quantiles of independent values, from order statistics."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fsmatrix.analysis.stats.estimates.medians import LEVEL


@dataclass(frozen=True)
class Quantile:
    """A quantile of independent values and its interval; NaN where n is too small for one."""

    q: float
    value: float
    low: float
    high: float
    coverage: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    @property
    def says(self) -> str:
        """What it is, in words."""
        if np.isnan(self.low):
            return f"{self.n} values cannot bound the quantile {self.q:g}"
        return f"quantile {self.q:g}: {self.low:.4g} to {self.high:.4g}, {self.coverage:.2%}"


def quantile(values: npt.ArrayLike, q: float, level: float = LEVEL) -> Quantile:
    """Interval of the quantile q of independent values, shape [n], from order statistics.

    The narrowest equal-tailed pair of ranks; coverage from the binomial (n, q), exact for
    continuous distributions.  Source: Le Boudec 2010, section 2.2.2.
    """
    array = np.sort(np.asarray(values, dtype=np.float64).ravel())
    array = array[~np.isnan(array)]
    n = array.size
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not {q}")
    if not n:
        return Quantile(q, math.nan, math.nan, math.nan, 0.0, 0)
    tail = (1 - level) / 2
    below = stats.binom.cdf(np.arange(n + 1), n, q)  # P(B <= i)
    lower = int(np.searchsorted(below, tail, side="right")) - 1  # x[lower] is the lower bound
    upper = int(np.searchsorted(below, 1 - tail - 1e-12))  # x[upper] is the upper one
    value = float(np.quantile(array, q))
    if lower < 0 or upper >= n:
        return Quantile(q, value, math.nan, math.nan, 0.0, n)
    coverage = float(below[upper] - below[lower])
    return Quantile(q, value, float(array[lower]), float(array[upper]), coverage, n)
