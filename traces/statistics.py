"""The properties of a trace: one pass over its blocks, in memory that does not grow with them.

Operations of each kind (how many, how large, how they ended, how long they took), and equal parts
of the trace: how much is done in each, and where in the files.  `survey` gives both, with pages
(`touched_pages.py`), as a results.evidence.trace.TraceStatistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import DATA_KINDS, Integers, Kind, scrambled
from fsmatrix.results import histogram
from fsmatrix.results.evidence.trace import (
    Band,
    FileClass,
    KindStatistics,
    Latencies,
    Order,
    TraceStatistics,
    Windows,
)
from fsmatrix.traces.touched_pages import Pages, Spectrum
from fsmatrix.traces.trace_model import PAGE, UNKNOWN, Columns, Files, Operations

# Classes of files, by their extensions, and what is done to each.


DIRECTORY, NONE, OTHER = "directories", "no extension", "others"
MOST = 200  # classes; the extensions of fewest files are OTHER
LONGEST = 12  # bytes of an extension; what is longer is part of a name

# Where reads and writes begin, against where the one before them on the handle ended.
FRESH = -1  # end of a slot on which nothing was done since it was opened
FIRST, CONSECUTIVE, AHEAD, BACK = range(4)


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


class Places:
    """Remembers the end of each slot's last read or write: 8 bytes for each slot."""

    def __init__(self, slots: int) -> None:
        self._end = np.full(slots, FRESH, dtype=np.int64)
        self._counts = {kind: np.zeros(4, dtype=np.int64) for kind in (Kind.READ, Kind.WRITE)}

    def add(
        self,
        kind: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.uint32],
        offset: Integers,
        moved: Integers,
    ) -> None:
        """Opens, creates, reads and writes, in the order of their issue."""
        order = np.argsort(slot, kind="stable")
        kind, slot, offset, moved = kind[order], slot[order], offset[order], moved[order]
        transfer = (kind == Kind.READ) | (kind == Kind.WRITE)
        end = np.where(transfer, offset + moved, FRESH)
        before = np.append(FRESH, end[:-1])
        begins = np.append(True, slot[1:] != slot[:-1])[: len(slot)]
        before = before[: len(slot)]
        before[begins] = self._end[slot[begins]]
        where = np.select(
            [before == FRESH, offset == before, offset > before], [FIRST, CONSECUTIVE, AHEAD], BACK
        )
        for each, counts in self._counts.items():
            counts += np.bincount(where[kind == each], minlength=4)
        last = np.append(begins[1:], True)[: len(slot)]
        self._end[slot[last]] = end[last]

    def order(self, kind: Kind) -> Order:
        """As evidence."""
        first, consecutive, ahead, back = self._counts[kind].tolist()
        return Order(first=first, consecutive=consecutive, ahead=ahead, back=back)


MOST_PLACES = 96
BANDS, ROWS = 5, 60  # of the map: classes, and rows of all of them
SAMPLE = 1 << 15  # reads and writes on the map, at most


@dataclass(frozen=True)
class Clock:
    """Which window an operation is in: by time, or by number where times mean nothing."""

    windows: int
    length: float  # of one: ns, or operations
    timed: bool

    @classmethod
    def of(cls, trace: Operations) -> Clock:
        """Windows of a trace; looks at its last operation."""
        span, last = trace.operations, 0
        for block in trace.blocks(("time",), first=max(trace.operations - 1, 0)):
            last = int(block["time"][-1])
        if trace.header.timed:
            span = last + 1
        windows = max(1, min(MOST_PLACES, trace.operations))
        return cls(windows, span / windows, trace.header.timed)

    def window(self, number: Integers, time: npt.NDArray[np.uint64]) -> Integers:
        """Window of each operation."""
        position = time if self.timed else number
        window: Integers = (position / self.length).astype(np.int64)
        return np.minimum(window, self.windows - 1)


