"""Listeners of MPI launchers and ranks without a network of their own, kept to this machine.

PRRTE and Open MPI's TCP transport bind to every address whatever their parameters say (they
only choose what is told to others; PRRTE 3 does not start with `prte_if_include lo`).  So the
sockets themselves are told, by SO_BINDTODEVICE, to take what comes over `lo`: also what is
sent to this machine's own addresses comes that way.  A process may do that to its descendants
(pidfd_getfd, Linux 5.6; without root SO_BINDTODEVICE from 5.7); elsewhere they stay as they were.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

_PIDFD_GETFD = 438  # the same number on every architecture
_LISTENS = "0A"  # /proc/net/tcp: state TCP_LISTEN
STARTING = 2.0  # seconds without a new socket after which an MPI program has opened them all


def keep_local(pid: int, done: set[str] | None = None) -> list[str]:
    """Bind what a process and all below it listen on to `lo`; what could not be, in words.

    `done`: inodes of sockets that are bound already; those of new ones are added.
    """
    failed = []
    checked = set() if done is None else done
    for process in _family(pid):
        try:
            wide = {inode: address for inode, address in _wide(process) if inode not in checked}
            for descriptor, inode in _sockets(process, wide):
                checked.add(inode)
                try:
                    _bind(process, descriptor)
                except OSError as error:
                    failed.append(f"pid {process} listens on {wide[inode]}: {error.strerror}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or belongs to somebody else
    return failed


class WhileStarting:
    """Asked again and again while a program runs: keeps it local, and says whether to end it.

    It stops looking STARTING seconds after the last new socket, and never before the first one:
    on a busy machine a launcher takes its time.
    """

    def __init__(self, ends: Callable[[], bool], pids: Callable[[], Iterable[int]]) -> None:
        self._ends, self._pids = ends, pids
        self._bound: set[str] = set()
        self._until = math.inf

    def __call__(self) -> bool:
        if time.monotonic() < self._until:
            before = len(self._bound)
            for pid in self._pids():
                keep_local(pid, self._bound)
            if len(self._bound) > before:
                self._until = time.monotonic() + STARTING
        return self._ends()


def _family(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return []


def _wide(pid: int) -> Iterator[tuple[str, str]]:
    """(inode, address) of listeners on more than loopback, in that process's network."""
    for name in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            address = address_of(words[1].partition(":")[0])
            if words[3] == _LISTENS and not address.is_loopback:
                yield words[9], str(address)


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as /proc/net/tcp writes it: 32-bit words in the machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _sockets(pid: int, inodes: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(descriptor, inode) of those sockets that the process has open."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for link in Path(f"/proc/{pid}/fd").iterdir() if wanted else ():
        with contextlib.suppress(FileNotFoundError):
            if (inode := wanted.get(str(link.readlink()))) is not None:
                yield int(link.name), inode


def _bind(pid: int, descriptor: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(handle)
    with socket.socket(fileno=copy) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
