"""How one cell varies: spread, attachments that differ, two modes, drift, dependence, warm-up.

Every p here is of one question on one cell; over many cells correct them (`tests.correct`).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.results.evidence.stored import Json

# Hartigan's dip test of one mode.
#
# The dip is the largest distance between the empirical distribution and the closest distribution
# with one mode (convex below the mode, concave above).  p is from the uniform distribution, the
# one-moded distribution that is hardest to tell, by Monte Carlo for the sample's size.  Source:
# Hartigan and Hartigan, Annals of Statistics 13, 1985.  The library for it, diptest, is GPL and so
# no dependency of an Apache-licensed package; dips are checked against recorded ones of diptest.


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


FEWEST_SERIES = 6  # values whose trend is tested: 2 / 6! is the smallest p
FEWEST_DEPENDENT = 20  # values for Ljung and Box: below, its chi-squared does not hold
FEWEST_WITHIN = 5  # runs in an attachment: of fewer, residuals no longer show modes
WARM_UP_P = 0.01
SURE = 0.01
MAD_TO_SD = 1 / scipy.special.ndtri(0.75)  # of normal values
ROUNDING = 1e-24  # variance of logs: what equal values leave


@dataclass(frozen=True)
class Drift:
    """Trend over an order: Kendall's tau, its p, slope (Theil and Sen) per step as a share."""

    tau: float
    p: float
    slope: float


@dataclass(frozen=True)
class Variability:
    """Spread and structure of one cell's runs; NaN: too few to say.

    `between`, `within`: standard deviations of logs between attachments (beyond what the runs
    inside explain) and of runs inside one.  `alike`: share of the variance that is between
    attachments (intraclass correlation), `p_alike` of its F test against 0.
    `p_modes_*`: Hartigan's dip test of one mode.  `lag1`, `p_lag`: autocorrelation over the
    order of the attachments and Ljung and Box's p.  `p_inside`: trend inside attachments.
    `steady_from`: the first run inside an attachment (from 0) from which no trend shows.
    """

    runs: int
    attachments: int
    cv: float
    robust_cv: float
    between: float
    within: float
    alike: float
    p_alike: float
    p_modes_between: float
    p_modes_within: float
    lag1: float
    p_lag: float
    drift: Drift
    p_inside: float
    steady_from: int | None

    @property
    def says(self) -> list[str]:
        """What stands out, in sentences; p below 1 %."""
        lines = [f"coefficient of variation {self.cv:.2%} (robust {self.robust_cv:.2%})"]
        if self.p_alike < SURE:
            lines.append(f"runs of one attachment are alike: {self.alike:.0%} of the variance")
        if self.p_modes_between < SURE:
            lines.append("attachments have more than one mode")
        if self.p_modes_within < SURE:
            lines.append("runs inside attachments have more than one mode")
        if self.p_lag < SURE:
            lines.append(f"attachments depend on the one before (correlation {self.lag1:.2f})")
        if self.drift.p < SURE:
            lines.append(f"drift of {self.drift.slope:+.2%} per attachment")
        if self.p_inside < SURE:
            since = self.steady_from
            until = "nowhere steady" if since is None else f"steady from run {since + 1} on"
            lines.append(f"trend inside attachments: {until}")
        return lines

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return asdict(self) | {"says": self.says}


