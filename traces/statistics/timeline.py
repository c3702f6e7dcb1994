"""Equal parts of a trace: how much is done in each, and where in the files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Integers, Kind, scrambled
from fsmatrix.results.evidence.trace import Band, Order, Windows
from fsmatrix.traces.model import PAGE, Files, Operations
from fsmatrix.traces.statistics.kinds import Classes

# Where reads and writes begin, against where the one before them on the handle ended.


FRESH = -1  # end of a slot on which nothing was done since it was opened
FIRST, CONSECUTIVE, AHEAD, BACK = range(4)


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


MOST = 96
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
        windows = max(1, min(MOST, trace.operations))
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
