"""The few collective operations that a run needs, over MPI or over nothing (`local`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PATIENCE = (0.0001, 0.001)  # seconds between two looks, first and longest


class Comm(Protocol):
    """A group of ranks that all call the same collective in the same order."""

    rank: int
    size: int

    def barrier(self) -> None: ...
    def patient_barrier(self) -> None:
        """As barrier, asleep most of the time: who is done burns nothing beside who is not."""

    def gather(self, value: Any) -> list[Any] | None:
        """JSON-able values of all ranks at rank 0, None elsewhere."""

    def bcast(self, value: Any) -> Any: ...
    def sum(self, array: Array) -> Array:
        """Element-wise sum at rank 0 (undefined elsewhere): one MPI reduce."""

    def largest(self, array: Array) -> Array:
        """Element-wise maximum, at every rank."""

    def part(self, members: Sequence[int]) -> Comm:
        """The sub-communicator of `members` (called by members only)."""


class SoloComm:
    """A world of one process, without MPI."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Nobody to wait for."""

    patient_barrier = barrier

    def gather(self, value: Any) -> list[Any] | None:
        return [value]

    def bcast(self, value: Any) -> Any:
        return value

    def sum(self, array: Array) -> Array:
        return array

    def largest(self, array: Array) -> Array:
        return array

    def part(self, members: Sequence[int]) -> SoloComm:
        del members
        return self


class MpiComm:
    """mpi4py's communicator; imported where used, so that `local` needs no MPI."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.rank: int = handle.Get_rank()
        self.size: int = handle.Get_size()
        self._parts: dict[tuple[int, ...], MpiComm] = {}

    def barrier(self) -> None:
        self.handle.Barrier()

    def patient_barrier(self) -> None:
        wait, longest = PATIENCE
        request = self.handle.Ibarrier()
        while not request.Test():
            time.sleep(wait)
            wait = min(2 * wait, longest)

    def gather(self, value: Any) -> list[Any] | None:
        gathered: list[Any] | None = self.handle.gather(value, root=0)
        return gathered

    def bcast(self, value: Any) -> Any:
        return self.handle.bcast(value, root=0)

    def sum(self, array: Array) -> Array:
        from mpi4py import MPI

        out = np.empty_like(array)
        self.handle.Reduce(array, out, op=MPI.SUM, root=0)
        return out

    def largest(self, array: Array) -> Array:
        from mpi4py import MPI

        out = np.empty_like(array)
        self.handle.Allreduce(array, out, op=MPI.MAX)
        return out

    def part(self, members: Sequence[int]) -> MpiComm:
        """Kept: a run of the same geometry finds its communicator made."""
        key = tuple(members)
        if key not in self._parts:
            group = self.handle.Get_group().Incl(list(key))
            self._parts[key] = MpiComm(self.handle.Create_group(group))
            group.Free()
        return self._parts[key]
