"""The few collective operations that a run needs, over MPI or over nothing (`local`)."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PATIENCE = (0.0001, 0.001)  # seconds between two looks, first and longest
POST_TAG = 11
GATHER_TAG = 12


class Comm(Protocol):
    """A group of ranks that all call the same collective in the same order."""

    rank: int
    size: int

    def barrier(self) -> None: ...
    def sleeping_barrier(self) -> None:
        """As barrier, asleep most of the time: who is done burns nothing beside who is not."""

    def gather(self, value: Any) -> list[Any] | None:
        """JSON-able values of all ranks at rank 0, None elsewhere."""

    def bcast(self, value: Any) -> Any: ...
    def sum(self, array: Array) -> Array:
        """Element-wise sum at rank 0 (undefined elsewhere): one MPI reduce."""

    def largest(self, array: Array) -> Array:
        """Element-wise maximum, at every rank."""

    def place(self) -> tuple[str, int]:
        """MPI's name of this node, and the lowest of the ranks that share memory with this one."""

    def post(self, data: bytes, rank: int) -> None:
        """Send to one rank, which looks for it by `fetch`."""

    def fetch(self) -> bytes | None:
        """What some rank has posted to this one, None if nothing has come."""

    def subgroup(self, members: Sequence[int]) -> Comm:
        """The sub-communicator of `members` (called by members only)."""


class SoloComm:
    """A world of one process, without MPI."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Return at once: there is no other rank to wait for."""

    sleeping_barrier = barrier

    def gather(self, value: Any) -> list[Any] | None:
        return [value]

    def bcast(self, value: Any) -> Any:
        return value

    def sum(self, array: Array) -> Array:
        return array

    def largest(self, array: Array) -> Array:
        return array

    def place(self) -> tuple[str, int]:
        return platform.node(), 0

    def post(self, data: bytes, rank: int) -> None:
        raise ValueError(f"no rank {rank} in a world of one for {len(data)} bytes")

    def fetch(self) -> bytes | None:
        return None

    def subgroup(self, members: Sequence[int]) -> SoloComm:
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

    def sleeping_barrier(self) -> None:
        wait, longest = PATIENCE
        request = self.handle.Ibarrier()
        while not request.Test():
            time.sleep(wait)
            wait = min(2 * wait, longest)

    def gather(self, value: Any) -> list[Any] | None:
        """Along a binomial tree: log2(size) messages at rank 0, where MPI's gatherv has size.

        A rank passes on what its subtree says, which is a row of neighbours, in their order.
        """
        texts = [json.dumps(value).encode()]
        distance = 1
        while distance < self.size:
            if self.rank & distance:
                self._send(b",".join(texts), self.rank - distance, GATHER_TAG)
                return None
            if self.rank + distance < self.size:
                texts.append(self._receive(self.rank + distance, GATHER_TAG))
            distance *= 2
        gathered: list[Any] = json.loads(b"[" + b",".join(texts) + b"]")
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

    def place(self) -> tuple[str, int]:
        from mpi4py import MPI

        sharing = self.handle.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        lowest = np.array([self.rank], dtype=np.int64)
        sharing.Bcast(lowest, root=0)  # its ranks are in the order of ours
        _forget_names(sharing)
        sharing.Free()
        return str(MPI.Get_processor_name()), int(lowest[0])

    def post(self, data: bytes, rank: int) -> None:
        self._send(data, rank, POST_TAG)

    def fetch(self) -> bytes | None:
        from mpi4py import MPI

        status = MPI.Status()
        if not self.handle.Iprobe(MPI.ANY_SOURCE, POST_TAG, status):
            return None
        return self._receive(status.Get_source(), POST_TAG)

    def _send(self, data: bytes, rank: int, tag: int) -> None:
        from mpi4py import MPI

        self.handle.Send([data, MPI.BYTE], dest=rank, tag=tag)

    def _receive(self, rank: int, tag: int) -> bytes:
        from mpi4py import MPI

        status = MPI.Status()
        self.handle.Probe(rank, tag, status)
        data = bytearray(status.Get_count(MPI.BYTE))
        self.handle.Recv([data, MPI.BYTE], source=rank, tag=tag)
        return bytes(data)

    def subgroup(self, members: Sequence[int]) -> MpiComm:
        """Kept: a run of the same geometry finds its communicator made."""
        key = tuple(members)
        if key not in self._parts:
            group = self.handle.Get_group().Incl(list(key))
            self._parts[key] = MpiComm(self.handle.Create_group(group))
            group.Free()
        return self._parts[key]


def _forget_names(sharing: Any) -> None:
    """Remove the names of Open MPI's shared memory once all ranks of a node have mapped it.

    The memory ends with the ranks then, also where srun kills them: its names in /dev/shm would
    stay, 4 MiB and more of a node's memory for each rank.  mpirun's lie in the session's folder.
    """
    from mpi4py import MPI

    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/sm_segment." in line}
    whole = np.array([len(mapped) >= sharing.Get_size()])
    sharing.Allreduce(MPI.IN_PLACE, whole, op=MPI.LAND)
    for name in mapped if whole[0] else ():
        Path(name).unlink(missing_ok=True)
