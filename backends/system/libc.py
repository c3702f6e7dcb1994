"""What Python does not have: calls of the C library, and what the kernel lets this process do."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import pwd
import signal
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path

_UMOUNT_NOFOLLOW = 8
_SYS_FSOPEN = 430  # on every architecture; Linux 5.2
_FSOPEN_CLOEXEC = 1
NEW_MOUNTS = 0x00020000  # linux/sched.h
NEW_IPC = 0x08000000
NEW_NET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914  # linux/sockios.h
_SIOCSIFADDR = 0x8916
_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB  # linux/if_tun.h
_IFF_UP, _IFF_TAP = 0x1, 0x2
_TUN = "/dev/net/tun"
_LINK, _ADDRESS = b"node0", "192.0.2.1"  # RFC 5737: nobody's
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


@contextlib.contextmanager
def own_network(link: bool = False) -> Iterator[None]:
    """A network of this thread's own meanwhile, in which what it starts stays; OSError if none.

    Nobody outside reaches what listens there, and nothing there reaches anybody: it has `lo`
    alone, and with `link` an interface that leads nowhere.  Unix sockets with a path go through.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(libc().unshare(NEW_NET), "unshare")
        try:
            _up(b"lo")
            if link:
                _make_link()
            yield
        finally:
            _check(libc().setns(before, NEW_NET), "setns")
    finally:
        os.close(before)


def enter_network(namespace: str) -> None:
    """Go on in the network that this file is; threads that there are already stay where they are.

    OSError if that is not allowed.
    """
    handle = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(libc().setns(handle, NEW_NET), namespace)
    finally:
        os.close(handle)


def _up(interface: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh22x", interface, 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", interface, flags | _IFF_UP))


def _make_link() -> None:
    """An interface that is not `lo`, with an address: Open MPI 5 starts no daemons without."""
    handle = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sh22x", _LINK, _IFF_TAP))
        fcntl.ioctl(handle, _TUNSETPERSIST, 1)  # until the namespace ends
    finally:
        os.close(handle)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        address = struct.pack("16sHH4s16x", _LINK, socket.AF_INET, 0, socket.inet_aton(_ADDRESS))
        fcntl.ioctl(any_socket, _SIOCSIFADDR, address)
    _up(_LINK)


class Capability(IntEnum):
    """By their numbers (capabilities(7)); a container's root may lack them."""

    CAP_NET_ADMIN = 12  # links, addresses, queues
    CAP_SYS_ADMIN = 21  # mounts and namespaces


def has(capability: Capability) -> bool:
    """Whether this process has it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return True  # a kernel that does not tell


@cache
def network_refusal(link: bool = False) -> str:
    """Why this process gives nothing a network of its own (empty: it can): it is tried.

    `link`: as for `libc.own_network`.
    """
    try:
        with own_network(link):
            return ""
    except OSError as error:
        return f"no network namespace can be made here ({error})"


def name_of_user(uid: int) -> str:
    """The name of a user; empty if it has none, as in many containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
