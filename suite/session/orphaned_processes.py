"""Processes that outlive the program that started them: adopted, found again, and ended.

Who starts a program is its subreaper as long as it runs (prctl(2), PR_SET_CHILD_SUBREAPER): what
the program leaves becomes a child of ours, whatever session or group it is in, instead of init's.
A mark in the environment, drawn for each program, tells it from our other children.  What such a
process has started is of the program too, also where it shows no environment (PostgreSQL's
processes overwrite theirs with their titles).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsmatrix.backends.system.libc import libc
from fsmatrix.results.process import environment

if TYPE_CHECKING:
    import psutil

PROGRAM = "FSMATRIX_PROGRAM"  # in the environment of a program: the mark
PATIENCE = 5.0  # seconds in which killed processes disappear
GRACE = 2.0  # seconds for what a program left to end by itself, as the daemons of a launcher do
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PR_GET_CHILD_SUBREAPER = 37


def new_mark() -> str:
    """For the environment of one program."""
    return secrets.token_hex(8)


class _Adopting:
    """How many threads adopt: the first one turns it on, and the last one puts it back."""

    def __init__(self) -> None:
        self._lock, self._threads, self._before = threading.Lock(), 0, ctypes.c_int()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Orphans below this process become its children meanwhile, not init's."""
        with self._lock:
            if not self._threads:
                libc().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(self._before), 0, 0, 0)
                libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            self._threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    libc().prctl(_PR_SET_CHILD_SUBREAPER, self._before.value, 0, 0, 0)


adopting = _Adopting()


def end(mark: str, grace: float = 0.0) -> list[int]:
    """Kill what a program that has ended left to this process; the pids that cannot be killed.

    `grace`: seconds in which they may end by themselves: a launcher's daemon that is killed while
    it cleans up leaves what the next one of that node stumbles over.  What a killed one leaves is
    adopted in its turn, so it is looked until there is nothing.
    """
    left: list[psutil.Process] = []
    if grace and (left := _adopted(mark)):
        _gone(left, time.monotonic() + grace)
    deadline = time.monotonic() + PATIENCE
    while left := [*dict.fromkeys((*_adopted(mark), *filter(_runs, left)))]:
        for process in left:
            _kill(process)
        _gone(left, deadline)
        if time.monotonic() >= deadline:
            return [process.pid for process in left]
    return []


def _adopted(mark: str) -> list[psutil.Process]:
    """Our children that carry the mark and have not ended, then all below them."""
    if not _has_children():
        return []
    import psutil  # not in every rank: only here

    wanted = f"{PROGRAM}={mark}".encode()
    found = [child for child in psutil.Process().children() if wanted in environment(child.pid)]
    for child in [*found]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += child.children(recursive=True)
    return found


def _kill(process: psutil.Process) -> None:
    """psutil compares the start time: never another process of that pid."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _runs(process: psutil.Process) -> bool:
    """Whether it has not ended; what was below a killed one may be known by nothing else."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _has_children() -> bool:
    """One call, where looking at all processes costs a busy node milliseconds."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _gone(processes: list[psutil.Process], deadline: float) -> None:
    """Wait for killed children, and take their exit status."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))
