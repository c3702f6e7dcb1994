"""Intervals of ratios of medians over attachments.

Paired by block: the logs of the block's ratios are independent values, and their median has an
interval from interpolated order statistics (`medians.interpolated`).

Independent: each target's median has such an interval l..u around its estimate m; they are
combined on the log scale by square-and-add (MOVER):

    low = mA - mB - hypot(mA - lA, uB - mB),   high = mA - mB + hypot(uA - mA, mB - lB)

Sources: Newcombe, Statistics in Medicine 17, 1998; Zou and Donner, Statistics in Medicine 27,
2008; Price and Bonett, J. Statistical Computation and Simulation 72, 2002 (medians).  It was
chosen by simulation (docs/statistics.md): inverting Mann-Whitney's test is narrower, but it
covers 88 % instead of 95 % where one target's spread is far below the other's, and less where
their shapes differ.

`p` of the medians is the dual of these intervals (`Curve`): at the levels of order statistics exact
for every continuous distribution, and between them interpolated as the intervals are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates import medians
from fsmatrix.analysis.stats.estimates.medians import LEVEL, SMALLEST, Floats
from fsmatrix.analysis.stats.estimates.runs import Runs, paired
from fsmatrix.analysis.units import brief
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Json

Kind = Literal["interval", "range", "one session", "none"]
Design = Literal["paired by block", "independent"]
Pairing = Literal["auto", "blocks", "none"]
BETWEEN = 64  # levels of a curve from one order statistic to the next


@dataclass(frozen=True)
class Curve:
    """Nested intervals of one quantity at all levels that the data allow, from wide to narrow.

    `alphas` ascending, `low`, `high`: shape [level]; low[i]..high[i] covers with
    1 - alphas[i].  All are empty with fewer than two values.
    """

    estimate: float
    alphas: Floats
    low: Floats
    high: Floats

    def p(self, null: float = 0.0) -> float:
        """Two-sided p of `null`: the smallest alpha whose interval leaves it out, else 1."""
        return min(self._leaves(self.low - null), self._leaves(null - self.high))

    def p_within(self, margin: float) -> float:
        """p of the two one-sided tests (TOST, Schuirmann 1987) that |quantity| >= margin."""
        sides = self._leaves(self.low + margin), self._leaves(margin - self.high)
        return max(sides) / 2 if max(sides) < 1 else 1.0

    def _leaves(self, beyond: Floats) -> float:
        """The alpha at which ascending distances [level] become positive; 1 where none does."""
        positive = np.flatnonzero(beyond > 0)
        if not positive.size:
            return 1.0
        first = int(positive[0])
        if not first:
            return float(self.alphas[0])
        step = (first - 1, first)
        return float(np.interp(0.0, beyond[[*step]], self.alphas[[*step]]))


def one_sample(values: Floats) -> Curve:
    """Intervals of the median of independent values, shape [n], as `medians.interpolated`."""
    ordered = np.sort(values)
    n = ordered.size
    if n < 2:
        nothing = np.empty(0)
        return Curve(float(ordered[0]) if n else math.nan, nothing, nothing, nothing)
    alphas, k, weight = _levels(n)
    low = ordered[k - 1] + weight * (ordered[k] - ordered[k - 1])
    high = ordered[n - k] + weight * (ordered[n - 1 - k] - ordered[n - k])
    return Curve(float(np.median(ordered)), alphas, low, high)


@functools.cache
def _levels(n: int) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """(alphas, ascending, k, weight) of `medians.position` for n values, all of shape [level].

    Those of the order statistics and BETWEEN more from each to the next.
    """
    exact = np.arange(1, n // 2 + 1)
    alphas = np.minimum(medians.outside(n)[: exact.size], 1.0)
    k = np.repeat(exact, BETWEEN)[: (exact.size - 1) * BETWEEN + 1]
    weight = np.tile(np.arange(BETWEEN) / BETWEEN, exact.size)[: k.size]
    share = k * weight / (n - k - (n - 2 * k) * weight)
    wide, narrow = alphas[k - 1], alphas[np.minimum(k, exact.size - 1)]
    return wide + share * (narrow - wide), k, weight


def two_sample(a: Floats, b: Floats) -> Curve:
    """Square-and-add intervals of median(a) - median(b), independent values [n] and [m]."""
    first, second = one_sample(a), one_sample(b)
    estimate = first.estimate - second.estimate
    if not first.alphas.size or not second.alphas.size:
        nothing = np.empty(0)
        return Curve(estimate, nothing, nothing, nothing)
    alphas = np.union1d(first.alphas, second.alphas)
    alphas = alphas[alphas >= max(first.alphas[0], second.alphas[0])]
    ends = [
        np.interp(alphas, curve.alphas, end)
        for curve in (first, second)
        for end in (curve.low, curve.high)
    ]
    down = np.hypot(first.estimate - ends[0], ends[3] - second.estimate)
    up = np.hypot(ends[1] - first.estimate, second.estimate - ends[2])
    return Curve(estimate, alphas, estimate - down, estimate + up)


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians a / b and how sure it is; low..high as ratios.

    `interval`: covers with `coverage` >= the level asked for.  `range`: the widest that so few
    values give, covers with `coverage` below it: no verdict.  `one session`: a target has one
    attachment only, so there is no interval.  `parts` are the independent logs: the blocks'
    log ratios if paired, otherwise those of a and of b.
    """

    ratio: float
    low: float
    high: float
    coverage: float
    level: float
    kind: Kind
    design: Design
    units: tuple[int, ...]  # blocks; or attachments of a and of b
    curve: Curve = field(repr=False, compare=False)
    parts: tuple[Floats, ...] = field(repr=False, compare=False)

    @property
    def decides(self) -> bool:
        """Whether a verdict may be drawn from it."""
        return self.kind == "interval"

    @property
    def differs(self) -> bool:
        """Whether the interval, taken alone, leaves out 1."""
        return self.decides and (self.low > 1 or self.high < 1)

    @property
    def p(self) -> float:
        """Two-sided p that the medians are equal, the dual of the interval; NaN without one."""
        return self.curve.p() if self.curve.alphas.size else math.nan

    def p_equal(self, x: float) -> float:
        """p that the medians differ by a factor of 1 + x or more; NaN without an interval."""
        return self.curve.p_within(float(np.log1p(x))) if self.curve.alphas.size else math.nan

    @property
    def says(self) -> str:
        """What it is, in words."""
        if self.kind == "none":
            return "no values on one side"
        of = " and ".join(str(n) for n in self.units)
        unit = "blocks" if self.design == "paired by block" else "attachments"
        start = f"ratio {brief(self.ratio, 4)}, {self.design}, {of} {unit}"
        if self.kind == "one session":
            return f"{start}: within one session only, no interval"
        name = "interval" if self.kind == "interval" else "range, no verdict,"
        return (
            f"{start}: {name} {brief(self.low, 4)} to {brief(self.high, 4)}, coverage "
            f"{100 * self.coverage:.4g} % (order statistics; 95 % needs {SMALLEST})"
        )

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        kept = {k: v for k, v in self.__dict__.items() if k not in ("curve", "parts")}
        return kept | {"units": list(self.units), "p": self.p, "says": self.says}