class Rates:
    """Counts and bytes by window."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = np.zeros((5, clock.windows))

    def add(self, kind: npt.NDArray[np.uint8], moved: Integers, window: Integers) -> None:
        """Operations in any order."""
        read, written = kind == Kind.READ, kind == Kind.WRITE
        for row, chosen, weights in (
            (0, read, None),
            (1, written, None),
            (2, ~(read | written), None),
            (3, read, moved[read]),
            (4, written, moved[written]),
        ):
            self._counts[row] += np.bincount(window[chosen], weights, self._clock.windows)

    def statistics(
        self, working_set: npt.NDArray[np.float64], new: npt.NDArray[np.float64]
    ) -> Windows:
        """As evidence; pages of each window are counted elsewhere."""
        reads, writes, others, read, written = (
            tuple(np.rint(row).astype(np.int64).tolist()) for row in self._counts
        )
        return Windows(
            unit="s" if self._clock.timed else "operations",
            length=self._clock.length / (1e9 if self._clock.timed else 1),
            reads=reads,
            writes=writes,
            others=others,
            read_bytes=read,
            written_bytes=written,
            working_set=tuple((working_set * PAGE).tolist()),
            new_pages=tuple(new.tolist()),
        )


class Map:
    """A fair sample of reads and writes, and how far each file goes: 8 bytes for each file."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._clock = clock
        self._extent = np.maximum(files.size, 0)
        self._halvings = 0
        self._sample = np.empty((4, 0), dtype=np.int64)  # hash's bits, window, file, offset
        self._write = np.empty(0, dtype=np.bool_)

    def add(
        self,
        number: Integers,
        file: Integers,
        offset: Integers,
        moved: Integers,
        window: Integers,
        write: npt.NDArray[np.bool_],
    ) -> None:
        """Reads and writes with their numbers in the trace."""
        np.maximum.at(self._extent, file, offset + moved)
        bits = (scrambled(number.astype(np.uint64), 3) >> np.uint64(1)).astype(np.int64)
        chosen = self._chosen(bits)
        new = np.stack([bits[chosen], window[chosen], file[chosen], offset[chosen]])
        self._sample = np.concatenate([self._sample, new], axis=1)
        self._write = np.append(self._write, write[chosen])
        while len(self._write) > SAMPLE:
            self._halvings += 1
            kept = self._chosen(self._sample[0])
            self._sample, self._write = self._sample[:, kept], self._write[kept]

    def _chosen(self, bits: Integers) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = bits >> (63 - self._halvings) == 0
        return chosen

    def bands(self, classes: Classes) -> tuple[Band, ...]:
        """The classes of most operations in the sample; the rest of them together at the end."""
        file = self._sample[2]
        count = len(classes.names)
        often = np.bincount(classes.of[file], minlength=count)
        order = np.argsort(-often, kind="stable")
        own = order[: BANDS if often[order[BANDS:]].sum() == 0 else BANDS - 1]
        own = own[often[own] > 0]
        band_of = np.full(count, len(own))
        band_of[own] = np.arange(len(own))
        bands = len(own) + bool(often.sum() > often[own].sum())
        return tuple(
            self._band(
                classes.names[own[number]] if number < len(own) else "other files",
                band_of[classes.of] == number,
                max(1, ROWS // bands),
            )
            for number in range(bands)
        )

    def _band(self, name: str, member: npt.NDArray[np.bool_], rows: int) -> Band:
        _, window, file, offset = self._sample
        extent = np.where(member, self._extent, 0).astype(np.float64)
        begin = np.cumsum(extent) - extent
        total = float(extent.sum())
        chosen = member[file]
        place = (begin[file[chosen]] + offset[chosen]) / max(total, 1.0)
        row = np.minimum((place * rows).astype(np.int64), rows - 1)
        cell = row * self._clock.windows + window[chosen]
        reads, writes = (
            tuple(np.bincount(cell[some], minlength=rows * self._clock.windows).tolist())
            for some in (~self._write[chosen], self._write[chosen])
        )
        files = np.count_nonzero(member & (self._extent > 0))
        return Band(
            name=name, files=int(files), bytes=int(total), rows=rows, reads=reads, writes=writes
        )


class _Survey:
    """Memory: some 30 bytes for each file, slot and thread, and what pages.MOST_PAGES take."""

    def __init__(self, trace: Operations) -> None:
        self._trace = trace
        self._clock = Clock.of(trace)
        self._classes = classes(trace.files)
        self._kinds = Kinds()
        self._counts = ClassCounts(len(trace.files), self._classes)
        self._places = Places(len(trace.slots))
        self._pages = Pages(self._clock.windows)
        self._rates = Rates(self._clock)
        self._map = Map(trace.files, self._clock)
        self._threads = np.zeros(len(trace.threads), dtype=np.int64)
        self._last = 0  # ns

    def add(self, block: Columns, begin: int) -> None:
        kind, moved = block["kind"], moved_bytes(block)
        number = np.arange(begin, begin + len(kind))
        offset, slot = block["offset"].astype(np.int64), block["slot"]
        file = self._trace.slots[slot].astype(np.int64)
        window = self._clock.window(number, block["time"])
        self._kinds.add(block, moved)
        self._counts.add(kind, file, moved)
        self._rates.add(kind, moved, window)
        self._threads += np.bincount(block["thread"], minlength=len(self._threads))
        self._last = int(block["time"][-1])
        transfer = moved > 0
        opens = (kind == Kind.OPEN) | (kind == Kind.CREATE)
        some = transfer | opens
        self._places.add(kind[some], slot[some], offset[some], moved[some])
        file, offset, moved = file[transfer], offset[transfer], moved[transfer]
        window, number = window[transfer], number[transfer]
        self._pages.add(file, offset, moved, window)
        self._map.add(number, file, offset, moved, window, kind[transfer] == Kind.WRITE)

    def statistics(self) -> TraceStatistics:
        trace, header = self._trace, self._trace.header
        threads = trace.threads[self._threads > 0]
        reuse = self._pages.reuse()
        return TraceStatistics(
            source=header.source,
            command=header.command,
            timed=header.timed,
            anonymised=header.anonymised,
            unseen=header.unseen,
            facts=header.facts,
            operations=trace.operations,
            seconds=self._last / 1e9 if header.timed else None,
            files=len(trace.files),
            files_used=self._counts.used,
            directories=int(trace.files.directory.sum()),
            slots=len(trace.slots),
            threads=len(threads),
            processes=len(np.unique(threads[:, [0, 2]], axis=0)),
            ranks=len(np.unique(threads[:, 2])),
            busiest_thread=(
                int(self._threads.max()) / trace.operations if trace.operations else None
            ),
            kinds=self._kinds.statistics(),
            classes=self._counts.statistics(),
            read_order=self._places.order(Kind.READ),
            write_order=self._places.order(Kind.WRITE),
            reuse=reuse,
            windows=self._rates.statistics(self._pages.working_set, self._pages.new),
            bands=self._map.bands(self._classes),
        )


COLUMNS = ("kind", "slot", "thread", "offset", "size", "time", "latency", "result")


def survey(trace: Operations, tell: Callable[[int], None] | None = None) -> TraceStatistics:
    """What a trace is like.  `tell` is called with the number of operations looked at so far.

    TraceError as `blocks` raises it.
    """
    looked, done = _Survey(trace), 0
    for block in trace.blocks(COLUMNS):
        looked.add(block, done)
        done += len(block["kind"])
        if tell is not None:
            tell(done)
    return looked.statistics()
