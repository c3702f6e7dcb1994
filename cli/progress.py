"""How a running campaign is shown: live in a terminal, as quiet lines, or as JSON lines."""

from __future__ import annotations

import json
import sys
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from fsmatrix.cli import terminal
from fsmatrix.results.evidence.values import inside
from fsmatrix.results.units import format_duration
from fsmatrix.suite.run.events import Event
from fsmatrix.suite.run.forecast import Forecast

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
            terminal.line(self._console, "; ".join(parts))


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
