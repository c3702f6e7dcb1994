"""Messages between conductor, leaders and ranks: a JSON object and numpy arrays.

A frame is two little-endian 32-bit lengths (header, arrays), the header (JSON) and the
arrays' raw bytes one after the other.  Nothing is pickled: a frame can hold no code.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Message = dict[str, Any]
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
    return connected


@contextmanager
def _short(address: Path) -> Iterator[str]:
    """The same place, by a descriptor of its folder."""
    folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)


def pack(message: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> bytes:
    """One frame: a message as JSON, then the bytes of its arrays."""
    table = []
    body = []
    for name, array in (arrays or {}).items():
        contiguous = np.ascontiguousarray(array)
        table.append([name, contiguous.dtype.str, list(contiguous.shape)])
        body.append(contiguous.tobytes())
    header = json.dumps({"message": message, "arrays": table}).encode()
    data = b"".join(body)
    return _LENGTHS.pack(len(header), len(data)) + header + data


def unpack(header: bytes, data: bytes) -> tuple[Message, Arrays]:
    """Message and arrays of a frame's two parts; ValueError if they do not fit."""
    parsed = json.loads(header)
    arrays: Arrays = {}
    at = 0
    for name, dtype, shape in parsed["arrays"]:
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ValueError(f"array {name!r} of type {dtype!r} is not plain data")
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        arrays[name] = np.frombuffer(data[at : at + size], dtype=kind).reshape(shape).copy()
        at += size
    if at != len(data):
        raise ValueError(f"frame holds {len(data)} bytes of arrays, its header tells of {at}")
    return parsed["message"], arrays


def parse(frame: bytes) -> tuple[Message, Arrays]:
    """A whole frame; ValueError if its parts do not fit."""
    header_size, data_size = _LENGTHS.unpack_from(frame)
    header = frame[_LENGTHS.size :][:header_size]
    data = frame[_LENGTHS.size + header_size :]
    if len(data) != data_size:
        raise ValueError(f"frame holds {len(data)} bytes of arrays, it tells of {data_size}")
    return unpack(header, data)


def send(
    sock: socket.socket,
    message: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Send one frame; ChannelClosed if nobody listens any more."""
    deliver(sock, pack(message, arrays))


def deliver(sock: socket.socket, frame: bytes) -> None:
    """Send a packed frame; ChannelClosed if nobody listens any more."""
    try:
        sock.sendall(frame)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed(str(error)) from error


def receive(sock: socket.socket) -> tuple[Message, Arrays]:
    """Wait for one frame (the socket's own timeout holds); ChannelClosed at its end."""
    header_size, data_size = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size))
    if header_size + data_size > MAX_FRAME:
        raise ValueError(f"a frame of {header_size + data_size} bytes is too large")
    return unpack(_exactly(sock, header_size), _exactly(sock, data_size))


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
