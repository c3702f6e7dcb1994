"""DAOS's servers, as far as they run on this very kernel: on a test bed, or on a client node."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from fsmatrix.backends.system.mounts import parse_mountinfo
from fsmatrix.results.evidence.target import PMEM, RAM

ENGINE = "daos_engine"
PROGRAMS = ("daos_server", ENGINE)
# of the addresses of a network namespace, in /proc/<pid>/net/fib_trie
_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def here(addresses: Iterable[str]) -> list[int]:
    """Pids of the servers and engines whose network has one of these IPv4 addresses.

    A loopback address is of this process's own network only: every network has it.
    """
    return sorted(pid for pid, _, _ in _found(frozenset(addresses)))


@dataclass(frozen=True)
class Seen:
    """What can be seen of a system's servers on this kernel."""

    running: bool  # any of its engines runs here
    scm: str = ""  # storage class memory of all its engines: RAM or PMem; "": not to be seen
    engines: int = 0  # where all of them run here, as the next two
    cores: int | None = None
    memory: int | None = None  # bytes


def seen(addresses: Iterable[str]) -> Seen:
    """Of the system whose servers have these addresses.

    All of it runs here if an engine at each of them does; then its cores and memory are this
    machine's, which clients share.
    """
    every = frozenset(addresses)
    engines = [(pid, its) for pid, program, its in _found(every) if program == ENGINE]
    reached = frozenset[str]().union(*(its for _, its in engines))
    if not engines or reached != every:
        return Seen(bool(engines))
    media = {_medium(Path("/proc", str(pid))) for pid, _ in engines}
    memory = psutil.virtual_memory().total
    scm = media.pop() if len(media) == 1 else ""
    return Seen(True, scm, len(engines), os.cpu_count(), memory)


def _found(addresses: frozenset[str]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """Pid, program and addresses of each server and engine of this kernel that has any of them."""
    own = Path("/proc/self/ns/net").readlink()
    reached = frozenset(address for address in addresses if not address.startswith("127."))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, a thread of the kernel, or another user's
            program = (entry / "exe").readlink().name
            if program not in PROGRAMS:
                continue
            wanted = addresses if (entry / "ns/net").readlink() == own else reached
            its = wanted & set(_ADDRESS.findall((entry / "net/fib_trie").read_text()))
            if its:
                yield int(entry.name), program, its


def _medium(process: Path) -> str:
    """Of the engine of a folder of /proc: its argument --storage, or -s, is a mount point."""
    try:
        words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
        mounted = parse_mountinfo((process / "mountinfo").read_text())
    except OSError:
        return ""
    points = {after for word, after in pairwise(words) if word in ("-s", "--storage")}
    for mount in mounted:
        if mount.point in points:
            pmem = Path(mount.source).name.startswith("pmem")
            return RAM if mount.fstype == "tmpfs" else PMEM if pmem else ""
    return ""
