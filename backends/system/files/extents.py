"""Which parts of a file were really written: FIEMAP (linux/fiemap.h)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from dataclasses import dataclass

_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct("=QQIIII")  # start, length, flags, mapped, room, reserved
_EXTENT = struct.Struct("=QQQQQIIII")  # logical, physical, length, 2 reserved, flags, 3 reserved
_SYNC = 1
_LAST, _UNWRITTEN = 0x1, 0x800
_ROOM = 128  # extents asked for at once


@dataclass(frozen=True)
class Span:
    """A part of a file, bytes."""

    offset: int
    length: int


def unwritten(descriptor: int) -> list[Span] | None:
    """Holes and allocated but never written parts of a file; None if not knowable here."""
    size = os.fstat(descriptor).st_size
    gaps: list[Span] = []
    position, last = 0, size == 0
    while position < size and not last:
        extents = _ask(descriptor, position, size - position)
        if extents is None:
            return None
        if not extents:
            break
        for offset, length, flags in extents:
            if offset > position:
                gaps.append(Span(position, min(offset, size) - position))
            if flags & _UNWRITTEN:
                gaps.append(Span(max(offset, position), min(offset + length, size) - offset))
            position = max(position, offset + length)
            last = bool(flags & _LAST)
    if position < size:
        gaps.append(Span(position, size - position))
    return gaps


def _ask(descriptor: int, start: int, length: int) -> list[tuple[int, int, int]] | None:
    """(offset, length, flags) of up to 128 extents."""
    buffer = bytearray(_HEADER.size + _ROOM * _EXTENT.size)
    _HEADER.pack_into(buffer, 0, start, length, _SYNC, 0, _ROOM, 0)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            return None
        raise
    extents = []
    for number in range(_HEADER.unpack_from(buffer)[3]):
        fields = _EXTENT.unpack_from(buffer, _HEADER.size + number * _EXTENT.size)
        extents.append((fields[0], fields[2], fields[5]))
    return extents
