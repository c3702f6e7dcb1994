"""A communicator for ranks that are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fsmatrix.suite.session.comm import Array
from tests.waiting import PATIENCE


class ThreadComm:
    """What a `Comm` does, by a list that all ranks share."""

    def __init__(self, rank: int, barrier: threading.Barrier, shared: list[Any]) -> None:
        self.rank, self.size = rank, barrier.parties
        self._barrier, self._shared = barrier, shared

    def barrier(self) -> None:
        self._barrier.wait(PATIENCE)

    sleeping_barrier = barrier

    def _all(self, value: Any) -> list[Any]:
        self._shared[self.rank] = value
        self.barrier()
        values = list(self._shared)
        self.barrier()
        return values

    def gather(self, value: Any) -> list[Any] | None:
        values = self._all(value)
        return None if self.rank else values

    def bcast(self, value: Any) -> Any:
        return self._all(value)[0]

    def sum(self, array: Array) -> Array:
        total: Array = np.sum(self._all(array), axis=0)
        return total

    def largest(self, array: Array) -> Array:
        most: Array = np.max(self._all(array), axis=0)
        return most


def in_ranks(ranks: int, work: Callable[[Any], Any]) -> tuple[list[Any], list[str]]:
    """What `work` gave in each rank, and what it raised, in order of coming."""
    barrier, shared = threading.Barrier(ranks), [None] * ranks
    given: list[Any] = [None] * ranks
    raised: list[str] = []

    def run(rank: int) -> None:
        try:
            given[rank] = work(ThreadComm(rank, barrier, shared))
        except (OSError, ValueError) as error:
            raised.append(str(error))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given, raised
