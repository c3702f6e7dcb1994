"""What the parsers of tools that watch a node share: text in, a `NodeSeries`, or a `ParseError`.

A file may be of days, and be longer than memory: a parser reads it in one pass or two and keeps
what lies near the times that are asked for.  `head` comes first: it tells whose file it is and
whether its times have a zone, by which its caller makes a `Clock`.
"""

from __future__ import annotations

import codecs
import functools
import importlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

import numpy as np

from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import Floats, Integers
from fsmatrix.results.registry import UnknownName

KIB = 1024.0
LONGEST = 16 << 20  # characters of a line, or of one sample of JSON
NAME = 100  # characters of a device's name
MOST_NAMES = 20_000  # series of one file
HEAD = 4096  # bytes that tell whether it is text
QUARTER = 900  # seconds: zones change their offset at such times only


class Text:
    """A text that can be read from its beginning more than once, in pieces."""

    def __init__(self, name: str, pieces: Callable[[], Iterable[bytes]]) -> None:
        """`name` is for messages; `pieces` opens it anew."""
        self.name = name
        self.cut = False  # known after it was read: it ends too early
        self._pieces = pieces

    def pieces(self) -> Iterator[str]:
        """What is not UTF-8 is replaced.  ParseError for what is no text."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        for piece in self._pieces():
            if b"\0" in piece[:HEAD]:
                raise ParseError(self.name, 0, "is not text")
            yield decoder.decode(piece)

    def lines(self) -> Iterator[str]:
        """Its whole lines, without their ends; what no end of line follows is left out."""
        rest = ""
        for piece in self.pieces():
            *lines, rest = (rest + piece).split("\n")
            yield from lines
            if len(rest) > LONGEST:
                raise ParseError(self.name, 0, f"a line is longer than {LONGEST} characters")
        self.cut = self.cut or bool(rest)

    def error(self, line: int, reason: str) -> ParseError:
        """An error of this text; `line` counts from 1."""
        return ParseError(self.name, line, reason)


@dataclass(frozen=True)
class Head:
    """What the beginning of a file says."""

    host: str = ""  # empty: it does not say
    zone: tzinfo | None = None  # of its times; None: it does not say
    interval: float = 0.0  # seconds between samples; 0: it does not say
    resolution: float = 1.0  # of the times that it writes, seconds


class Clock:
    """Local times of one file, in their order, as Unix times."""

    def __init__(self, zone: tzinfo | None) -> None:
        """`zone` None: that of this machine."""
        self._zone = zone
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}
        self._last = float("-inf")

    def unix(self, day: tuple[int, int, int], seconds: float) -> float:
        """Of a day (year, month, day) and seconds since its midnight; ValueError for no time.

        An hour that a zone has twice is the second one if the first lies before what came last.
        """
        quarter = int(seconds // QUARTER)
        key = (*day, quarter)
        if key not in self._known:
            hour, rest = divmod(quarter * QUARTER, 3600)
            at = datetime(*day, hour, rest // 60, tzinfo=self._zone)
            first, second = (at.replace(fold=fold).timestamp() for fold in (0, 1))
            self._known[key] = first, second
        first, second = (start + seconds - quarter * QUARTER for start in self._known[key])
        self._last = second if first < self._last <= second else first
        return self._last


def seconds_of(text: str) -> float:
    """Of "14:21:02" or "14:21:02.005"; ValueError for anything else."""
    hour, minute, second = text.split(":")
    whole = int(hour), int(minute), float(second)
    if not (0 <= whole[0] < 24 and 0 <= whole[1] < 60 and 0 <= whole[2] < 62):
        raise ValueError(text)
    return whole[0] * 3600 + whole[1] * 60 + whole[2]


@dataclass(frozen=True)
class Spans:
    """Times near which samples are wanted: [begin, end], sorted, Unix time of the node's clock."""

    begins: Floats
    ends: Floats

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float]], ahead: float = 0.0) -> Spans:
        """Of spans that may overlap, for a clock that is `ahead` of theirs (s)."""
        merged: list[list[float]] = []
        for begin, end in sorted(spans):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        pairs = np.array(merged, dtype=np.float64).reshape(-1, 2) + ahead
        return cls(pairs[:, 0], pairs[:, 1])

    def near(self, time: float, seconds: float) -> bool:
        """Whether one lies within so many seconds of a time."""
        index = bisect_left(self.ends, time - seconds)
        return index < self.ends.size and bool(self.begins[index] <= time + seconds)


EVER = Spans(np.array([-np.inf]), np.array([np.inf]))


@dataclass(frozen=True)
class Columns:
    """Series with the same samples: those that one kind of line tells."""

    names: tuple[str, ...]  # as in evidence.nodes.METRICS
    rows: Integers  # [row], index along NodeSeries.time
    values: Any  # [row, name], float32 in METRICS' units; NaN: not told


@dataclass(frozen=True)
class NodeSeries:
    """What one file tells of one node, on the node's own clock."""

    host: str
    source: str  # nmon, sar, collectl
    time: Floats  # [sample], Unix time: the end of what a sample is of
    begins: Floats  # [sample], Unix time: its begin
    moved: Floats  # [sample], bytes/s of all links but the loopback, both ways; NaN: not told
    interval: float  # seconds, median
    resolution: float  # of its times, seconds
    columns: tuple[Columns, ...]  # of the samples that were wanted
    notes: tuple[str, ...] = ()


