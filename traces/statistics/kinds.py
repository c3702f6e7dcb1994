"""Operations of each kind: how many, how large, how they ended, how long they took."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import DATA_KINDS, Integers, Kind
from fsmatrix.results import histogram
from fsmatrix.results.evidence.trace import FileClass, KindStatistics, Latencies
from fsmatrix.traces.model import UNKNOWN, Columns, Files
from fsmatrix.traces.statistics.pages import Spectrum

# Classes of files, by their extensions, and what is done to each.


DIRECTORY, NONE, OTHER = "directories", "no extension", "others"
MOST = 200  # classes; the extensions of fewest files are OTHER
LONGEST = 12  # bytes of an extension; what is longer is part of a name


@dataclass(frozen=True)
class Classes:
    """Names of classes, and the class of each file."""

    names: tuple[str, ...]
    of: npt.NDArray[np.uint8]  # [file]


def extension(name: bytes) -> str:
    """The class of a file: its extension in small letters with the dot, or NONE.

    A version behind it (libc.so.6) is no extension; nor is a number (0001.00042), or what stands
    behind the first dot of a hidden file.
    """
    last = name.rsplit(b"/", 1)[-1].lstrip(b".")
    while b"." in last:
        last, _, end = last.rpartition(b".")
        if end and not end.isdigit():
            text = end.lower().decode("utf-8", "backslashreplace")
            return f".{text}" if len(end) <= LONGEST else NONE
    return NONE


def classes(files: Files) -> Classes:
    """Classes of all files of a trace; those of most files have names of their own."""
    directory = files.directory.tolist()
    names = [
        DIRECTORY if is_directory else extension(name)
        for name, is_directory in zip(files.names(), directory, strict=True)
    ]
    frequent = [name for name, _ in Counter(names).most_common(MOST)]
    number = {name: i for i, name in enumerate(frequent)}
    of = np.array([number.get(name, len(frequent)) for name in names], dtype=np.uint8)
    return Classes((*frequent, OTHER), of)


class ClassCounts:
    """Takes operations with the class of each one's file."""

    def __init__(self, files: int, classes: Classes) -> None:
        self._classes, self._used = classes, np.zeros(files, dtype=np.bool_)
        self._counts = np.zeros((5, len(classes.names)), dtype=np.int64)

    @property
    def used(self) -> int:
        """Files that an operation names."""
        return int(np.count_nonzero(self._used))

    def add(self, kind: npt.NDArray[np.uint8], file: Integers, moved: Integers) -> None:
        """Operations in any order."""
        self._used[file] = True
        of = self._classes.of[file]
        read, written = kind == Kind.READ, kind == Kind.WRITE
        for row, chosen, weights in (
            (0, np.ones_like(read), None),
            (1, read, None),
            (2, written, None),
            (3, read, moved),
            (4, written, moved),
        ):
            some = None if weights is None else weights[chosen].astype(np.float64)
            sums = np.bincount(of[chosen], some, minlength=len(self._classes.names))
            self._counts[row] += np.rint(sums).astype(np.int64)

    def statistics(self) -> tuple[FileClass, ...]:
        """Of the classes that have files, the one of most operations first."""
        files = np.bincount(self._classes.of, minlength=len(self._classes.names)).tolist()
        rows = zip(self._classes.names, files, *self._counts.tolist(), strict=True)
        return tuple(
            FileClass(
                name=name,
                files=count,
                operations=operations,
                reads=reads,
                writes=writes,
                read_bytes=read,
                written_bytes=written,
            )
            for name, count, operations, reads, writes, read, written in sorted(
                rows, key=lambda row: -row[2]
            )
            if count
        )


def moved_bytes(block: Columns) -> Integers:
    """Bytes that each operation moved; what it asked for where its outcome was not captured.

    0 for what failed.
    """
    result, size = block["result"], block["size"].astype(np.int64)
    moved = np.where(result == UNKNOWN, size, np.clip(result, 0, size))
    moved[(block["kind"] != Kind.READ) & (block["kind"] != Kind.WRITE)] = 0
    return moved


class _Kind:
    def __init__(self) -> None:
        self.operations = self.failed = self.short = self.asked = self.moved = 0
        self.sizes = Spectrum()
        self.latency = np.zeros(histogram.BINS, dtype=np.int64)
        self.total = self.longest = 0  # ns


class Kinds:
    """Takes blocks of a trace."""

    def __init__(self) -> None:
        self._kinds = {kind: _Kind() for kind in Kind}

    def add(self, block: Columns, moved: Integers) -> None:
        """Operations in any order; `moved` as `moved_bytes` says."""
        for number in np.unique(block["kind"]).tolist():
            chosen = block["kind"] == number
            self._add(Kind(number), {name: block[name][chosen] for name in block}, moved[chosen])

    def _add(self, kind: Kind, block: Columns, moved: Integers) -> None:
        of, result = self._kinds[kind], block["result"]
        captured = result != UNKNOWN
        of.operations += len(result)
        of.failed += int(np.count_nonzero(captured & (result < 0)))
        if kind in DATA_KINDS:
            size = block["size"].astype(np.int64)
            of.short += int(np.count_nonzero(captured & (result >= 0) & (result < size)))
            of.asked += int(size.sum())
            of.moved += int(moved.sum())
            of.sizes.add(size)
        latency: npt.NDArray[np.int64] = block["latency"][block["latency"] >= 0]
        if len(latency):
            of.latency += np.bincount(histogram.bin_of(latency), minlength=histogram.BINS)
            of.total += int(latency.sum())
            of.longest = max(of.longest, int(latency.max()))

    def statistics(self) -> tuple[KindStatistics, ...]:
        """Of the kinds that occur, the most frequent first."""
        there = [(kind, of) for kind, of in self._kinds.items() if of.operations]
        return tuple(
            KindStatistics(
                kind=kind.name.lower(),
                operations=of.operations,
                failed=of.failed,
                short=of.short,
                asked=of.asked,
                moved=of.moved,
                sizes=of.sizes.sizes(),
                latencies=_latencies(of),
            )
            for kind, of in sorted(there, key=lambda pair: -pair[1].operations)
        )


def _latencies(of: _Kind) -> Latencies | None:
    count = int(of.latency.sum())
    if not count:
        return None
    p50, p95, p99, p99_9 = (
        None if math.isnan(value) else value
        for value in (histogram.percentile(of.latency, q) for q in (0.5, 0.95, 0.99, 0.999))
    )
    return Latencies(
        operations=count,
        total=of.total / 1e9,
        mean=of.total / count / 1e9,
        p50=p50,
        p95=p95,
        p99=p99,
        p99_9=p99_9,
        longest=of.longest / 1e9,
    )
