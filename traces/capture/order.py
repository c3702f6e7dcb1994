"""Operations in the order of their issue, whatever the order in which they ended."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fsmatrix.traces.model import BLOCK, COLUMNS
from fsmatrix.traces.writer import TraceWriter

MOST_WAITING = 16 * BLOCK  # operations that wait for a call that was begun before them and lasts
_ORDER = ("time", "count", "kind", "flags", "slot", "slot2", "thread", "offset", "size")
FIELDS = (*_ORDER, "latency", "result")
Row = tuple[int, ...]  # FIELDS


class Order:
    """Sorts operations into a trace; memory holds what waits for unfinished calls."""

    def __init__(self, writer: TraceWriter) -> None:
        self.moved = 0  # operations whose issue time had to be set to that of one before
        self._writer = writer
        self._rows: list[Row] = []
        self._limit = BLOCK
        self._origin: int | None = None
        self._last = 0

    def add(self, row: Row, unfinished: Mapping[int, int]) -> None:
        """One operation.  `unfinished`: who -> issue time of what is still to come."""
        self._rows.append(row)
        if len(self._rows) >= self._limit:
            self._write(min(unfinished.values(), default=None))

    def finish(self) -> None:
        """Write what waits."""
        self._write(None)

    def _write(self, bound: int | None) -> None:
        rows = self._rows
        rows.sort()
        end = len(rows)
        if bound is not None and end < MOST_WAITING:
            end = int(np.searchsorted(np.array([row[0] for row in rows]), bound, "right"))
        self._rows = rows[end:]
        self._limit = len(self._rows) + BLOCK
        if not end:
            return
        values = dict(zip(FIELDS, zip(*rows[:end], strict=True), strict=True))
        columns = {
            name: np.array(values[name], dtype=dtype)
            for name, dtype in COLUMNS.items()
            if name != "time"
        }
        columns["time"] = self._times(np.array(values["time"], dtype=np.int64))
        self._writer.append(columns)

    def _times(
        self, times: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Since the first operation; never going back."""
        if self._origin is None:
            self._origin = int(times[0])
        times = times - self._origin
        self.moved += int(np.count_nonzero(times < self._last))
        times = np.maximum(times, self._last)
        self._last = int(times[-1])
        return times.astype(np.uint64)
