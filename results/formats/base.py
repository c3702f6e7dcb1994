"""What the parsers of engines' outputs share: text in, one `Parsed` for each run in it.

A parser is pure and knows no file: it is given a text and a name for messages.  It returns
what can be recovered, and marks with notes what was odd about it; for anything else it
raises ParseError, and nothing but ParseError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsmatrix.results.evidence.evidence import Note as Note
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.record import Phase


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


@dataclass(frozen=True)
class Format:
    """One kind of text: how it is recognised (by content) and parsed."""

    name: str
    recognises: Callable[[str], bool]
    parse: Parser  # (text, source for messages) -> runs, at least one; ParseError


def is_older(version: str, least: tuple[int, int]) -> bool:
    """Whether a printed version ("2.21", "3.0.1rc1") is below major.minor; False for no number."""
    numbers = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2] or 0)) < least


def totals(
    name: str, seconds: float, bytes_: int = 0, operations: int = 0, errors: int = 0, **more: Any
) -> Phase:
    """A phase of which only the totals over all workers are known: arrays of one element.

    `more`: further fields of Phase.
    """
    return Phase(
        name=name,
        start=np.zeros(1),
        end=np.array([float(seconds)]),
        bytes=np.array([bytes_], dtype=np.int64),
        operations=np.array([operations], dtype=np.int64),
        errors=np.array([errors], dtype=np.int64),
        **more,
    )
