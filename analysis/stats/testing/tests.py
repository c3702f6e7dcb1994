"""Tests of two targets on independent values, effect size, and correction for many cells.

The p of a verdict is that of `Ratio.p` (medians, whatever the shapes).  The tests here ask
whether two targets behave alike at all; they stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.analysis.units import p_text
from fsmatrix.results.evidence.stored import Json

Correction = Literal["max-t", "holm", "benjamini-hochberg", "none"]  # the first needs blocks
MOST_EXACT = 50  # values on a side, without ties; more are approximated
MOST_PERMUTATIONS = 20_000
ALPHA = 0.05


@dataclass(frozen=True)
class Test:
    """A two-sided test.  `smallest`: the p that a full separation of so many values has."""

    name: str
    p: float
    smallest: float
    exact: bool

    @property
    def says(self) -> str:
        """What came of it, in words."""
        how = "exact" if self.exact else "approximate"
        if self.smallest > ALPHA:
            return f"{self.name}: cannot decide, its smallest p is {self.smallest:.3g}"
        return f"{self.name} ({how}): {p_text(self.p, 3)}"

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return asdict(self) | {"says": self.says}


def smallest_p(n: int, m: int | None = None) -> float:
    """The smallest two-sided p of a permutation test: n pairs, or n against m values.

    2 / 2**n for sign flips, 2 / C(n + m, n) for two samples: 3 against 3 give 0.1.
    """
    if n < 1 or (m is not None and m < 1):
        return 1.0
    return min(1.0, 2.0 ** (1 - n) if m is None else 2 / math.comb(n + m, n))


def fewest(tests: int, alpha: float = ALPHA) -> int:
    """Values (blocks, or attachments of each target) that let Holm reject one of `tests`.

    For `Ratio.p`: the smallest n with 2 / 2**n <= alpha / tests.
    """
    if tests < 1 or not 0 < alpha < 1:
        raise ValueError(f"{tests} tests at alpha {alpha}: nothing to decide")
    return max(2, math.ceil(1 + math.log2(tests / alpha)))


def mann_whitney(a: npt.ArrayLike, b: npt.ArrayLike) -> Test:
    """Mann-Whitney's test that independent values [n] and [m] have one distribution.

    Exact without ties up to MOST_EXACT values; with ties all permutations of the ranks where
    there are at most MOST_PERMUTATIONS, otherwise the normal approximation with continuity.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    n, m = first.size, second.size
    if not n or not m:
        return Test("Mann-Whitney", float("nan"), 1.0, True)
    name, least = "Mann-Whitney", smallest_p(n, m)
    if np.unique(np.concatenate([first, second])).size == 1:
        return Test(name, 1.0, least, True)
    ties = np.unique(np.concatenate([first, second])).size < n + m
    if not ties and max(n, m) <= MOST_EXACT:
        p = scipy.stats.mannwhitneyu(first, second, method="exact").pvalue
        return Test(name, float(p), least, True)
    if ties and math.comb(n + m, n) <= MOST_PERMUTATIONS:
        ranks = scipy.stats.rankdata(np.concatenate([first, second]))
        return Test(name, _permuted(ranks[:n], ranks[n:]), least, True)
    p = scipy.stats.mannwhitneyu(first, second, method="asymptotic").pvalue
    return Test(name, float(p), least, False)


