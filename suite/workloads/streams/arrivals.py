"""When the operations of an open loop are due: a process of arrivals for each worker.

A worker is a thread of a rank.  Constant arrivals of the workers lie between each other: all
together they are evenly spaced.  Poisson arrivals are independent, and the same for the same seed
of the run.  Times are ns after the phase's start; the first LEAD_NS of it are for opening files,
and a rank that has not opened its own by then begins later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, Place, mix, salt, scrambled
from fsmatrix.results.evidence.openloop import DUE, SPAN
from fsmatrix.results.evidence.stored import Stored

LEAD_NS = 50_000_000
MAKING_NS = 10_000_000  # from the opening to the first arrival: the first chunk is made then
AT_ONCE = 1 << 16  # arrivals that are counted at once
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Arrivals(Stored):
    """Of the workers of one phase."""

    rate: float  # operations per second of each worker
    poisson: bool
    until: int  # ns after the phase's start, when its arrivals are to end: arrivals before it count


class Schedule:
    """The arrivals of one rank's threads, handed out in order."""

    def __init__(self, arrivals: Arrivals, place: Place, step: str) -> None:
        """`step`: its name; two steps of a run have different arrivals."""
        self.until = arrivals.until
        self._poisson = arrivals.poisson
        self._gap = 1e9 / arrivals.rate  # ns
        self._threads = place.threads
        workers = [place.rank * place.threads + thread for thread in range(place.threads)]
        self._share = [worker / (place.ranks * place.threads) for worker in workers]
        self._keys = [mix(place.seed, worker, salt(step), salt("arrivals")) for worker in workers]
        self._taken = [0] * place.threads
        self._last = [0.0] * place.threads  # ns after the begin
        self._begin = LEAD_NS
        self._due = 0

    def opened(self, ns: int) -> None:
        """The rank's files were open then: no arrival of it is before, nor while a chunk is made.

        Constant arrivals move by whole gaps, so that they stay between those of other workers.
        """
        late = max(ns + MAKING_NS - LEAD_NS, 0)
        self._begin = LEAD_NS + (
            late if self._poisson else round(-(-late // self._gap) * self._gap)
        )

    def times(self, stream: Integers) -> Integers:
        """When each operation is due, shape [operation]: the next arrival of its thread."""
        if self._threads == 1:
            return self._next(0, len(stream))
        times = np.empty(len(stream), dtype=np.int64)
        for thread in range(self._threads):
            own = np.flatnonzero(stream % self._threads == thread)
            times[own] = self._next(thread, len(own))
        return times

    @property
    def over(self) -> bool:
        """Whether every thread has come to the end."""
        return self._begin + min(self._last) >= self.until

    def tallies(self, *, endless: bool) -> Mapping[str, int]:
        """Arrivals before the end; of endless ones also those that were not asked for."""
        for thread in range(self._threads if endless else 0):
            while self._begin + self._last[thread] < self.until:
                self._next(thread, AT_ONCE)
        return {DUE: self._due, SPAN: max(self.until - self._begin, 0)}

    def _next(self, thread: int, count: int) -> Integers:
        """The next arrivals of a thread, in order, shape [count]."""
        if not count:
            return np.zeros(0, dtype=np.int64)
        first = self._taken[thread]
        self._taken[thread] += count
        index = np.arange(first, first + count, dtype=np.uint64)
        if self._poisson:
            since = (
                self._last[thread] + np.cumsum(_exponential(index, self._keys[thread])) * self._gap
            )
        else:
            since = (index.astype(np.float64) + self._share[thread]) * self._gap
        self._last[thread] = float(since[-1])
        times: Integers = self._begin + since.astype(np.int64)
        self._due += int(np.searchsorted(times, self.until))
        return times


def _exponential(index: npt.NDArray[np.uint64], key: int) -> Floats:
    """Independent draws with mean 1, one for each index: -log of uniform ones in (0, 1)."""
    uniform = ((scrambled(index, key) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    drawn: Floats = -np.log(uniform)
    return drawn
