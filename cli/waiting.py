"""Whoever waits is told for what: which step of an analysis runs, on standard error.

A command that answers within QUIET seconds says nothing.  In a terminal the step stands in one line
with the time, and goes when the answer comes; elsewhere each step is a line of its own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fsmatrix.analysis.steps import LOGGER
from fsmatrix.cli import terminal

QUIET = 1.0  # seconds


class Waiting(logging.Handler):
    """Shows steps once QUIET seconds are over."""

    def __init__(self, console: Console, first: str) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._text = first
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._shown = False
        self._timer = threading.Timer(QUIET, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Waiting:
        LOGGER.addHandler(self)
        LOGGER.setLevel(logging.INFO)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)
        self._timer.cancel()
        with self.lock or contextlib.nullcontext():
            if self._bar is not None:
                self._bar.stop()
            self._shown = False
            self._bar = None

    def emit(self, record: logging.LogRecord) -> None:
        """A new step (logging holds the lock)."""
        self._text = record.getMessage()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=self._text)
        elif self._shown:
            self._line()

    def _show(self) -> None:
        """The first words, by the timer's thread."""
        with self.lock or contextlib.nullcontext():
            self._shown = True
            if self._console.is_terminal:
                self._bar = Progress(
                    SpinnerColumn(),
                    TextColumn("{task.description}", markup=False),
                    TimeElapsedColumn(),
                    console=self._console,
                    transient=True,
                )
                self._bar.add_task(self._text)
                self._bar.start()
            else:
                self._line()

    def _line(self) -> None:
        from fsmatrix.results.units import format_duration

        took = format_duration(time.monotonic() - self._began)
        self._console.print(
            f"[{took}] {self._text} ...", markup=False, highlight=False, soft_wrap=True
        )


@contextlib.contextmanager
def waiting(first: str) -> Iterator[None]:
    """Show what is done meanwhile; `first`: until the first step says more."""
    with Waiting(terminal.console(stderr=True), first):
        yield
