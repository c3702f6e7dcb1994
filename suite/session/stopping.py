"""How a session is asked to stop: signals of the user and of the batch system."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Any

AT_ONCE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS = 2.0  # between the first and the last process of a job that hears of its end


class Interrupted(Exception):
    """The user or the batch system asked to stop."""


class StopFlag:
    """Signals become a number and a byte in a pipe; nothing is raised inside a handler."""

    def __init__(self) -> None:
        self.signal = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        for number in (*AT_ONCE, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        self.signal = number
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """For select."""
        return self._read

    @property
    def at_once(self) -> bool:
        """SIGINT, SIGTERM and SIGHUP abandon the current run; SIGUSR1 lets it end."""
        return self.signal in AT_ONCE

    def is_coming(self, in_job: bool) -> bool:
        """Whether this is being stopped, or is about to hear so.

        `in_job`: a batch system tells all processes of its job to end, this one perhaps last.
        """
        if in_job and not self.at_once:
            select.select([self], [], [], STOP_SECONDS)
        return self.at_once
