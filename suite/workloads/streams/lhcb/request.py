"""What a program of the LHCb analysis is asked, what it answers, and how that is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

MARK = "fsmatrix-lhcb: "  # before the answer, on a line of its own
FAILED = 3  # exit status of a program that says in its answer why


class Refused(Exception):
    """The program cannot do what it is asked; the text says why."""


@dataclass(frozen=True)
class Request:
    """Part of a data set that is written or read by one process."""

    events: int
    seed: int
    parts: int = 1
    source: str = ""  # a user's file instead of the generator; absolute path
    tree: str = ""  # its TTree or RNTuple
    compression: str = "none"
    page_size: int = 1 << 20  # bytes, uncompressed
    cluster_size: int = 0  # bytes, compressed; 0: what the engine does
    object_class: str = ""  # on DAOS
    threads: int = 1
    fsync: bool = True

    def text(self) -> str:
        """As a word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Request:
        """Inverse of `text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Times:
    """Of one process, Unix seconds: what was done is between two neighbours."""

    began: float  # the program, its libraries loaded and its data made
    opened: float  # file or container open, columns known
    moved: float  # the event loop
    ended: float  # closed; fsync


@dataclass(frozen=True)
class Answer:
    """What one process tells of its part."""

    engine: str
    version: str
    times: Times
    events: int
    stored: int  # bytes in the file, or read of it; compressed
    selected: Mapping[str, object]  # selection.Selected
    facts: Mapping[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """The line that the program prints."""
        return MARK + json.dumps(asdict(self))
