"""What a trace holds: operations as columns, and the files, slots and threads that they name.

A file is a path below the traced directory.  A slot is one open handle of a file at a time: a
file that is open twice at once has two slots, so that an operation needs no other name for the
handle it works on.  What works on a name (stat, unlink, ...) names any slot of that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import ops
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.files.safefile import ResultError

# The table of files of a trace.


class Files:
    """Names (bytes, relative), sizes at the start, which are directories."""

    def __init__(
        self,
        names: bytes,
        ends: npt.NDArray[np.uint64],
        size: npt.NDArray[np.int64],
        directory: npt.NDArray[np.bool_],
    ) -> None:
        """`names`: all paths, one after the other; `ends`: where each ends in it."""
        self._names, self._ends = names, ends
        self.size = size  # bytes; model.ABSENT: not there
        self.directory = directory

    @classmethod
    def of(cls, names: Sequence[bytes], sizes: Sequence[int]) -> Files:
        """Files, none of them a directory, that were there with these sizes."""
        ends = np.cumsum([len(name) for name in names], dtype=np.uint64)
        size = np.array(sizes, dtype=np.int64)
        return cls(b"".join(names), ends, size, np.zeros(len(names), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self._ends)

    def name(self, row: int) -> bytes:
        """Path of a file."""
        begin = int(self._ends[row - 1]) if row else 0
        return self._names[begin : int(self._ends[row])]

    def names(self) -> Iterator[bytes]:
        """All paths, in the order of the rows."""
        begin = 0
        for end in self._ends.tolist():
            yield self._names[begin:end]
            begin = end


FORMAT = "fsmatrix trace"
VERSION = 1
PAGE = 4096  # bytes; what is said of pages is said of these
BLOCK = 1 << 16  # operations that are made, written or read at once
MOST_NAME = 4095  # bytes of a path, PATH_MAX without its end
MOST_BYTES = (1 << 31) - 1  # of one operation; Linux moves no more at once
MOST_OFFSET = 1 << 63  # no byte of a file lies there or beyond
ABSENT = -1  # size of a file that was not there at the start
NOT_CAPTURED = -1  # latency
UNKNOWN = ops.UNKNOWN  # result
FLAGS = int(sum(Flag))  # all that there are
NO_TIMES = "no_times"  # in the facts of what has stamps that are no times: why

# Operations: column -> type.  They stand in the order of their issue times.
COLUMNS: Mapping[str, np.dtype[Any]] = {
    "kind": np.dtype("u1"),  # ops.Kind
    "flags": np.dtype("u1"),  # ops.Flag
    "slot": np.dtype("<u4"),
    "slot2": np.dtype("<u4"),  # rename: of the new name
    "thread": np.dtype("<u4"),  # row of the threads
    "offset": np.dtype("<u8"),  # bytes; truncate: the new size
    "size": np.dtype("<u4"),  # bytes that a read or write asks for
    "time": np.dtype("<u8"),  # of the issue, ns after the first operation
    "latency": np.dtype("<i8"),  # ns, or NOT_CAPTURED
    "result": np.dtype("<i8"),  # bytes moved (0 for other kinds), -errno, or UNKNOWN
}
Columns = Mapping[str, npt.NDArray[Any]]  # all of one length


class TraceError(ResultError):
    """A trace cannot be used: which file, and why."""


@dataclass(frozen=True)
class Header:
    """Where a trace comes from, and what it does not tell."""

    source: str  # of what kind: strace, fio-iolog, dbench, darshan, blktrace, generator
    command: tuple[str, ...] = ()  # that was traced; or what generated it
    timed: bool = (
        True  # issue times are those of the program; else only their order means something
    )
    anonymised: bool = False  # names of files are not the real ones
    # what was seen but is not in the trace -> how often ("mmap", "outside the root", ...)
    unseen: Mapping[str, int] = field(default_factory=dict)
    facts: JsonObject = field(default_factory=dict)  # of the source; JSON


@dataclass(frozen=True)
class Thread:
    """Who did an operation: process and thread ids as captured, and the MPI rank."""

    process: int = 0
    thread: int = 0
    rank: int = 0


class Operation(NamedTuple):
    """What a program asked for; COLUMNS has the units.

    A tuple, since an import makes one for each line.
    """

    kind: Kind
    slot: int
    flags: int = 0
    slot2: int = 0
    offset: int = 0
    size: int = 0


class Operations(Protocol):
    """Operations and what they name, block by block: a trace file (reader) or a generator."""

    @property
    def header(self) -> Header:
        """Where they come from."""

    @property
    def files(self) -> Files:
        """Paths and sizes at the start."""

    @property
    def slots(self) -> npt.NDArray[np.uint32]:
        """File of each slot."""

    @property
    def threads(self) -> npt.NDArray[np.uint64]:
        """[thread, (process, id, rank)]."""

    @property
    def operations(self) -> int:
        """How many there are."""

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[Columns]:
        """Operations first, first + 1, ... stop - 1, checked, `block` of them at a time."""


def name_problem(name: bytes) -> str:
    """Why `name` cannot be the path of a file below the traced directory (empty: it can).

    What is allowed leads nowhere else: relative, without empty, "." and ".." parts.
    """
    if not name or len(name) > MOST_NAME:
        return f"a path of {len(name)} bytes; 1 to {MOST_NAME} are allowed"
    if b"\0" in name:
        return f"the path {shown(name)} has a NUL byte"
    if any(part in (b"", b".", b"..") for part in name.split(b"/")):
        return f"the path {shown(name)} is absolute, or has an empty part, '.' or '..'"
    return ""


def shown(name: bytes) -> str:
    """A path for a message, in quotes: what is not UTF-8 as \\x.. and at most 80 characters."""
    text = name.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 80 else text[:77] + "...")


def problem(columns: Columns, slots: int, threads: int, after: int = 0) -> tuple[int, str] | None:
    """The first operation that no trace may have, and what is wrong with it.

    `columns` may be some of COLUMNS.  `after`: the issue time before them, ns.
    """
    for name, limit, what in (
        ("kind", int(Kind.EVICT), "an unknown kind"),  # that one is no program's
        ("slot", slots, "a slot that is not in the table"),
        ("slot2", slots, "a second slot that is not in the table"),
        ("thread", threads, "a thread that is not in the table"),
        ("size", MOST_BYTES + 1, f"more than {MOST_BYTES} bytes"),
        ("offset", MOST_OFFSET, "an offset of 2^63 or more"),
    ):
        if name in columns and columns[name].max(initial=0) >= limit:  # a pass without a copy
            return int(np.argmax(columns[name] >= limit)), what
    if {"offset", "size"} <= columns.keys():
        offset, size = columns["offset"], columns["size"]
        if int(offset.max(initial=0)) + int(size.max(initial=0)) >= MOST_OFFSET:
            wrong = np.flatnonzero(offset + size >= MOST_OFFSET)
            if len(wrong):
                return int(wrong[0]), "an end of 2^63 or more"
    if "time" in columns and len(columns["time"]):
        times = columns["time"]
        if times[0] < after:
            return 0, "an issue time before that of the operation before it"
        if len(wrong := np.flatnonzero(times[1:] < times[:-1])):
            return int(wrong[0]) + 1, "an issue time before that of the operation before it"
        if times[-1] >= MOST_OFFSET:
            return len(times) - 1, "an issue time of 2^63 ns or more"
    return None


# Which paths belong to a trace: those below the roots, by the names that the program used.


MOST_KEPT = 1 << 16  # paths whose name is remembered


def normal(base: bytes, path: bytes) -> bytes:
    """An absolute path without ".", ".." and empty parts; "/" is b"".

    `base`: normal itself; what a relative path begins at.  ".." takes the name before it away,
    even where that is a symbolic link.
    """
    parts = [] if path.startswith(b"/") else base.split(b"/")[1:]
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"".join(b"/" + part for part in parts)


class Roots:
    """The directories whose files are in the trace.

    With one root names are those below it; with several they begin with the last part of the
    root's name (and "-2", ... where two roots have the same).
    """

    def __init__(self, roots: Sequence[bytes]) -> None:
        """`roots`: absolute.  ValueError if one contains another."""
        self.paths = tuple(normal(b"", root) for root in roots)
        self.labels = _labels(self.paths)
        pairs = {}
        for root, label in zip(self.paths, self.labels, strict=True):
            pairs[root] = label
            pairs.setdefault(normal(b"", os.path.realpath(root or b"/")), label)
        for inner in pairs:
            for outer in pairs:
                if pairs[inner] != pairs[outer] and inner.startswith(outer + b"/"):
                    raise ValueError(f"{_shown(inner)} lies below {_shown(outer)}: give one")
        self._pairs = sorted(pairs.items(), key=lambda pair: -len(pair[0]))
        self._names: dict[bytes, bytes | None] = {}

    def name(self, path: bytes) -> bytes | None:
        """The name in the trace of a normal path: b"" is a single root itself; None: outside."""
        if path in self._names:
            return self._names[path]
        if len(self._names) >= MOST_KEPT:
            self._names.clear()
        name = self._name(path)
        if len(path) <= MOST_NAME:
            self._names[path] = name
        return name

    def _name(self, path: bytes) -> bytes | None:
        for root, label in self._pairs:
            if path == root:
                return label
            if path.startswith(root + b"/"):
                rest = path[len(root) + 1 :]
                return label + b"/" + rest if label else rest
        return None


def _labels(paths: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(paths) == 1:
        return (b"",)
    labels: list[bytes] = []
    for path in paths:
        last = path.rpartition(b"/")[2] or b"root"
        label, count = last, 1
        while label in labels:
            count += 1
            label = last + b"-%d" % count
        labels.append(label)
    return tuple(labels)


def _shown(path: bytes) -> str:
    return str(Path(os.fsdecode(path or b"/")))
