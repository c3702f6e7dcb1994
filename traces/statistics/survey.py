"""A trace from its first block to its last, and what it is like."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.evidence.trace import TraceStatistics
from fsmatrix.traces.model import Columns, Operations
from fsmatrix.traces.statistics.kinds import ClassCounts, Kinds, classes, moved_bytes
from fsmatrix.traces.statistics.pages import Pages
from fsmatrix.traces.statistics.timeline import Clock, Map, Places, Rates


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
