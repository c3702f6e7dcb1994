"""Whether operations still complete: told by the ranks of a machine in a step.

Each rank has eight bytes of a file that its conductor made: the moment at which it last saw that
an operation had completed, 0 while it plays nothing and runs no program.  Its player counts
operations anyway, and the kernel those of programs, so that a look from another thread costs
little.  Ranks of other machines do not see the file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

BYTES = 8  # of one rank: ns of CLOCK_MONOTONIC, which all processes of a kernel share
LOOK = 1.0  # seconds between two looks at a player
PROGRAMS_LOOK = 2.0  # seconds between two looks at programs, which take longer
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Progress:
    """The file of a session's ranks, as their conductor reads it."""

    def __init__(self, path: Path, ranks: int) -> None:
        self.path = path
        self._ranks = ranks

    def clear(self) -> None:
        """Nobody does anything: before a step.  What a rank that was killed had said is gone."""
        self.path.write_bytes(bytes(BYTES * self._ranks))

    def idle(self) -> float:
        """Seconds since an operation of any rank here completed; 0 while none does anything."""
        file = os.open(self.path, _READING)
        try:
            told = np.frombuffer(os.pread(file, BYTES * self._ranks, 0), dtype=np.int64)
        finally:
            os.close(file)
        last = int(told.max(initial=0))
        return (time.monotonic_ns() - last) / 1e9 if last else 0.0


@contextlib.contextmanager
def telling(
    path: str, rank: int, completed: Callable[[], int], every: float = LOOK
) -> Iterator[None]:
    """Tell meanwhile when `completed()` changes; nothing where there is no such file."""
    try:
        file = os.open(path, _WRITING) if path else -1
    except FileNotFoundError:  # the conductor is on another machine
        file = -1
    if file < 0:
        yield
        return
    try:
        with writing(file, rank, completed, every):
            yield
    finally:
        os.close(file)


@contextlib.contextmanager
def writing(
    file: int, rank: int, completed: Callable[[], int], every: float = LOOK
) -> Iterator[None]:
    """As `telling`, into an open file."""
    over = threading.Event()

    def tell(ns: int) -> None:
        os.pwrite(file, ns.to_bytes(BYTES, "little"), BYTES * rank)

    def look() -> None:
        before = completed()
        while not over.wait(every):
            if (now := completed()) != before:
                before = now
                tell(time.monotonic_ns())

    tell(time.monotonic_ns())
    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell(0)
