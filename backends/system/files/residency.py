"""What of a file is really there: in the page cache, and on its device."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from dataclasses import dataclass
from functools import cache

from fsmatrix.backends.system.libc import libc

# Which parts of a file were really written: FIEMAP (linux/fiemap.h).


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


# How many bytes of a file are in the page cache: cachestat(2), else mincore(2).


_CACHESTAT = 451  # the system call's number on all architectures, Linux 6.5 and later
_WINDOW = 1 << 30  # bytes mapped at once for mincore


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def resident(descriptor: int) -> int | None:
    """Bytes of an open regular file in the page cache (whole pages); None if not knowable.

    Linux tells only who may write the file or owns it; network file systems may not tell.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    pages = _by_cachestat(descriptor)
    if pages is None:
        pages = _by_mincore(descriptor, size)
    return None if pages is None else pages * mmap.PAGESIZE


def resident_of_device(descriptor: int) -> int | None:
    """Bytes of an open block device in the page cache; None if not knowable (Linux before 6.5)."""
    pages = _by_cachestat(descriptor)
    return None if pages is None else pages * mmap.PAGESIZE


def method() -> str:
    """Name of the system call that `resident` uses here."""
    return "cachestat" if _has_cachestat() else "mincore"


@cache
def _has_cachestat() -> bool:
    ctypes.set_errno(0)
    libc().syscall(_CACHESTAT, -1, None, None, 0)
    return ctypes.get_errno() != 38  # ENOSYS


def _by_cachestat(descriptor: int) -> int | None:
    if not _has_cachestat():
        return None
    span, answer = _Range(0, 0), _Stat()  # length 0: to the end
    if libc().syscall(_CACHESTAT, descriptor, ctypes.byref(span), ctypes.byref(answer), 0):
        return None
    return int(answer.cached)


def _by_mincore(descriptor: int, size: int) -> int | None:
    if not _may_write(descriptor):
        return None
    pages = 0
    for offset in range(0, size, _WINDOW):
        length = min(_WINDOW, size - offset)
        try:
            area = mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=offset)
        except (OSError, ValueError):
            return None
        flags = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(area)
        result = libc().mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), flags
        )
        del first
        area.close()
        if result:
            return None
        pages += sum(flag & 1 for flag in bytes(flags))
    return pages


def _may_write(descriptor: int) -> bool:
    """Since Linux 5.2 mincore says "resident" for every page of a file one may not write."""
    if os.fstat(descriptor).st_uid == os.geteuid():
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
