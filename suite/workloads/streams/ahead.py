"""The next chunk is prepared while the threads play this one, where a CPU is free.

Reading, unpacking and converting a block of a trace takes some 60 ns an operation, and what became
of it is counted besides: with many threads that is more than playing it takes.  In an open loop
operations that are due meanwhile would be late.  The helping thread works while the lanes are in
system calls; where all CPUs have a lane it would hold one up in the middle of an operation, so
there the rank does the same between two chunks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from fsmatrix.backends.player.ops import Place

Made = TypeVar("Made")


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
