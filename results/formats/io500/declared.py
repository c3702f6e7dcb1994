"""What a submission to IO500 says of itself: its place in the collection, and its own form.

The collection (github.com/IO500/submission-data) is
institution/system/file system/year/submission-N/...  The form was lines `io500_info_...=` in the
script that ran it or in what that printed, later system-information.txt of such lines, or
system-information.json.  Where nothing was filled in there is nothing here, never a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.formats.base import Parsed

# The score of IO500: its phases, their units, and how one number is made of them.
#
# The score is the geometric mean of two values: the geometric mean of the four bandwidths in
# GiB/s and that of the eight rates in thousands of operations per second (IO500's main.c,
# calc_score).  IO500 leaves out of its means what is zero, and calls the run invalid; here
# there is no score then.


GIB = 1 << 30
KILO = 1000.0
BANDWIDTHS = ("ior-easy-write", "ior-easy-read", "ior-hard-write", "ior-hard-read")
RATES = (
    "mdtest-easy-write",
    "mdtest-easy-stat",
    "mdtest-easy-delete",
    "mdtest-hard-write",
    "mdtest-hard-stat",
    "mdtest-hard-read",
    "mdtest-hard-delete",
    "find",
)
PHASES = (*BANDWIDTHS, *RATES)
RANDOM_READ = "ior-rnd4K-easy-read"  # since 2024; no part of the score
_KINDS = {"create": "write", "remove": "delete"}  # of the workload `io500` -> IO500's word


@dataclass(frozen=True)
class Score:
    """The three numbers of an IO500 run; None where a phase that they need is missing."""

    bandwidth: float | None  # GiB/s
    rate: float | None  # thousands of operations per second
    total: float | None


def phase_of(name: str) -> str:
    """IO500's name of a phase that it or the workload `io500` calls `name`; empty if none.

    The workload puts the kind first: create-mdtest-easy is mdtest-easy-write.
    """
    kind, _, home = name.partition("-")
    for spelling in (name, f"{home}-{_KINDS.get(kind, kind)}"):
        if spelling in PHASES or spelling == RANDOM_READ:
            return spelling
    return ""


def score(values: Mapping[str, float]) -> Score:
    """Of IO500's phases by name: GiB/s of BANDWIDTHS, thousands per second of RATES."""
    bandwidth, rate = (_mean(values, names) for names in (BANDWIDTHS, RATES))
    complete = bandwidth is not None and rate is not None
    return Score(bandwidth, rate, math.sqrt(bandwidth * rate) if complete else None)  # type: ignore[operator]


def _mean(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """Geometric mean; None if one of them is missing or not a positive number."""
    factors = [values.get(name, math.nan) for name in names]
    if not all(math.isfinite(value) and value > 0 for value in factors):
        return None
    return math.exp(math.fsum(map(math.log, factors)) / len(factors))


_FILES = re.compile(
    r"system-information\.(txt|json)|.{1,80}\.sh|io500\.cfg|io-500-summary\..{1,60}\.txt"
)
_LINE = re.compile(
    r"^[ \t]*(?:echo[ \t]+)?[\"']?io500_info_([A-Za-z_-]{1,60})=[ \t\"'\\]*([^\"'\\#\n]{0,300})",
    re.MULTILINE,
)
_SUBMISSION = re.compile(r"submission-\d{1,9}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_EMPTY = frozenset({"", "xxx"})
# what names the file system, the most telling first; the form of 2018 had a name misspelt
_FILE_SYSTEM = (
    "filesystem_type",
    "filesystem",
    "filesysem",
    "filesystem_name",
    "filesystem_version",
    "filesystem_vendor",
    "storage_vendor",
)
_NODES = ("client_nodes", "num_client_nodes", "number_clientNodes")
_OF_STORAGE = ("type", "name", "version", "vendor")  # of StorageSystem in the JSON


@dataclass(frozen=True)
class Place:
    """Where a run lies in a collection; empty or None where its path does not tell."""

    submission: str  # the path down to submission-N; of a run outside of any, its own path
    system: str  # institution/system
    filesystem: str
    year: int | None


@dataclass(frozen=True)
class Declared:
    """What a submission's form says of its system."""

    filesystem: tuple[str, ...] = ()  # texts that name it, the most telling first
    nodes: int | None = None  # client nodes


def place_of(path: str) -> Place:
    """Of a path below the root of a collection; the innermost submission-N counts."""
    parts = PurePosixPath(path).parts
    at = next((i for i in reversed(range(len(parts))) if _SUBMISSION.fullmatch(parts[i])), None)
    if at is None:
        return Place(path, path, "", None)
    before = list(parts[:at])
    year = int(before.pop()) if before and _YEAR.fullmatch(before[-1]) else None
    filesystem = before.pop().strip() if before else ""
    name = "/".join(parts[: at + 1])
    return Place(name, "/".join(before) or name, filesystem, year)


def is_form(name: str) -> bool:
    """Whether a file of this name may hold the form."""
    return _FILES.fullmatch(name) is not None


def declared(texts: Iterable[str]) -> Declared:
    """What the forms of a submission say; of several answers the first that was filled in."""
    answers: dict[str, list[str]] = {}
    for text in texts:
        pairs = _of_json(text) if text.lstrip().startswith("{") else _of_lines(text)
        for key, value in pairs:
            if value.strip() not in _EMPTY:
                answers.setdefault(key, []).append(value.strip())
    names = dict.fromkeys(name for key in _FILE_SYSTEM for name in answers.get(key, ()))
    counts = [value for key in _NODES for value in answers.get(key, ()) if _whole(value)]
    return Declared(tuple(names), int(counts[0]) if counts else None)


def _whole(value: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,7}", value) is not None


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    for match in _LINE.finditer(text):
        yield match[1], match[2]


def _of_json(text: str) -> Iterator[tuple[str, str]]:
    """The site's form: objects of a type, attributes and children; nothing if it is damaged."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            given = node.get("att")
            if isinstance(given, dict):
                yield from _attributes(str(node.get("type")), given)


def _attributes(kind: str, given: dict[str, Json]) -> Iterator[tuple[str, str]]:
    names = _OF_STORAGE if kind == "StorageSystem" else _NODES if kind == "information" else ()
    for name in names:
        if isinstance(value := given.get(name), str):
            yield (f"filesystem_{name}" if kind == "StorageSystem" else name), value


# A run of IO500 out of a directory of many, with what its submission says of itself.


@dataclass(frozen=True)
class Collected:
    """A run as it was read."""

    file: str  # the summary that tells it, below the directory that was named
    place: Place
    declared: Declared
    sha256: str  # of the summary
    parsed: Parsed


@dataclass(frozen=True)
class Collection:
    """All runs below a directory, by path, and what could not be read."""

    runs: tuple[Collected, ...]
    unread: tuple[tuple[str, str], ...]  # path, why
    without: tuple[str, ...]  # submissions in which no file is the summary of a run