def _permuted(a: Floats, b: Floats) -> float:
    """p of the difference of means over all splits of the values, two-sided."""
    centre = float(np.mean(np.concatenate([a, b])))
    test = scipy.stats.permutation_test(
        (a - centre, b - centre),
        lambda x, y, axis: np.abs(np.mean(x, axis=axis) - np.mean(y, axis=axis)),
        vectorized=True,
        n_resamples=MOST_PERMUTATIONS,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def signed_rank(differences: npt.ArrayLike) -> Test:
    """Wilcoxon's signed-rank test that paired differences [n] are symmetric about 0.

    Zeros by Pratt's rule.  Exact by sign flips of the ranks up to 2**n <= MOST_PERMUTATIONS,
    with ties too; above, scipy's: exact to MOST_EXACT values without ties, else approximate.
    """
    d = np.asarray(differences, dtype=np.float64)
    n = d.size
    name, least = "Wilcoxon signed rank", smallest_p(n)
    if not n:
        return Test(name, float("nan"), 1.0, True)
    if not np.any(d):
        return Test(name, 1.0, least, True)
    if 2**n > MOST_PERMUTATIONS:
        ties = np.unique(np.abs(d)).size < n or not np.all(d)
        p = scipy.stats.wilcoxon(d, zero_method="pratt", correction=True).pvalue
        return Test(name, float(p), least, n <= MOST_EXACT and not ties)
    ranks = scipy.stats.rankdata(np.abs(d)) * np.sign(d)
    signs = 1 - 2 * (np.arange(2**n)[:, np.newaxis] >> np.arange(n) & 1)
    sums = np.abs(signs @ np.abs(ranks))
    return Test(name, float(np.mean(sums >= abs(ranks.sum()) - 1e-9)), least, True)


def correct(p: Sequence[float] | Floats, method: Correction = "holm") -> Floats:
    """p corrected for all cells, same shape; NaN (not tested) stays and does not count.

    Holm bounds the chance of any false claim, Benjamini-Hochberg the share of false claims.
    ValueError for max-t, which needs the values of the blocks: `signflips.max_t`.
    (statsmodels' multipletests gives the same, but collects garbage at each call: 50 ms.)
    """
    if method == "max-t":
        raise ValueError("p alone cannot be corrected by max-t")
    raw = np.asarray(p, dtype=np.float64)
    corrected = raw.copy()
    tested = ~np.isnan(raw)
    if method == "none" or not tested.any():
        return corrected
    some = raw[tested]
    if method == "benjamini-hochberg":
        corrected[tested] = scipy.stats.false_discovery_control(some)
        return corrected
    order = np.argsort(some)
    steps = np.maximum.accumulate(some[order] * np.arange(some.size, 0, -1))
    some[order] = np.minimum(steps, 1.0)
    corrected[tested] = some
    return corrected


@dataclass(frozen=True)
class EffectSize:
    """Vargha and Delaney's A = P(a > b) + P(a = b) / 2, with an interval.

    0.5: none; 0.56, 0.64, 0.71: small, medium, large (Vargha and Delaney 2000, from Cohen's d).
    """

    a: float
    low: float
    high: float
    level: float

    @property
    def cliff(self) -> float:
        """Cliff's delta, 2 A - 1, in -1..1."""
        return 2 * self.a - 1

    @property
    def size(self) -> str:
        """Cohen's words for it."""
        if math.isnan(self.a):
            return "unknown"
        far = max(self.a, 1 - self.a)
        names = ((0.71, "large"), (0.64, "medium"), (0.56, "small"))
        return next((name for least, name in names if far >= least), "negligible")

    @property
    def says(self) -> str:
        """What it is, in words."""
        if math.isnan(self.a):
            return "no effect size of single values"
        return f"A = {self.a:.2f} ({self.low:.2f} to {self.high:.2f}), {self.size}"

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return asdict(self) | {"cliff": self.cliff, "size": self.size, "says": self.says}


def effect(a: npt.ArrayLike, b: npt.ArrayLike, level: float = LEVEL) -> EffectSize:
    """How often a value of a exceeds one of b; independent values, shapes [n] and [m].

    The variance of A is at most A (1 - A) / min(n, m) (van Dantzig 1951; Birnbaum and Klose
    1957), that of a proportion of min(n, m) draws: Clopper and Pearson's interval of it is
    conservative, also for a full separation, where intervals from estimated variances vanish.
    NaN with a single value on a side, which is always above or below the other's: 1 or 0.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(first.size, second.size) < 2:
        return EffectSize(math.nan, math.nan, math.nan, level)
    signs = np.sign(first[:, np.newaxis] - second[np.newaxis, :])
    value = float(np.mean(signs) / 2 + 0.5)
    n, tail = min(first.size, second.size), (1 - level) / 2
    hits = value * n
    low = float(scipy.special.betaincinv(hits, n - hits + 1, tail)) if hits > 0 else 0.0
    high = float(scipy.special.betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return EffectSize(value, low, high, level)