def variability(values: npt.ArrayLike, attachments: npt.ArrayLike) -> Variability:
    """All of it for positive values [run] in the order in which they ran; NaN are left out."""
    array, owners = np.asarray(values, dtype=np.float64), np.asarray(attachments)
    if array.ndim != 1 or array.shape != owners.shape:
        raise ValueError(f"values {array.shape} and attachments {owners.shape} must match, 1-d")
    owners, array = owners[~np.isnan(array)], array[~np.isnan(array)]
    if np.any(array <= 0):
        raise ValueError("relative spreads need positive values")
    names, first, groups = np.unique(owners, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # attachments in the order of their first run
    groups = order[groups]
    parts = [array[groups == g] for g in range(names.size)]
    logs = [np.log(part) for part in parts]
    levels = np.array([np.median(part) for part in logs])
    between, within, alike, p_alike = components(logs)
    inside = [part - part.mean() for part in logs if part.size >= FEWEST_WITHIN]
    lag1, p_lag = dependence(levels)
    return Variability(
        runs=array.size,
        attachments=names.size,
        cv=float(array.std(ddof=1) / array.mean()) if array.size > 1 else math.nan,
        robust_cv=robust_cv(array),
        between=between,
        within=within,
        alike=alike,
        p_alike=p_alike,
        p_modes_between=p_of_one_mode(levels),
        p_modes_within=p_of_one_mode(np.concatenate(inside)) if inside else math.nan,
        lag1=lag1,
        p_lag=p_lag,
        drift=drift(levels),
        p_inside=trend_inside(logs),
        steady_from=steady_from(logs),
    )


def robust_cv(values: Floats) -> float:
    """1.4826 times the median absolute deviation, over the median (sigma for normal values)."""
    if values.size < 2:
        return math.nan
    return float(MAD_TO_SD * np.median(np.abs(values - np.median(values))) / np.median(values))


def equal_spread(parts: Sequence[Floats]) -> float:
    """p that all parts (logs) spread alike (Brown and Forsythe 1974); NaN if none varies."""
    if max(np.ptp(part) for part in parts) ** 2 <= ROUNDING:
        return math.nan
    return above_zero(float(scipy.stats.levene(*parts, center="median").pvalue))


def above_zero(p: float) -> float:
    """A p that is too small for a float: no p is 0."""
    return max(float(p), float(np.finfo(float).tiny))


def components(parts: list[Floats]) -> tuple[float, float, float, float]:
    """(between, within, share between, p): one-way random effects of groups of logs.

    Standard deviations by the ANOVA estimator, with the mean group size of unbalanced designs
    (Searle, Casella and McCulloch, Variance Components, 1992, section 3.6).
    """
    sizes = np.array([part.size for part in parts], dtype=np.float64)
    n, k = sizes.sum(), sizes.size
    if k < 2 or n <= k:
        within = parts[0].std(ddof=1) if k == 1 and n > 1 else math.nan
        return math.nan, float(within), math.nan, math.nan
    means = np.array([part.mean() for part in parts])
    grand = float(sizes @ means / n)
    inner = sum(float(np.sum((p - m) ** 2)) for p, m in zip(parts, means, strict=True)) / (n - k)
    outer = float(sizes @ (means - grand) ** 2) / (k - 1)
    if inner < ROUNDING:  # nothing inside attachments scatters
        same = outer < ROUNDING
        between = 0.0 if same else math.sqrt(outer * (k - 1) / (n - (sizes @ sizes) / n))
        return between, 0.0, math.nan if same else 1.0, 1.0 if same else above_zero(0.0)
    size = (n - (sizes @ sizes) / n) / (k - 1)
    variance = max(float((outer - inner) / size), 0.0)
    p = above_zero(float(scipy.special.fdtrc(k - 1, n - k, outer / inner)))
    return math.sqrt(variance), math.sqrt(inner), variance / (variance + inner), p


def drift(levels: Floats) -> Drift:
    """Kendall's test of a trend over the order, and the slope of Theil and Sen."""
    tau, p = trend(levels)
    if math.isnan(p):
        return Drift(tau, p, math.nan)
    slope = float(scipy.stats.theilslopes(levels, np.arange(levels.size)).slope)
    return Drift(tau, p, math.expm1(slope))


def trend(levels: Floats) -> tuple[float, float]:
    """(Kendall's tau, p) of a trend over the order (Mann and Kendall); exact for few values."""
    if levels.size < FEWEST_SERIES or np.ptp(levels) ** 2 < ROUNDING:
        return math.nan, math.nan
    tau = scipy.stats.kendalltau(np.arange(levels.size), levels)
    return float(tau.statistic), float(tau.pvalue)


def dependence(levels: Floats) -> tuple[float, float]:
    """(lag-1 autocorrelation, Ljung and Box's p over n/5 lags, at most 10)."""
    n = levels.size
    if n < FEWEST_DEPENDENT or np.ptp(levels) ** 2 < ROUNDING:
        return math.nan, math.nan
    from statsmodels.stats.diagnostic import acorr_ljungbox  # takes as long as a small report
    from statsmodels.tsa.stattools import acf

    lag = float(acf(levels, nlags=1, fft=False)[1])
    return lag, float(acorr_ljungbox(levels, lags=[min(n // 5, 10)])["lb_pvalue"].iloc[0])


def trend_inside(parts: list[Floats]) -> float:
    """p of a common trend inside attachments: the sum of their Kendall scores.

    Variance without ties, k (k - 1) (2 k + 5) / 18 each (Kendall); normal, with continuity, where
    at least 10 runs are in attachments of 3 or more; NaN otherwise.
    """
    sizes = Counter(part.size for part in parts if part.size >= 3)
    if sum(k * many for k, many in sizes.items()) < 10:
        return math.nan
    score = variance = 0.0
    for k, many in sizes.items():
        same = np.stack([part for part in parts if part.size == k])
        score += float(np.triu(np.sign(same[:, np.newaxis, :] - same[:, :, np.newaxis]), 1).sum())
        variance += many * k * (k - 1) * (2 * k + 5) / 18
    return math.erfc(max(abs(score) - 1, 0) / math.sqrt(2 * variance))


def steady_from(parts: list[Floats]) -> int | None:
    """The first run, up to half of the runs of an attachment, from which no trend shows.

    None if even the second half has one, or if there are too few runs to see one.
    """
    longest = max((part.size for part in parts), default=0)
    for start in range(longest // 2 + 1):
        p = trend_inside([part[start:] for part in parts])
        if p >= WARM_UP_P:
            return start
    return None
