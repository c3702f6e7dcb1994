"""How far a node's clock may be from the runs': by what the clients moved and what its links did.

A node's links move when the clients do.  The offset at which both series fit best is told with a
bound, and is never taken for granted: other traffic, or runs that are all alike, fit at several.

The fit is a least squares line of the node's rate over the clients', at each offset; the bound
holds all offsets whose residuals are not significantly larger (likelihood ratio, 95 %), with as
many independent samples as the autocorrelation of the residuals leaves (Bartlett).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.results.record import Floats

LIKELIHOOD = 3.841  # 95 % of chi squared with one degree of freedom
LEAST = 0.5  # share of the variance that the best offset must explain
LEAST_MOVED = 1e-3  # of what the clients moved: a thousand nodes may have shared it
CHANCE = 0.01  # that series without relation fit so well at one of the offsets
FEWEST = 5  # samples while clients moved something
FARTHEST = 15 * 3600.0  # s: no two time zones are farther from another
PARTS = 4  # offsets tried in an interval
MOST = 1 << 21  # points of time
EXACT = 1e-6  # share of variance left over that is taken for a perfect fit

Burst = tuple[float, float, float]  # begin, end (Unix time), bytes of all clients


@dataclass(frozen=True)
class ClockFit:
    """Seconds by which a node's clock seems ahead of the runs'."""

    offset: float
    bound: float  # 95 %: it is within offset - bound and offset + bound

    def uncertainty(self, taken_out: float) -> float:
        """Of a clock of which so much was taken out: how far it may be off, seconds."""
        return abs(self.offset - taken_out) + self.bound


def fit(
    bursts: Sequence[Burst], begins: Floats, ends: Floats, moved: Floats, resolution: float
) -> ClockFit | None:
    """From a node's samples (Unix time of its clock; bytes/s); None where nothing fits.

    `resolution`: of its times, seconds.
    """
    known = np.isfinite(moved) & (ends > begins)
    begins, ends, moved = begins[known], ends[known], moved[known]
    if ends.size < FEWEST or not moved.any():
        return None
    near = [
        burst
        for burst in bursts
        if burst[1] > begins[0] - FARTHEST and burst[0] < ends[-1] + FARTHEST and burst[2] > 0
    ]
    if not near:
        return None
    clients = _Cumulative.of(near)
    first, last = min(b for b, _, _ in near), max(e for _, e, _ in near)
    span = max(ends[-1] - begins[0], last - first)
    interval = float(np.median(ends - begins))
    step = max(interval / PARTS, span / MOST)
    offsets, explained = _explained(clients, first, last, begins, ends, moved, interval, step)
    if not explained.size or explained.max() < LEAST:
        return None
    best = float(offsets[explained.argmax()])
    independent = _independent(clients, best, first, last, begins, ends, moved)
    tried = explained.size / PARTS
    unlikely = independent / 2 * -np.log(max(1 - explained.max(), EXACT))
    if unlikely < np.log(tried / CHANCE):
        return None
    left = np.maximum(1 - explained, EXACT)
    alike = offsets[independent * np.log(left / left.min()) <= LIKELIHOOD]
    bound = float(np.abs(alike - best).max()) + step + resolution
    return ClockFit(best, bound)


@dataclass(frozen=True)
class _Cumulative:
    """Bytes that were moved until a time."""

    times: Floats
    bytes: Floats

    @classmethod
    def of(cls, bursts: Sequence[Burst]) -> _Cumulative:
        """Each burst at an even rate; they may overlap."""
        begin, end, size = np.array(bursts, dtype=np.float64).T
        end = np.maximum(end, begin + 1e-3)
        rate = size / (end - begin)
        order = np.argsort(edges := np.concatenate([begin, end]), kind="stable")
        slopes = np.cumsum(np.concatenate([rate, -rate])[order])
        times = edges[order]
        return cls(times, np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))]))

    def until(self, times: Floats) -> Floats:
        return np.interp(times, self.times, self.bytes)


def _explained(
    clients: _Cumulative,
    first: float,
    last: float,
    begins: Floats,
    ends: Floats,
    moved: Floats,
    interval: float,
    step: float,
) -> tuple[Floats, Floats]:
    """Offsets (s), and the share of the node's variance that the clients explain at each."""
    start = begins[0]
    points = start + step * (np.arange(int(np.ceil((ends[-1] - start) / step))) + 0.5)
    place = np.searchsorted(ends, points)
    place = np.minimum(place, ends.size - 1)
    node = np.where(points > begins[place], moved[place], 0.0)
    node = node - node.mean()
    count = int((last - first + 2 * interval) / step) + 2
    edges: Floats = first - interval + step * np.arange(count, dtype=np.float64)
    rate = np.diff(clients.until(edges)) / step
    half = interval / 2  # as the node sees it: means over an interval
    middles = (edges[1:] + edges[:-1]) / 2
    smooth = (clients.until(middles + half) - clients.until(middles - half)) / interval
    size, others = node.size, rate.size
    length = 1 << int(np.ceil(np.log2(size + others)))
    product = np.fft.rfft(node, length) * np.conj(np.fft.rfft(rate, length))
    together = np.fft.irfft(product, length)
    lags = np.arange(-(others - 1), size)
    offsets = start + lags * step - edges[0]
    lags = lags[np.abs(offsets) <= FARTHEST]
    low, high = np.maximum(0, -lags), np.minimum(others, size - lags)
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (smooth, smooth**2))
    mean = (sums[high] - sums[low]) / size
    variance = squares[high] - squares[low] - size * mean**2
    scale = float(np.sum(node**2))
    usable = (variance > 1e-9 * max(float(squares[-1]), 1e-300)) & (scale > 0)
    score = together[lags % length]
    explained = np.zeros(lags.size)
    explained[usable] = score[usable] ** 2 / (variance[usable] * scale)
    explained[score <= 0] = 0.0
    return start + lags * step - edges[0], np.minimum(explained, 1.0)


def _independent(
    clients: _Cumulative,
    offset: float,
    first: float,
    last: float,
    begins: Floats,
    ends: Floats,
    moved: Floats,
) -> float:
    """Independent samples while the clients were at work; 0 for too few, or too little moved."""
    during = (ends - offset > first) & (begins - offset < last)
    expected = clients.until(ends - offset) - clients.until(begins - offset)
    expected = (expected / (ends - begins))[during]
    if expected.size < FEWEST or np.ptp(expected) == 0:
        return 0.0
    slope, level = np.polyfit(expected, moved[during], 1)
    if slope < LEAST_MOVED:
        return 0.0
    left = moved[during] - slope * expected - level
    left = left - left.mean()
    power = float(np.sum(left**2))
    related = float(np.sum(left[1:] * left[:-1])) / power if power > 0 else 0.0
    related = min(max(related, 0.0), 0.95)
    return float(during.sum()) * (1 - related) / (1 + related)
