"""How a running campaign is shown: live in a terminal, as quiet lines, or as JSON lines."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Column

from fsmatrix.analysis.steps import LOGGER
from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.units import format_duration, printable

if TYPE_CHECKING:  # a plan, its test beds and numpy come with them
    from fsmatrix.suite.run.events import Event
    from fsmatrix.suite.run.forecast import Forecast

# What people read of a command: the one place where text goes to a terminal.
#
# Names, descriptions, reasons and outputs of programs come from campaigns, results and other
# people; what a terminal would obey in them is replaced.


class Terminal(Console):
    """A console that obeys only itself: no text brings a control character to it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As Console's, which everything that is printed passes."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console(stderr: bool = False) -> Terminal:
    """Standard output, or standard error, for people."""
    return Terminal(stderr=stderr)


def line(console: Console, text: str, style: str | None = None) -> None:
    """One line of plain text, whole however long: its words are neither markup nor highlighted."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def echo(text: str, *, err: bool = False) -> None:
    """One text as it is, on a line of its own: neither wrapped nor styled."""
    print(printable(text), file=sys.stderr if err else sys.stdout)


def raw(text: str) -> None:
    """A text as it is on standard output: a terminal gets it without what it would obey."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


# Whoever waits is told for what: which step of an analysis runs, on standard error.
#
# A command that answers within QUIET seconds says nothing.  In a terminal the step stands in one
# line with the time, and goes when the answer comes; elsewhere each step is a line of its own.


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
    with Waiting(console(stderr=True), first):
        yield


Mode = Literal["live", "quiet", "json"]
LOUD = ("failed", "invalid", "given_up", "warning", "recovered", "stopped", "waiting")


def is_loud(event: Event) -> bool:
    """Whether it is said to people; why runs cannot be begun is said once."""
    repeated = event.facts.again or event.facts.begun is False
    return event.what in LOUD and not repeated


class LiveProgress:
    """A bar with the time left; what went wrong stays on the screen above it."""

    def __init__(self, total: int, console: Console, forecast: Forecast) -> None:
        self._forecast = forecast
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[where]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[became]}", table_column=Column()),  # wrapped first
            console=console,
        )
        self._task = self._bar.add_task("runs", total=total, where="start", became="", left="")

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        self._forecast(event)
        self._bar.update(self._task, left=left(self._forecast))
        if is_loud(event):
            self._bar.console.print(
                f"[yellow]{_word(event)}[/]: {escape(event.text)}", highlight=False
            )
        if event.what == "run":
            self._bar.update(self._task, where=_where(event))
        if event.what == "skipped":
            self._bar.update(self._task, advance=event.facts.runs)
        if event.what in ("finished", "failed"):
            self._bar.update(self._task, advance=1)
        if event.facts.tally is not None:
            self._bar.update(self._task, became=event.facts.tally.counts)


class QuietLog:
    """For batch logs: what went wrong, and one line for each attachment."""

    def __init__(self, console: Console, forecast: Forecast) -> None:
        self._console = console
        self._forecast = forecast

    def __enter__(self) -> QuietLog:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def __call__(self, event: Event) -> None:
        self._forecast(event)
        if is_loud(event) or event.what == "attach":
            parts = [f"{_word(event)}: {event.text}"]
            if event.what == "attach":
                tally = event.facts.tally
                parts += [tally.says] if tally and tally.runs else []
                parts.append(left(self._forecast))
            line(self._console, "; ".join(parts))


class JsonLog(QuietLog):
    """Every event as one line of JSON on standard output."""

    def __call__(self, event: Event) -> None:
        sys.stdout.write(json.dumps(event.to_json(), default=str) + "\n")
        sys.stdout.flush()


def listener(
    mode: Mode, total: int, console: Console, forecast: Forecast
) -> LiveProgress | QuietLog:
    """The listener of a mode."""
    if mode == "json":
        return JsonLog(console, forecast)
    if mode == "quiet":
        return QuietLog(console, forecast)
    return LiveProgress(total, console, forecast)


def left(forecast: Forecast) -> str:
    """What is left, in words."""
    return f"about {format_duration(forecast.seconds)} left"


def _word(event: Event) -> str:
    return event.what.replace("given_up", "given up")


def _where(event: Event) -> str:
    coordinates = inside(event.facts.coordinates)
    return escape(f"{coordinates.get('target', '')} {coordinates.get('workload', '')}".strip())


# How far a command is in a trace, on standard error while it works.


@contextmanager
def bar(what: str, operations: int) -> Iterator[Callable[[int], None]]:
    """Calls with the number of operations done so far move it; it goes when they end."""
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=operations)
        yield lambda done: shown.update(task, completed=done)
