"""Chunks of op streams: made ahead of time, and when the operations of an open loop are due.

The next chunk is prepared while the threads play this one, where a CPU is free.  Reading, unpacking
and converting a block of a trace takes some 60 ns an operation, and what became of it is counted
besides: with many threads that is more than playing it takes.  In an open loop operations that are
due meanwhile would be late.  The helping thread works while the lanes are in system calls; where
all CPUs have a lane it would hold one up in the middle of an operation, so there the rank does the
same between two chunks.

An open loop has a process of arrivals for each rank.  Constant arrivals of the ranks lie between
each other: all together they are evenly spaced.  Poisson arrivals of the ranks are independent, and
the same for the same seed of the run.  The threads of a rank take its arrivals in turn, so that a
chunk is in the order of time and nobody waits at its end for what another thread is to do much
later.  Times are ns after the phase's start; the first LEAD_NS of it are for opening files, and a
rank that has not opened its own by then begins later.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, Place, mix, salt, scrambled
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.workloads import DUE, SPAN

Made = TypeVar("Made")

LEAD_NS = 50_000_000
MARGIN_NS = 10_000_000  # from the opening to the first arrival
AT_ONCE = 1 << 16  # arrivals that are counted at once
Floats = npt.NDArray[np.float64]


class Ahead(Protocol):
    """Does what it is given in order, at once or soon."""

    def each(self, make: Callable[[], Made | None]) -> Iterator[Made]:
        """What `make` gives, until that is None; at most two of them are in use at a time."""

    def soon(self, work: Callable[[], None]) -> None:
        """Done before `make` is called the next time but one; errors are raised by `each`."""


class _Now:
    """Between two chunks."""

    def each(self, make: Callable[[], Made | None]) -> Iterator[Made]:
        while (chunk := make()) is not None:
            yield chunk

    def soon(self, work: Callable[[], None]) -> None:
        work()


class _Beside:
    """In one helping thread, in the order in which it was asked for."""

    def __init__(self, helper: ThreadPoolExecutor) -> None:
        self._helper = helper
        self._begun: deque[Future[None]] = deque()

    def each(self, make: Callable[[], Made | None]) -> Iterator[Made]:
        following = self._helper.submit(make)
        while (chunk := following.result()) is not None:
            self._check(wait=False)
            following = self._helper.submit(make)
            yield chunk
        self._check(wait=True)

    def soon(self, work: Callable[[], None]) -> None:
        self._begun.append(self._helper.submit(work))

    def _check(self, *, wait: bool) -> None:
        """Raise errors of what is done, or of everything once it is."""
        while self._begun and (wait or self._begun[0].done()):
            self._begun.popleft().result()


@contextmanager
def prefetch(place: Place) -> Iterator[Ahead]:
    """Beside the lanes if this node has a CPU for it, for each of the ranks that play."""
    ranks = -(-place.ranks // place.nodes)
    if len(os.sched_getaffinity(0)) < ranks * (place.threads + 1):
        yield _Now()
        return
    with ThreadPoolExecutor(1, "chunks-ahead") as helper:
        yield _Beside(helper)


@dataclass(frozen=True, kw_only=True)
class Arrivals(Stored):
    """Of the ranks of one phase."""

    rate: float  # operations per second of each rank
    poisson: bool
    until: int  # ns after the phase's start: the end, what is due before it counts


class Schedule:
    """The arrivals of one rank, handed out in order."""

    def __init__(self, arrivals: Arrivals, place: Place, step: str) -> None:
        """`step`: its name; two steps of a run have different arrivals."""
        self.until = arrivals.until
        self._key = mix(place.seed, place.rank, salt(step), salt("arrivals"))
        self._poisson = arrivals.poisson
        self._gap = 1e9 / arrivals.rate  # ns
        self._share = place.rank / place.ranks  # of a gap
        self._begin = LEAD_NS
        self._last = 0.0  # ns after the begin
        self._taken = 0
        self._due = 0

    def opened(self, ns: int) -> None:
        """The rank's files were open then, ns after the start: none of its arrivals is before.

        Constant arrivals move by whole gaps, so that they stay between those of other ranks.
        """
        late = max(ns + MARGIN_NS - LEAD_NS, 0)
        if not self._poisson:
            late = round(-(-late // self._gap) * self._gap)
        self._begin = LEAD_NS + late

    def next(self, count: int) -> Integers:
        """When the next operations are due, shape [count]."""
        if not count:
            return np.zeros(0, dtype=np.int64)
        index = np.arange(self._taken, self._taken + count, dtype=np.uint64)
        if self._poisson:
            since = self._last + np.cumsum(_exponential(index, self._key)) * self._gap
        else:
            since = (index.astype(np.float64) + self._share) * self._gap
        times: Integers = self._begin + since.astype(np.int64)
        self._taken += count
        self._last = float(since[-1])
        self._due += int(np.searchsorted(times, self.until))
        return times

    @property
    def over(self) -> bool:
        """Whether the last one was not before the end."""
        return self._begin + self._last >= self.until

    def tallies(self, *, endless: bool) -> Mapping[str, int]:
        """What was due before the end; of endless work also what was not asked for."""
        while endless and not self.over:
            self.next(AT_ONCE)
        return {DUE: self._due, SPAN: max(self.until - self._begin, 0)}


def _exponential(index: npt.NDArray[np.uint64], key: int) -> Floats:
    """Independent draws with mean 1, one for each index: -log of uniform ones in (0, 1)."""
    uniform = ((scrambled(index, key) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    drawn: Floats = -np.log(uniform)
    return drawn
