"""A rank of a session that counts: MPI messages, frames on sockets, CPU time.

`bench/scale.py` starts it in the place of `-m fsmatrix.suite.session`, with
`--mca pml_monitoring_enable 1`.  Open MPI then counts every message that leaves this rank,
those underneath collectives too, per receiver; the MPI tool interface (MPI-4.1, chapter 15)
reads the counts while the session runs.  Frames are counted where they are packed and read.

With FSMATRIX_SCALE_KERNELS set every node says that it has a kernel of its own, as real nodes
do: clocks are then compared, and caches, sampling and calls happen on every node.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from fsmatrix.backends.player.ops import Place
from fsmatrix.suite.session import __main__ as session
from fsmatrix.suite.session import survey, wire

Counts = npt.NDArray[np.int64]
NAMES = ("pml_monitoring_messages_count", "pml_monitoring_messages_size")
CLASS_SIZE = 2  # MPI_T_PVAR_CLASS_SIZE in Open MPI's mpi.h


class Sent:
    """Messages and bytes that this rank has sent by MPI so far, per rank of the world."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["MPI4PY_LIBMPI"])
        self._session = ctypes.c_void_p()
        self._call("init_thread", 0, ctypes.byref(ctypes.c_int()))
        self._call("pvar_session_create", ctypes.byref(self._session))
        self._handles = [self._handle(name) for name in NAMES]

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, f"MPI_T_{name}")(*arguments)
        if code:
            raise RuntimeError(f"MPI_T_{name} answered {code}: is pml_monitoring there?")

    def _handle(self, name: str) -> ctypes.c_void_p:
        index, size, handle = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self._call("pvar_get_index", name.encode(), CLASS_SIZE, ctypes.byref(index))
        world = ctypes.c_void_p.from_address(MPI._addressof(MPI.COMM_WORLD))
        self._call(
            "pvar_handle_alloc",
            self._session,
            index,
            ctypes.byref(world),
            ctypes.byref(handle),
            ctypes.byref(size),
        )
        if size.value != MPI.COMM_WORLD.Get_size():
            raise RuntimeError(f"{name} has {size.value} receivers")
        self._call("pvar_start", self._session, handle)
        return handle

    def read(self) -> Counts:
        """What this rank has sent: counts [messages or bytes, receiver]."""
        rows = []
        for handle in self._handles:
            row = (ctypes.c_ulonglong * MPI.COMM_WORLD.Get_size())()
            self._call("pvar_read", self._session, handle, row)
            rows.append(list(row))
        return np.array(rows, dtype=np.int64)


class Frames:
    """Frames and bytes through this rank's sockets, both directions."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self._deliver, self._receive = wire.deliver, wire.receive
        self._exactly = wire._exactly
        wire.deliver, wire.receive, wire._exactly = self.deliver, self.receive, self.exactly

    def deliver(self, sock: Any, frame: bytes) -> None:
        self.frames += 1
        self.bytes += len(frame)
        self._deliver(sock, frame)

    def receive(self, sock: Any) -> bytes:
        frame = self._receive(sock)
        self.frames += 1
        return frame

    def exactly(self, sock: Any, size: int) -> bytes:
        data = self._exactly(sock, size)
        self.bytes += len(data)
        return data


def tell(params: Mapping[str, Any], place: Place, root: str) -> None:
    """Write what was counted so far to a file of this rank, without a message."""
    del root
    del place
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    assert sent is not None
    own = np.array([frames.frames, frames.bytes, cpu])
    np.savez(Path(params["folder"]) / f"{MPI.COMM_WORLD.Get_rank()}.npz", sent=sent.read(), own=own)


def known(params: Mapping[str, Any], place: Place, root: str) -> dict[str, Any]:
    """Traffic of a known amount: a broadcast in the world, and a ring of the even ranks."""
    del root, place
    assert sent is not None
    world = MPI.COMM_WORLD
    buffer = np.zeros(int(params["bytes"]), dtype=np.uint8)
    answers = {}
    before = sent.read()
    world.Bcast(buffer, root=0)
    answers["broadcast"] = (sent.read() - before).sum(axis=1).tolist()
    even = world.Split(world.rank % 2)
    before = sent.read()
    even.Sendrecv_replace(buffer, (even.rank + 1) % even.size, source=(even.rank - 1) % even.size)
    counted = sent.read() - before
    neighbour = (world.rank + 2) % world.size
    answers["ring"] = counted[:, neighbour].tolist()
    answers["ring_elsewhere"] = (counted.sum(axis=1) - counted[:, neighbour]).tolist()
    even.Free()
    return answers


def kernel_per_node() -> str:
    """A boot id of this node alone."""
    return f"{real_boot_id()}/{platform.node()}"


if __name__ == "__main__":
    sent = Sent()
    frames = Frames()
    real_boot_id = survey.boot_id
    if os.environ.get("FSMATRIX_SCALE_KERNELS"):
        survey.boot_id = kernel_per_node
    session.main()
