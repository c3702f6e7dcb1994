"""Calls of the C library that Python does not have."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

_UMOUNT_NOFOLLOW = 8


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def syncfs(path: Path | str) -> None:
    """Write back the whole file system that holds `path`; OSError also if data was lost."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(libc().syncfs(descriptor), str(path))
    finally:
        os.close(descriptor)


def umount(point: str) -> None:
    """Detach the topmost mount at `point`, never through a link; OSError (EBUSY: in use)."""
    _check(libc().umount2(os.fsencode(point), _UMOUNT_NOFOLLOW), point)


def statfs_magic(path: Path | str) -> int:
    """`f_type` of statfs(2), the file system's magic number."""
    words = (ctypes.c_long * 32)()  # struct statfs is 120 bytes; its first word is f_type
    _check(libc().statfs(os.fsencode(path), ctypes.byref(words)), str(path))
    return int(words[0]) & 0xFFFFFFFF
