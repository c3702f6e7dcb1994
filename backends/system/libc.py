"""Calls of the C library that Python does not have."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from functools import cache
from pathlib import Path

_UMOUNT_NOFOLLOW = 8
_SYS_FSOPEN = 430  # on every architecture; Linux 5.2
_FSOPEN_CLOEXEC = 1
NEW_MOUNTS = 0x00020000  # linux/sched.h
NEW_IPC = 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 0x2, 0x4, 0x20, 0x1000  # linux/mount.h
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; ProcessLookupError if it has."""
    _check(libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    if os.getppid() != parent:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(parent))


def unshare(flags: int) -> None:
    """Leave namespaces for new ones; nothing where the kernel does not let us."""
    with contextlib.suppress(PermissionError):
        _check(libc().unshare(flags), "unshare")


def private_mounts() -> None:
    """A mount namespace of this process's own, from which nothing reaches others; OSError if not.

    What others unmount in theirs is unmounted in it too, and so not kept busy.
    """
    _check(libc().unshare(NEW_MOUNTS), "unshare")
    _check(libc().mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "/")


def mount_memory(point: Path) -> None:
    """A new tmpfs at `point`, where everybody may make files that only they remove."""
    flags = _MS_NOSUID | _MS_NODEV
    _check(libc().mount(b"tmpfs", os.fsencode(point), b"tmpfs", flags, b"mode=1777"), str(point))


def bind(path: Path, point: Path) -> None:
    """`path` at `point` too, without devices and set-user-ID programs."""
    names = os.fsencode(path), os.fsencode(point)
    _check(libc().mount(*names, None, _MS_BIND, None), str(point))
    flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV
    _check(libc().mount(None, names[1], None, flags, None), str(point))
