"""What the parsers of engines' outputs share: text in, one `Parsed` for each run in it.

A parser is pure and knows no file: it is given a text and a name for messages.  It returns
what can be recovered, and marks with notes what was odd about it; for anything else it
raises ParseError, and nothing but ParseError.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fsmatrix.results.evidence.evidence import Note as Note
from fsmatrix.results.evidence.values import Json, JsonObject
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.record import OPERATIONS_UNKNOWN, Phase


class ParseError(ResultError):
    """A text is not the output that it should be: which one, where, and why."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        """`line` counts from 1; 0 = the text as a whole."""
        super().__init__(source, f"line {line}: {reason}" if line else reason)
        self.line = line


@dataclass(frozen=True)
class Parsed:
    """One run as its output tells it.  What the output does not tell is absent, never guessed."""

    engine: str = ""
    version: str = ""
    phases: tuple[Phase, ...] = ()
    argv: tuple[str, ...] = ()
    options: JsonObject = field(default_factory=dict)  # in the words of the workload
    nodes: int | None = None  # client nodes
    processes: int | None = None  # all together
    started: str = ""  # as printed; ISO 8601 UTC where the output is sure of the zone
    failure: str = ""  # why the run failed, one sentence; empty if it did not
    notes: tuple[Note, ...] = ()
    facts: JsonObject = field(default_factory=dict)  # what else it told


Parser = Callable[[str, str], list[Parsed]]

ROUNDED = 5e-4  # relative: four digits, as people write values down by hand


def agrees(stated: float, again: float, digits: float = 0.0) -> bool:
    """Whether a stated value is what follows from other numbers of its output.

    `digits`: how far it may be off for the digits that are not written, at least.
    """
    return abs(again - stated) <= max(digits, ROUNDED * abs(stated))


_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
_TIMES = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S")  # of IOR, of mdtest


@dataclass(frozen=True)
class Format:
    """One kind of text: how it is recognised (by content) and parsed."""

    name: str
    recognises: Callable[[str], bool]
    parse: Parser  # (text, source for messages) -> runs, at least one; ParseError


def headless(program: str, recognises: Callable[[str], object]) -> tuple[Format, ...]:
    """Of outputs that lost their first lines: nothing is read, ParseError says what to do."""

    def refuse(_: str, source: str) -> list[Parsed]:
        text = f"{program}'s output, and its first lines are missing: import the whole output"
        raise ParseError(source, 0, text)

    name = f"{program} without its first lines"
    return (Format(name, lambda text: bool(recognises(text)), refuse),)


def is_older(version: str, oldest: str) -> bool:
    """Whether a printed version ("2.21", "3.0.1rc1") is below another; False for no number."""
    seen, least = (_VERSION.match(text) for text in (version, oldest))
    if not seen or not least:
        return False
    return [int(part or 0) for part in seen.groups()] < [int(part or 0) for part in least.groups()]


def totals(
    name: str,
    seconds: float,
    bytes_: int = 0,
    operations: int | None = 0,
    errors: int = 0,
    **more: Any,
) -> Phase:
    """A phase of which only the totals over all workers are known: arrays of one element.

    `operations`: None where the output does not tell them.  `more`: further fields of Phase.
    """
    if operations is None:
        operations, more["facts"] = 0, {**more.get("facts", {}), OPERATIONS_UNKNOWN: True}
    return Phase(
        name=name,
        start=np.zeros(1),
        end=np.array([float(seconds)]),
        bytes=np.array([bytes_], dtype=np.int64),
        operations=np.array([operations], dtype=np.int64),
        errors=np.array([errors], dtype=np.int64),
        **more,
    )


def shared_facts(phases: Sequence[Phase]) -> dict[str, Json]:
    """Facts of several phases as one: the first's; operations are known if those of all are."""
    unknown = any(phase.facts.get(OPERATIONS_UNKNOWN) for phase in phases)
    return {**phases[0].facts, **({OPERATIONS_UNKNOWN: True} if unknown else {})}


def apart(line: str, banner: re.Pattern[str]) -> list[str]:
    """A line, in two parts where a banner follows what a killed run did not end; not blank ones."""
    found = banner.search(line)
    start = found.start() if found else 0
    return [part for part in (line[:start], line[start:]) if part.strip()]


def aged(run: Parsed, oldest: str) -> Parsed:
    """The run; if its version is below `oldest` ("3.2") it says so, in its failure or a note."""
    if not is_older(run.version, oldest):
        return run
    text = f"{run.engine} {run.version} is too old: outputs of {oldest} and newer are known here"
    if run.failure:
        return replace(run, failure=f"{run.failure} ({text})")
    return replace(run, notes=(Note("old-version", text), *run.notes))


Span = tuple[str, float, float]  # where a start worked, from when to when (s); "" not known


def overlapping(starts: Sequence[Sequence[Parsed]], spans: Sequence[Span] = ()) -> list[Parsed]:
    """The runs of one output, by starts of the program; a start that is there twice is one.

    Those of starts that overlap in time on one file, or by one command, say so.  `spans`: of the
    starts, if none of them is there twice; without them as their runs tell.
    """
    starts = starts if spans else _once(starts)
    every = [*spans] or [_span(runs[0]) for runs in starts]
    worked = [sum(map(_window, runs)) for runs in starts]
    result: list[Parsed] = []
    for runs, span in zip(starts, every, strict=True):
        beside = sum(_meet(span, other) for other in every)
        same = [seconds for seconds, other in zip(worked, every, strict=True) if other == span]
        if span[0] and sum(same) > span[2] - span[1] + 1:  # whole seconds cannot hold them in turn
            beside = max(beside, len(same))
        text = f"{beside} starts in this output were at work at the same time on {span[0][:200]}"
        note = (Note("simultaneous", text),) if beside > 1 else ()
        result += [replace(run, notes=(*note, *run.notes)) for run in runs]
    return result


def _once(starts: Sequence[Sequence[Parsed]]) -> list[Sequence[Parsed]]:
    """Without those that are equal to an earlier one in every number and time that they tell."""
    kept: dict[str, Sequence[Parsed]] = {}
    again: set[str] = set()
    for number, runs in enumerate(starts):
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            told = repr([replace(run, notes=()) for run in runs])
        key = told if any(run.phases for run in runs) else str(number)
        if kept.setdefault(key, runs) is not runs:
            again.add(key)
    note = Note("recovered", "it is there more than once: it counts once")
    for key in again:
        kept[key] = [replace(run, notes=(*run.notes, note)) for run in kept[key]]
    return list(kept.values())


def _meet(one: Span, other: Span) -> bool:
    long = one[1] < one[2]
    return bool(one[0]) and one[0] == other[0] and long and one[1] < other[2] and other[1] < one[2]


def _window(run: Parsed) -> float:
    """Seconds of its phases."""
    return sum(float(phase.end.max() - phase.start.min()) for phase in run.phases)


def _span(run: Parsed) -> Span:
    """As printed, in whole seconds."""
    times = [*_parsed_times(run.started), *_parsed_times(str(run.facts.get("finished", "")))]
    place = str(run.facts.get("test_file", "")) or " ".join(run.argv)
    if len(times) != 2:
        return "", 0.0, 0.0
    began, ended = (time.replace(tzinfo=UTC).timestamp() for time in times)
    return place, began, ended


def _parsed_times(text: str) -> Iterator[datetime]:
    for form in _TIMES:
        with suppress(ValueError):
            yield datetime.strptime(text, form)
