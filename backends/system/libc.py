"""Calls of the C library that Python does not have."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path

_UMOUNT_NOFOLLOW = 8
_SYS_FSOPEN = 430  # on every architecture; Linux 5.2
_FSOPEN_CLOEXEC = 1


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


def mount_error() -> OSError | None:
    """What the kernel answers this process that wants to mount (None: it may, or it is not known).

    fsopen(2) asks for the right to mount in this mount namespace and mounts nothing.
    """
    descriptor = libc().syscall(_SYS_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
        return None
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number)) if number == errno.EPERM else None
