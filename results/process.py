"""Which process: pid, start and boot, so that a pid that is used again is taken for no other.

The start is in clock ticks since boot (proc(5) stat, field 22), as the kernel keeps it: a time
of day, which psutil's `create_time` is, moves when the clock is set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The batch job that a process is part of, as its scheduler says (slurm/scheduler.py asks it).


@dataclass(frozen=True)
class CurrentJob:
    """Whose job it is, its id, and how often it was queued again; all empty outside of jobs."""

    scheduler: str = ""
    id: str = ""
    restarts: int = 0

    def __bool__(self) -> bool:
        return bool(self.id)


NO_JOB = CurrentJob()


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOOKS = 20
_GONE = "ZX"  # states in which only the exit status is left


@dataclass(frozen=True)
class Process:
    """One process for sure, also after it has ended."""

    pid: int
    start: int  # clock ticks since boot
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None if there is none, or a zombie."""
        start = start_of(pid)
        return cls(pid, start, boot_id()) if start else None

    @property
    def runs(self) -> bool:
        """Whether this very process is there and no zombie."""
        return self.boot_id == boot_id() and self.start == start_of(self.pid) > 0

    @contextmanager
    def held(self) -> Iterator[int | None]:
        """A handle (pidfd) of it, None if it is gone: what is sent there reaches no other."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            yield None
            return
        try:
            yield handle if self.runs else None
        finally:
            os.close(handle)


def boot_id() -> str:
    """The kernel's id of this boot: two hosts with the same one are one kernel."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def stat(pid: int) -> tuple[str, int] | None:
    """State (R, S, D, T, Z...) and start of a process; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def environment(pid: int) -> frozenset[bytes]:
    """Its variables (NAME=value) as it was started with; none if it is gone or not ours to see.

    In the middle of execve a process shows none for a moment: it is looked at again.
    """
    for _ in range(_LOOKS):
        try:
            if text := Path(f"/proc/{pid}/environ").read_bytes():
                return frozenset(text.split(b"\0"))
        except OSError:
            break
        if not start_of(pid):
            break
        time.sleep(0.01)
    return frozenset()


def start_of(pid: int) -> int:
    """Start of a process; 0 if it is gone or a zombie."""
    seen = stat(pid)
    return 0 if seen is None or seen[0] in _GONE else seen[1]
