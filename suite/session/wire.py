"""Messages between conductor, leaders and ranks: an object of messages.py, and numpy arrays.

A frame is two little-endian 32-bit lengths (header, arrays), the header (JSON) and the
arrays' raw bytes one after the other.  Nothing is pickled: a frame can hold no code.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Stored, StoredError, read
from fsmatrix.suite.session.comm import Comm

# Whether operations still complete: told by the ranks of a machine in a step.
#
# Each rank has eight bytes of a file that its conductor made: the moment at which it last saw that
# an operation had completed, 0 while it plays nothing and runs no program.  Its player counts
# operations anyway, and the kernel those of programs, so that a look from another thread costs
# little.  Ranks of other machines do not see the file.


BYTES = 8  # of one rank: ns of CLOCK_MONOTONIC, which all processes of a kernel share
LOOK = 1.0  # seconds between two looks at a player
PROGRAMS_LOOK = 2.0  # seconds between two looks at programs, which take longer
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Progress:
    """The file of a session's ranks, as their conductor reads it."""

    def __init__(self, path: Path, ranks: int) -> None:
        self.path = path
        self._ranks = ranks

    def clear(self) -> None:
        """Nobody does anything: before a step.  What a rank that was killed had said is gone."""
        self.path.write_bytes(bytes(BYTES * self._ranks))

    def idle(self) -> float:
        """Seconds since an operation of any rank here completed; 0 while none does anything."""
        file = os.open(self.path, _READING)
        try:
            told = np.frombuffer(os.pread(file, BYTES * self._ranks, 0), dtype=np.int64)
        finally:
            os.close(file)
        last = int(told.max(initial=0))
        return (time.monotonic_ns() - last) / 1e9 if last else 0.0


@contextlib.contextmanager
def telling(
    path: str, rank: int, completed: Callable[[], int], every: float = LOOK
) -> Iterator[None]:
    """Tell meanwhile when `completed()` changes; nothing where there is no such file."""
    try:
        file = os.open(path, _WRITING) if path else -1
    except FileNotFoundError:  # the conductor is on another machine
        file = -1
    if file < 0:
        yield
        return
    try:
        with writing(file, rank, completed, every):
            yield
    finally:
        os.close(file)


@contextlib.contextmanager
def writing(
    file: int, rank: int, completed: Callable[[], int], every: float = LOOK
) -> Iterator[None]:
    """As `telling`, into an open file."""
    over = threading.Event()

    def tell(ns: int) -> None:
        os.pwrite(file, ns.to_bytes(BYTES, "little"), BYTES * rank)

    def look() -> None:
        before = completed()
        while not over.wait(every):
            if (now := completed()) != before:
                before = now
                tell(time.monotonic_ns())

    tell(time.monotonic_ns())
    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell(0)


Arrays = dict[str, npt.NDArray[Any]]
S = TypeVar("S", bound=Stored)
_LENGTHS = struct.Struct("<II")
MAX_FRAME = 1 << 30
ERROR_MARK = "fsmatrix-rank-error "  # on stderr: JSON of what a rank raised


class ChannelClosed(ConnectionError):
    """The other side is gone."""


def listener(address: Path, backlog: int = 1) -> socket.socket:
    """A socket that listens at a path of any length (sun_path has room for 107 bytes)."""
    with _short(address) as name:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(name)
    listening.listen(backlog)
    return listening


def connect(address: Path) -> socket.socket:
    """A socket that is connected to such a listener."""
    with _short(address) as name:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(name)
    return _of_ours(connected)


def accepted(listening: socket.socket) -> socket.socket:
    """The next one that has connected to a listener."""
    return _of_ours(listening.accept()[0])


def _of_ours(connected: socket.socket) -> socket.socket:
    """PermissionError if another user's process has the other end: it would command us."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    if user != os.geteuid():
        connected.close()
        raise PermissionError(f"the session's channel is held by user {user}")
    return connected


@contextmanager
def _short(address: Path) -> Iterator[str]:
    """The same place, by a descriptor of its folder."""
    folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


def pack(message: Stored, arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> bytes:
    """One frame: a message as JSON, then the bytes of its arrays."""
    table = []
    body = []
    for name, array in (arrays or {}).items():
        contiguous = np.ascontiguousarray(array)
        table.append([name, contiguous.dtype.str, list(contiguous.shape)])
        body.append(contiguous.tobytes())
    kind = type(message).__name__
    header = json.dumps({"kind": kind, "message": message.document(), "arrays": table}).encode()
    data = b"".join(body)
    return _LENGTHS.pack(len(header), len(data)) + header + data


def unpack(frame: bytes, *kinds: type[S]) -> tuple[S, Arrays]:
    """Message and arrays of a frame; ValueError that names the key if it is none of `kinds`."""
    header_size, data_size = _LENGTHS.unpack_from(frame)
    header = json.loads(frame[_LENGTHS.size :][:header_size])
    data = memoryview(frame)[_LENGTHS.size + header_size :]
    if len(data) != data_size:
        raise ValueError(f"frame holds {len(data)} bytes of arrays, it tells of {data_size}")
    name = header["kind"]
    kind = next((kind for kind in kinds if kind.__name__ == name), None)
    if kind is None:
        raise StoredError(f"a message is a {name}, not {' or '.join(k.__name__ for k in kinds)}")
    arrays: Arrays = {}
    at = 0
    for array, dtype, shape in header["arrays"]:
        form = np.dtype(dtype)
        if form.hasobject:
            raise ValueError(f"array {array!r} of type {dtype!r} is not plain data")
        size = int(np.prod(shape, dtype=np.int64)) * form.itemsize
        arrays[array] = np.frombuffer(data[at : at + size], dtype=form).reshape(shape).copy()
        at += size
    if at != data_size:
        raise ValueError(f"frame holds {data_size} bytes of arrays, its header tells of {at}")
    return read(kind, header["message"], name, exact=True), arrays


def send(
    sock: socket.socket, message: Stored, arrays: Mapping[str, npt.NDArray[Any]] | None = None
) -> None:
    """Send one frame; ChannelClosed if nobody listens any more."""
    deliver(sock, pack(message, arrays))


def deliver(sock: socket.socket, frame: bytes) -> None:
    """Send a packed frame; ChannelClosed if nobody listens any more."""
    try:
        sock.sendall(frame)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed(str(error)) from error


def receive(sock: socket.socket) -> bytes:
    """Wait for one frame (the socket's own timeout holds); ChannelClosed at its end."""
    lengths = _exactly(sock, _LENGTHS.size)
    size = sum(_LENGTHS.unpack(lengths))
    if size > MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes is too large")
    return lengths + _exactly(sock, size)


def gather(comm: Comm, own: S) -> tuple[S, ...]:
    """What every rank of `comm` says, in their order, at its rank 0; nothing elsewhere."""
    kind = type(own)
    documents = comm.gather(own.document()) or ()
    return tuple(read(kind, each, kind.__name__, exact=True) for each in documents)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = sock.recv(min(size, 1 << 20))
        except ConnectionResetError as error:
            raise ChannelClosed(str(error)) from error
        if not part:
            raise ChannelClosed("the channel was closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
