"""Latency histograms in fio's log-linear layout, so that fio's json+ bins merge exactly.

A latency in whole nanoseconds falls into one of 1856 bins: 29 groups of 64.  Groups 0 and 1
hold the values 0..127 one by one; group g >= 1 holds [2**(g+5), 2**(g+6)) in 64 equal bins,
so that a bin is never wider than 1/64 of its lower edge and its middle is off by less than
0.8 %.  (The layout is that of fio's stat.c: FIO_IO_U_PLAT_BITS 6, FIO_IO_U_PLAT_GROUP_NR 29.)
Histograms over workers, nodes and repetitions add up bin by bin; percentiles never average.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Json, JsonObject, number

BITS = 6
PER_GROUP = 1 << BITS
GROUPS = 29
BINS = GROUPS * PER_GROUP
PER_COARSE = 16  # bins in one of a timeline: a quarter of an octave, 19 % wide
COARSE = BINS // PER_COARSE

Integers = npt.NDArray[np.int64]


def bin_of(nanoseconds: npt.ArrayLike) -> Integers:
    """Bin index of each latency; shape of the input.  ValueError below 0."""
    value = np.asarray(nanoseconds, dtype=np.int64)
    if (value < 0).any():
        raise ValueError("a latency cannot be negative")
    # frexp's exponent is the bit length; exact below 2**53 ns (104 days)
    length = np.frexp(value.astype(np.float64))[1]
    shift = np.maximum(length - BITS - 1, 0)
    index = (shift << BITS) + (value >> shift)
    bins: Integers = np.minimum(index, BINS - 1).astype(np.int64)
    return bins


def lower_edges() -> Integers:
    """Lower edge of every bin in nanoseconds, shape [BINS]; bin i is [edge[i], edge[i+1])."""
    index = np.arange(BINS, dtype=np.int64)
    shift = np.maximum((index >> BITS) - 1, 0)
    return np.where(index < 2 * PER_GROUP, index, (index - (shift << BITS)) << shift)


def upper_edges() -> Integers:
    """First value beyond every bin, in nanoseconds, shape [BINS]."""
    edges = lower_edges()
    return np.append(edges[1:], 2 * edges[-1] - edges[-2])


def coarse(counts: npt.ArrayLike) -> Integers:
    """Counts [..., BINS] in a timeline's bins, [..., COARSE]: each takes PER_COARSE neighbours."""
    values = np.asarray(counts, dtype=np.int64)
    summed: Integers = values.reshape(*values.shape[:-1], COARSE, PER_COARSE).sum(axis=-1)
    return summed


def coarse_edges() -> Integers:
    """Edges of a timeline's bins in nanoseconds, shape [COARSE + 1]; the first is 0."""
    return np.append(lower_edges()[::PER_COARSE], upper_edges()[-1])


def sparse(counts: npt.ArrayLike) -> dict[str, Json]:
    """Whole numbers [n] as JSON: the length, and where (`at`) which `values` are not zero."""
    values = np.asarray(counts, dtype=np.int64)
    at = np.flatnonzero(values)
    return {"length": len(values), "at": at.tolist(), "values": values[at].tolist()}


def dense(stored: JsonObject) -> Integers:
    """The array of `sparse`.  ValueError if it cannot be its answer."""
    at, given = (np.array(stored[name], dtype=np.int64) for name in ("at", "values"))
    length = int(number(stored["length"]))
    if len(at) != len(given) or (len(at) and not 0 <= at.min() <= at.max() < length):
        raise ValueError(f"{len(given)} values at {len(at)} places of {length}")
    values = np.zeros(length, dtype=np.int64)
    values[at] = given
    return values


def percentile(counts: npt.ArrayLike, q: float) -> float:
    """Latency in seconds below which a share `q` (0 < q < 1) of the operations stayed.

    The middle of the bin in which the rank ceil(q n) falls; NaN if there are fewer than
    10 / (1 - q) operations (too few to see that quantile).
    """
    n = np.asarray(counts, dtype=np.int64)
    total = int(n.sum())
    if not 0 < q < 1:
        raise ValueError(f"q must lie between 0 and 1, not {q}")
    if total == 0 or total * (1 - q) < 10 * (1 - 1e-9):
        return float("nan")
    rank = int(np.ceil(q * total - 1e-9))
    index = int(np.searchsorted(np.cumsum(n), max(rank, 1)))
    return float(_double_middles()[index]) / 2e9


@cache
def _double_middles() -> Integers:
    """Twice the middle of every bin in nanoseconds."""
    return lower_edges() + upper_edges() - 1