@dataclass
class Gatherer:
    """Takes the samples of one file in the order of their times, and keeps those near `wanted`."""

    text: Text
    source: str
    head: Head
    wanted: Spans = EVER
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is gathered yet."""
        self._time, self._begins, self._moved = array("d"), array("d"), array("d")
        self.kept = bytearray()  # [sample], whether it is near what is wanted
        self._values: dict[tuple[str, ...], tuple[array[int], array[float]]] = {}
        self._factors: dict[tuple[str, ...], tuple[float, ...]] = {}
        self._backwards = 0
        self._names: set[str] = set()

    def sample(self, time: float, interval: float = 0.0) -> int:
        """A new sample's number; -1 for one that is not after the last: it is left out.

        `interval`: seconds that it is of; 0: since the sample before.
        """
        last = self._time[-1] if self._time else None
        if last is not None and time <= last:
            self._backwards += 1
            return -1
        spacing = interval or self.head.interval or 1.0
        if last is not None and (not interval or last > time - 1.5 * interval):
            begin = last
        else:
            begin = time - spacing
        self._time.append(time)
        self._begins.append(begin)
        self._moved.append(np.nan)
        near = 2 * max(spacing, time - begin) + self.head.resolution
        self.kept.append(self.wanted.near(time, near))
        return len(self._time) - 1

    def add(
        self,
        sample: int,
        names: tuple[str, ...],
        values: Iterable[float],
        factors: tuple[float, ...] = (),
    ) -> None:
        """Values of a sample, one for each name; times their factor in the units of METRICS."""
        if not self.kept[sample]:
            return
        if names not in self._values:
            self._names.update(names)
            if len(self._names) > MOST_NAMES:
                raise self.text.error(0, f"tells more than {MOST_NAMES} series of one node")
            self._values[names] = array("q"), array("f")
            self._factors[names] = factors
        rows, table = self._values[names]
        rows.append(sample)
        table.extend(values)

    def moves(self, sample: int, rate: float) -> None:
        """Bytes/s of all links of a sample."""
        self._moved[sample] = rate

    def series(self) -> NodeSeries:
        """All that was gathered; ParseError for nothing."""
        if not self._time:
            raise self.text.error(0, "holds no sample")
        if self.text.cut:
            self.notes.append("it is cut off: what its last line begins is left out")
        if self._backwards:
            note = f"{self._backwards} samples are not later than those before: left out"
            self.notes.append(note)
        columns = []
        for names, (rows, table) in self._values.items():
            values = np.frombuffer(table, dtype=np.float32).reshape(len(rows), len(names))
            if self._factors[names]:
                values *= np.array(self._factors[names], dtype=np.float32)
            numbers = np.frombuffer(rows, dtype=np.int64)
            if (np.diff(numbers) < 0).any():  # of a file that was sorted by its lines
                order = np.argsort(numbers, kind="stable")
                numbers, values = numbers[order], values[order]
            columns.append(Columns(names, numbers, values))
        time, begins = np.array(self._time), np.array(self._begins)
        return NodeSeries(
            host=self.head.host,
            source=self.source,
            time=time,
            begins=begins,
            moved=np.array(self._moved),
            interval=float(np.median(time - begins)),
            resolution=self.head.resolution,
            columns=tuple(columns),
            notes=tuple(self.notes),
        )


@functools.lru_cache(MOST_NAMES)
def clean(name: str) -> str:
    """The name of a device or link as series carry it: printable, not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in name.strip())
    return shown[:NAME] or "?"


def counted(names: Iterable[str]) -> list[str]:
    """Names of series without those of partitions: their disk counts what they do."""
    names = list(names)
    disks = {name.partition(":")[2] for name in names if name.startswith("disk_")}
    return [n for n in names if not n.startswith("disk_") or not _has_disk(n, disks)]


def _has_disk(name: str, disks: set[str]) -> bool:
    """sda1 of sda, nvme0n1p1 of nvme0n1; not loop10 of loop1."""
    disk = name.partition(":")[2]
    whole = disk.rstrip("0123456789")
    if whole == disk:
        return False
    if whole.endswith("p") and whole[-2:-1].isdigit():
        return whole[:-1] in disks
    return whole in disks


def number(text: Text, line: int, word: str) -> float:
    """ParseError says what is allowed."""
    try:
        return float(word)
    except ValueError:
        reason = f"{word[:40]!r} is not a number as 12.5 (written with LC_ALL=C?)"
        raise text.error(line, reason) from None


def floats(text: Text, line: int, words: Sequence[str]) -> list[float]:
    """As `number`, of many."""
    try:
        return list(map(float, words))
    except ValueError:
        return [number(text, line, word) for word in words]


@dataclass(frozen=True)
class NodeFormat:
    """One tool's files."""

    name: str
    wanted: str  # which of its outputs is read, and how it is made
    head: Callable[[Text], Head]  # ParseError for another tool's
    parse: Callable[[Text, Head, Clock, Spans], NodeSeries]  # ParseError


BUILTIN: dict[str, str] = {
    name: f"fsmatrix.results.formats.nodes.{name}:FORMAT" for name in ("nmon", "sar", "collectl")
}


def known(name: str) -> NodeFormat:
    """The format of a tool; UnknownName for one that is not read."""
    if name not in BUILTIN:
        raise UnknownName("tool", name, BUILTIN)
    module, _, attribute = BUILTIN[name].partition(":")
    found: NodeFormat = getattr(importlib.import_module(module), attribute)
    return found
