"""Intervals of a median from order statistics, without a model of the distribution.

With n independent values of one continuous distribution the number of them below the true
median is binomial(n, 1/2), so [x_(k), x_(n+1-k)] holds the median with probability
1 - 2 P(B <= k - 1).  Between two such intervals `position` interpolates: without that 8 values
would have a wider interval than 6.  Sources: Hettmansperger and Sheather, "Confidence intervals
based on interpolated order statistics", 1986; Le Boudec, "Performance Evaluation of Computer and
Communication Systems", 2010, section 2.2; Hoefler and Belli, "Scientific Benchmarking of
Parallel Computing Systems", SC'15, rule 5.

Repetitions inside one attachment are not independent, so values are first reduced to one
per attachment.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Groups = npt.NDArray[np.int64]
T = TypeVar("T", np.float64, np.int64)
Kind = Literal["interval", "range", "one session", "none"]
LEVEL = 0.95
FAR_TIMES = 2.0  # a value this many times the median of the others, or its share, may be far off
FAR_SPREADS = 5.0  # and if it lies further from it than so many standard deviations of the others
SMALLEST = 6  # independent values: 1 - 2 * 0.5**6 = 0.969 is the first above 95 %


@dataclass(frozen=True)
class Median:
    """A median and how sure it is.  Values in the unit of the input; NaN without values.

    `interval`: low..high covers the true median with probability `coverage` >= 95 %.
    `range`: too few independent values; smallest..largest, covers with `coverage` < 95 %.
    `one session`: all values are of one attachment; low..high says nothing about others,
    `coverage` holds for repetitions within that session only.
    """

    median: float
    low: float
    high: float
    coverage: float
    runs: int  # values that are numbers
    independent: int  # attachments that they are of
    kind: Kind
    far: tuple[float, ...] = ()  # of the values that it is of: those far from all others

    @property
    def decides(self) -> bool:
        """Whether a verdict may be drawn from it: a 95 % interval over attachments."""
        return self.kind == "interval"

    @property
    def says(self) -> str:
        """What low..high is, in words."""
        percent = f"{100 * self.coverage:.4g} %"
        if self.kind == "interval":
            return f"interval of the median, coverage {percent}"
        if self.kind == "range":
            return f"range of {self.independent} independent values, coverage {percent}, no verdict"
        if self.kind == "one session":
            return f"within one session only ({self.runs} runs, coverage there {percent})"
        return "no values"


def outside(n: int) -> Floats:
    """Chance that the median lies outside [x_(k), x_(n+1-k)], for k = 1 to (n + 1) // 2: [k]."""
    return np.asarray(2 * scipy.special.bdtr(np.arange((n + 1) // 2), n, 0.5))


@functools.cache
def ranks(n: int, level: float = LEVEL) -> tuple[int, float]:
    """(k, coverage): [x_(k), x_(n+1-k)], 1-based, is the narrowest symmetric interval.

    The largest k with coverage 1 - 2 P(binomial(n, 1/2) <= k - 1) >= level; k = 1, the
    whole range, if even that covers less.  ValueError for n < 1 or a level outside (0, 1).
    """
    if n < 1:
        raise ValueError(f"an interval needs at least one value, not {n}")
    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {level}")
    coverage = 1 - outside(n)
    enough = np.flatnonzero(coverage >= level)
    best = int(enough[-1]) if enough.size else 0
    return best + 1, max(float(coverage[best]), 0.0)


@functools.cache
def position(n: int, level: float = LEVEL) -> tuple[int, float, float]:
    """(k, weight, coverage) of the interval of n values at `level`, between two order statistics.

    Its ends lie at (1 - weight) x_(k) + weight x_(k+1) and mirrored, so that its coverage is near
    `level` whatever n (Hettmansperger and Sheather, Statistics and Probability Letters 4, 1986,
    equation 2.2; exact for no distribution, near for all symmetric and many skewed ones).  The
    whole range and its own coverage where even that covers less.  ValueError as `ranks`.
    """
    k, wide = ranks(n, level)
    if wide <= level or 2 * (k + 1) > n:
        return k, 0.0, wide
    narrow = float(1 - outside(n)[k])
    share = (wide - level) / (wide - narrow)
    return k, (n - k) * share / (k + (n - 2 * k) * share), level


def interpolated(ordered: Floats, level: float = LEVEL) -> tuple[float, float, float]:
    """(low, high, coverage) of the median of independent values in ascending order, shape [n].

    The interval of `position`.
    """
    n = ordered.size
    k, weight, coverage = position(n, level)
    low, high = float(ordered[k - 1]), float(ordered[n - k])
    if not weight:
        return low, high, coverage
    inner_low, inner_high = float(ordered[k]), float(ordered[n - k - 1])
    return low + weight * (inner_low - low), high + weight * (inner_high - high), coverage


def of_independent(values: npt.ArrayLike, level: float = LEVEL) -> Median:
    """Median and interval of independent values, shape [n]; NaN are left out."""
    array = np.asarray(values, dtype=np.float64).ravel()
    array = np.sort(array[~np.isnan(array)])
    n = array.size
    if n == 0:
        nan = float("nan")
        return Median(nan, nan, nan, 0.0, 0, 0, "none")
    low, high, coverage = interpolated(array, level)
    return Median(
        median=float((array[(n - 1) // 2] + array[n // 2]) / 2),
        low=low,
        high=high,
        coverage=coverage,
        runs=n,
        independent=n,
        kind="interval" if coverage >= level else "range",
        far=far_off(array),
    )


def far_off(values: Floats) -> tuple[float, ...]:
    """Those of three or more non-negative values that lie far from the others; shape [n], sorted.

    Further from the median of the others than FAR_TIMES, and than FAR_SPREADS of their standard
    deviation, as their median absolute deviation gives it (1.4826 times; Rousseeuw and Croux,
    JASA 88, 1993), both of logs.
    """
    if values.size < 3 or values[0] < 0 or not values[-1] > FAR_TIMES * values[0]:
        return ()
    far = []
    for i, value in enumerate(values):
        others = np.delete(values, i)
        middle = float(np.median(others))
        if middle <= 0 or middle / FAR_TIMES <= value <= middle * FAR_TIMES:
            continue
        if value <= 0:
            far.append(float(value))
            continue
        logs = np.log(others[others > 0]) - math.log(middle)
        spread = 1.4826 * float(np.median(np.abs(logs)))
        if abs(math.log(value) - math.log(middle)) > FAR_SPREADS * spread:
            far.append(float(value))
    return tuple(far) if 2 * len(far) < values.size else ()  # half of them: two typical values


def per_attachment(values: npt.ArrayLike, attachments: npt.ArrayLike) -> Floats:
    """The median of each attachment's values, shape [attachment]; NaN are left out.

    `values` and `attachments` (labels) have shape [run]; ValueError if they differ.
    """
    array = np.asarray(values, dtype=np.float64)
    labels = np.asarray(attachments)
    if array.ndim != 1 or array.shape != labels.shape:
        raise ValueError(f"values {array.shape} and attachments {labels.shape} must match, 1-d")
    valued = ~np.isnan(array)
    owner = labels[valued]
    if not _are_codes(owner):
        owner = np.unique(owner, return_inverse=True)[1]
    order = np.lexsort((array[valued], owner))
    ordered = array[valued][order]
    size = np.bincount(owner)
    size = size[size > 0]
    first = np.cumsum(size) - size
    middle: Floats = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2
    return middle


def _are_codes(labels: npt.NDArray[Any]) -> bool:
    """Whether they are small whole numbers, so that they can be counted as they are."""
    return labels.dtype.kind == "i" and labels.size > 0 and 0 <= labels.min() <= labels.max() < 1e6


def per_group(values: Floats, groups: Groups) -> tuple[Groups, Floats]:
    """(the groups that have a value, ascending; the median of each), for very many values.

    `values` and `groups` (whole numbers) have shape [run]; NaN are left out.
    """
    each = pd.Series(values).groupby(groups).median().dropna()
    return each.index.to_numpy(dtype=np.int64), each.to_numpy(dtype=np.float64)


def of_runs(values: npt.ArrayLike, attachments: npt.ArrayLike, level: float = LEVEL) -> Median:
    """Median and interval of runs, shape [run], that share attachments.

    One value per attachment, then `of_independent`.  With a single attachment the interval
    is over its runs and marked `one session`.
    """
    array = np.asarray(values, dtype=np.float64)
    runs = int(np.count_nonzero(~np.isnan(array)))
    return _of_attachments(per_attachment(array, attachments), array, runs, level)


def of_cells(
    values: Floats, groups: Groups, cells: Groups, size: int, level: float = LEVEL
) -> list[Median]:
    """`of_runs` of each of `size` cells at once.

    `groups` [run]: the number of the run's attachment in its cell, `cells` [group]: its cell.
    """
    cell = cells[groups]
    runs = np.bincount(cell[~np.isnan(values)], minlength=size).tolist()
    kept, middle = per_group(values, groups)
    reduced = split(middle, cells[kept], size)
    alone = any(means.size == 1 for means in reduced)  # then the interval is over its runs
    every = split(values, cell, size) if alone else reduced
    return [_of_attachments(*of_cell, level) for of_cell in zip(reduced, every, runs, strict=True)]


def _of_attachments(reduced: Floats, every: Floats, runs: int, level: float) -> Median:
    alone = reduced.size == 1
    result = of_independent(every if alone else reduced, level)
    kind: Kind = "one session" if alone else result.kind
    return replace(result, runs=runs, independent=int(reduced.size), kind=kind)


def split(values: npt.NDArray[T], owners: Groups, size: int) -> list[npt.NDArray[T]]:
    """The values of each of `size` owners, in their order."""
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(1, size + 1))
    return np.split(values[order], ends)[:size]