def ratio(a: Runs, b: Runs, level: float = LEVEL, pairing: Pairing = "auto") -> Ratio:
    """The ratio of the medians of two targets, over attachments.

    `auto` pairs by block where at least 6 blocks have both targets, and otherwise takes the
    attachments as independent, if that has more of them; values play no part in the choice.
    Paired, it is the median of the blocks' ratios.
    """
    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {level}")
    pairs = paired(a, b) if pairing != "none" else np.empty(0)
    sides = (a.logs, b.logs) if a.values.size and b.values.size else (np.empty(0), np.empty(0))
    if pairing == "blocks" or pairs.size >= min(SMALLEST, sides[0].size, sides[1].size) > 0:
        return from_logs((pairs,), level)
    return from_logs(sides, level)


def from_logs(parts: tuple[Floats, ...], level: float = LEVEL) -> Ratio:
    """The ratio from independent logs: (log ratios,) if paired, (logs of a, logs of b) if not."""
    design: Design = "paired by block" if len(parts) == 1 else "independent"
    units = tuple(int(part.size) for part in parts)
    curve = one_sample(parts[0]) if len(parts) == 1 else two_sample(*parts)
    low, high, coverage = _bounds(parts, level)
    kind: Kind = "interval" if coverage >= level else "range"
    if min(units) < 2:
        kind = "one session" if min(units) else "none"
    return Ratio(
        ratio=float(np.exp(curve.estimate)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        coverage=coverage,
        level=level,
        kind=kind,
        design=design,
        units=units,
        curve=curve,
        parts=parts,
    )


def _bounds(parts: tuple[Floats, ...], level: float) -> tuple[float, float, float]:
    """(low, high, coverage) of the log ratio; two parts are combined by square-and-add."""
    if min(part.size for part in parts) < 2:
        return math.nan, math.nan, 0.0
    ends = [medians.interpolated(np.sort(part), level) for part in parts]
    if len(parts) == 1:
        return ends[0]
    (low_a, high_a, sure_a), (low_b, high_b, sure_b) = ends
    a, b = (float(np.median(part)) for part in parts)
    down, up = math.hypot(a - low_a, high_b - b), math.hypot(high_a - a, b - low_b)
    return a - b - down, a - b + up, min(sure_a, sure_b)


# What holds over several cells: the geometric mean of their ratios as they are shown.
#
# A cell is shown by its median, so the mean is that of the cells' medians, and not the median over
# blocks of the blocks' means: those fall with every slow run of one target, although no ratio that
# is shown does.  Rows (blocks, or attachments of one side) are independent.  The standard error
# comes from the rows' mean residuals about the cells' medians, each residual cut at `CUT` scaled
# median absolute deviations of its cell, which a slow run lies beyond; the median's variance is
# pi / 2 times that of a mean.  Ends by Student's t; sides that are independent by Welch's
# approximation.  How often it covers: docs/statistics.md ("All cells together").
#
# Sources: Fleming and Wallace, CACM 29, 1986 (why geometric); Huber, Robust Statistics, 1981.


CUT = 3.0
AS_DEVIATION = 1.4826  # of normal values: their standard deviation over their MAD
ALPHAS = np.geomspace(1e-12, 1.0, 256)


@dataclass(frozen=True)
class GeometricMean:
    """The geometric mean over cells of the ratios a / b, and its interval."""

    mean: Ratio
    cells: int
    left_out: int  # blocks or attachments that lack a cell

    @property
    def says(self) -> str:
        """What it is, in words."""
        lacking = f"; {self.left_out} without all cells left out" if self.left_out else ""
        return f"geometric mean over {self.cells} cells: {self.mean.says}{lacking}"

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return self.mean.to_dict() | {
            "cells": self.cells,
            "left_out": self.left_out,
            "says": self.says,
        }


def geometric_mean(sides: Sequence[Floats], level: float = LEVEL) -> GeometricMean:
    """The geometric mean over the cells of a matrix; each of `sides` has the shape [row, cell].

    One side: log ratios, a row for each block.  Two: the logs of a and of b, a row for each
    attachment.  NaN: not measured; such rows are left out.
    """
    if len({side.shape[1] for side in sides}) > 1:
        raise ValueError(f"both sides have the same cells, not {[s.shape[1] for s in sides]}")
    whole = tuple(side[~np.isnan(side).any(axis=1)] for side in sides)
    lost = sum(map(len, sides)) - sum(map(len, whole))
    return GeometricMean(_ratio(whole, level), sides[0].shape[1], lost)


def _ratio(sides: tuple[Floats, ...], level: float) -> Ratio:
    """Of rows that have all cells; as many rows decide as of a single cell."""
    alone = from_logs(tuple(side.mean(axis=1) for side in sides), level)
    if sides[0].shape[1] == 1 or min(alone.units) < 2:
        return alone
    parts = tuple(_typical(side) for side in sides)
    estimate = sum(sign * part[0] for sign, part in zip((1, -1), parts, strict=False))
    error, freedom = _error([part[1] for part in parts])
    level = min(level, alone.coverage)
    half = float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * error
    widths = _quantiles(freedom) * error
    return Ratio(
        ratio=math.exp(estimate),
        low=math.exp(estimate - half),
        high=math.exp(estimate + half),
        coverage=level,
        level=alone.level,
        kind=alone.kind,
        design=alone.design,
        units=alone.units,
        curve=Curve(estimate, ALPHAS, estimate - widths, estimate + widths),
        parts=tuple(centre + rows for centre, rows in parts),
    )


def _typical(logs: Floats) -> tuple[float, Floats]:
    """(mean of the cells' medians, each row's mean residual about them), [row, cell] -> [row]."""
    medians = np.median(logs, axis=0)
    residuals = logs - medians
    cut = CUT * AS_DEVIATION * np.median(np.abs(residuals), axis=0)
    cut[cut == 0] = math.inf  # most of its values are equal: that says nothing of the others
    return float(medians.mean()), np.clip(residuals, -cut, cut).mean(axis=1)


def _error(residuals: Sequence[Floats]) -> tuple[float, float]:
    """(standard error, degrees of freedom) of the difference of such means; rows of each side."""
    squares = [math.pi / 2 * float(rows.var(ddof=1)) / rows.size for rows in residuals]
    total = sum(squares)
    if not total:
        return 0.0, float(sum(rows.size - 1 for rows in residuals))
    each = [square**2 / (rows.size - 1) for square, rows in zip(squares, residuals, strict=True)]
    return math.sqrt(total), total**2 / sum(each)


@functools.lru_cache(maxsize=64)
def _quantiles(freedom: float) -> Floats:
    """Two-sided quantiles of Student's distribution at `ALPHAS`."""
    return np.asarray(scipy.special.stdtrit(freedom, 1 - ALPHAS / 2))


# How sure a quantile of one run's latencies is, from the counts of a histogram.
#
# Ranks: of n independent operations the number below the quantile q is binomial(n, q), so the
# operations of two ranks bound it, and with a histogram the edges of the bins that they fall into
# (David and Nagaraja, "Order Statistics", 2003, section 7.1).  Operations of one run are seldom
# independent of each other: this is the least uncertainty that a run has, and what differs between
# attachments comes on top.


def quantile_bounds(
    counts: npt.NDArray[np.int64], q: float, level: float = LEVEL
) -> tuple[float, float]:
    """(low, high) in seconds of the quantile q of one run's latencies; counts: shape [bin].

    NaN where `histogram.percentile` shows none.  ValueError for a q outside (0, 1).
    """
    if math.isnan(histogram.percentile(counts, q)):
        return math.nan, math.nan
    total = int(counts.sum())
    tail = (1 - level) / 2
    first = max(int(scipy.stats.binom.ppf(tail, total, q)), 1)
    last = min(int(scipy.stats.binom.ppf(1 - tail, total, q)) + 1, total)
    low, high = np.searchsorted(np.cumsum(counts), [first, last])
    return float(histogram.lower_edges()[low]) / 1e9, float(histogram.upper_edges()[high]) / 1e9
