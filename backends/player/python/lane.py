"""One lane of the pure-Python player: plays operations, then counts them in numpy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from errno import EBADF, EBUSY, EINVAL
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import content
from fsmatrix.backends.player.ops import DATA_KINDS, Flag, Kind
from fsmatrix.backends.player.python.posix import Calls, File
from fsmatrix.backends.player.result import (
    ESHORT,
    EVERIFY,
    FIRST_WIDTH,
    INTERVALS,
    KINDS,
    Integers,
    Lane,
    LaneError,
    Latencies,
    fold,
    no_latencies,
)
from fsmatrix.results.histogram import BINS, bin_of

# plain integers: comparing with members of an enum costs as much as a system call
READ, WRITE, RENAME, EVICT = int(Kind.READ), int(Kind.WRITE), int(Kind.RENAME), int(Kind.EVICT)
VERIFY = int(Flag.VERIFY)
DATA = frozenset(int(kind) for kind in DATA_KINDS)
HANDLE_KINDS = DATA | {int(Kind.FSYNC), int(Kind.CLOSE), int(Kind.TRUNCATE), EVICT}
OPEN_KINDS = frozenset({int(Kind.OPEN), int(Kind.CREATE)})
SPIN_NS = 50_000
NEVER = (1 << 63) - 1
_FIELDS = ["kind", "flags", "file", "file2", "offset", "size", "time"]

# one executed operation: kind, intended or 0, start, end, bytes, error, place in the chunk
Row = tuple[int, int, int, int, int, int, int]
Outcomes = npt.NDArray[Any] | None  # dtype OUTCOME


class PythonLane:
    """State and counts of one thread."""

    def __init__(
        self,
        calls: Calls,
        files: dict[int, File],
        pool: content.Bytes,
        buffer: content.Bytes,
        *,
        count_metadata: bool,
        stop_on_error: bool,
        pauses: bool,
    ) -> None:
        self._calls = calls
        self._files = files
        self._pool, self._pool_view = pool, memoryview(pool.data)
        self._buffer, self._buffer_view = buffer, memoryview(buffer.data)
        self._counted = np.array([count_metadata or Kind(k) in DATA_KINDS for k in range(KINDS)])
        self._stop_on_error = stop_on_error
        self._pauses = pauses
        self._end = 0  # when the last operation ended
        self._latency = no_latencies()
        self._service: Latencies | None = None
        self._width = FIRST_WIDTH
        self._series = np.zeros((2, INTERVALS), dtype=np.int64)
        self._used = 0
        self._moments = {"first_ns": 0, "last_ns": 0, "io_first_ns": 0, "io_last_ns": 0}
        self._overhead = 0
        self._executed = 0
        self._rows: Sequence[Row] = ()  # of the parts that it plays now
        self._first_error: LaneError | None = None
        self._all: Sequence[PythonLane] = ()
        self.errors: dict[int, int] = {}
        self.played = 0

    def begin(
        self, origin: int, deadline: int, before: int, lanes: Sequence[PythonLane], paced: bool
    ) -> None:
        """Get ready for a chunk."""
        if paced and not self._pauses and self._service is None:
            self._service = no_latencies()
        self._origin = origin
        self._end = self._end or origin
        self._deadline = deadline or NEVER
        self._before = before
        self._all = lanes
        self.played = 0

    @property
    def completed(self) -> int:
        """Operations so far, also while it plays."""
        return self._executed + len(self._rows)

    def run(
        self, parts: Iterable[Sequence[int]], ops: npt.NDArray[Any], outcomes: Outcomes
    ) -> list[int]:
        """Play those of `ops` that stand at the places `parts`, one part after the other.

        The places that are left of the part in which it stopped.
        """
        rows: list[Row] = []
        self._rows = rows
        left: list[int] = []
        now = time.monotonic_ns()
        for part in parts:
            before = len(rows)
            now = self._play(part, ops[part][_FIELDS].tolist(), now, rows)
            if left := list(part[len(rows) - before :]):
                break
        self.played = len(rows)
        self._executed, self._rows = self._executed + len(rows), ()
        if rows:
            self._count(np.array(rows, dtype=np.int64), outcomes)
        return left

    def _play(self, places: Sequence[int], ops: list[Any], now: int, rows: list[Row]) -> int:
        """Play operations as far as time and errors allow, append their rows; the time then."""
        for place, op in zip(places, ops, strict=True):
            if now >= self._deadline or (self._stop_on_error and self._stopped()):
                break
            played = self._one(place, op, now)
            if played is None:
                break
            row, now = played
            rows.append(row)
        return now

    def _stopped(self) -> bool:
        return any(lane.errors for lane in self._all)

    def _one(
        self, index: int, op: tuple[int, int, int, int, int, int, int], now: int
    ) -> tuple[Row, int] | None:
        """Play one operation; its row and the moment it was over with.  None: no time left."""
        kind, flags, slot, slot2, offset, size, intended = op
        file, file2 = self._files[slot], self._files[slot2]
        error = _refusal(kind, file, file2)
        view = self._buffer_view[: size if kind in DATA else 0]
        start = now
        if kind == WRITE:
            at = content.fill(self._pool, file.key, offset, size)
            view = self._pool_view[at : at + size]
            start = time.monotonic_ns()
            self._overhead += start - now
        elif kind != READ and not error:
            error = self._calls.prepare(kind, file, file2)
            start = time.monotonic_ns()
            self._overhead += start - now
        if intended:
            intended += self._end if self._pauses else self._origin
            if intended >= self._deadline:
                return None
            start = _pace(intended)
            intended = 0 if self._pauses else intended
        done = 0
        if not error:
            done, error = self._calls.execute(kind, flags, file, file2, offset, view)
        end = now = self._end = time.monotonic_ns()
        if kind == EVICT:
            self._overhead += end - start
        wrong = -1
        if kind == READ and flags & VERIFY and not error:
            wrong = self._verify(file.key, offset, size)
            if wrong >= 0:
                done, error = 0, EVERIFY
            now = time.monotonic_ns()
            self._overhead += now - end
        if error:
            self._note(index, kind, file, offset, error, end, wrong)
        return (kind, intended, start, end, done, error, index), now

    def _verify(self, key: int, offset: int, size: int) -> int:
        """Position of the first wrong byte in the buffer, -1 if all are right."""
        at = content.fill(self._pool, key, offset, size)
        differs = self._pool[at : at + size] != self._buffer[:size]
        return int(np.argmax(differs)) if differs.any() else -1

    def _note(
        self, index: int, kind: int, file: File, offset: int, error: int, end: int, wrong: int
    ) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1
        if self._first_error is not None:
            return
        right = actual = 0
        if wrong >= 0:
            at = (offset + file.key % content.ROTATIONS * content.BLOCK) % content.POOL + wrong
            right, actual = int(self._pool[at]), int(self._buffer[wrong])
        self._first_error = LaneError(
            ns=end,
            index=self._before + index,
            offset=offset,
            wrong_offset=offset + wrong if wrong >= 0 else 0,
            error=error,
            kind=kind,
            expected=right,
            actual=actual,
            name=file.name,
        )

    def _count(self, rows: Integers, outcomes: Outcomes) -> None:
        """Rows of operations to histograms, series, moments and outcomes."""
        kind, intended, start, end, done, error, place = rows.T
        ok = error == 0
        if outcomes is not None:
            outcomes["start"][place] = np.maximum(start - self._origin, 1)
            outcomes["duration"][place] = end - start
            outcomes["result"][place] = np.where(ok | (error == ESHORT), done, -error)
        paced = ok & (intended > 0)
        since = np.where((intended > 0) & (intended < start), intended, start)
        _add(self._latency, kind[ok], (end - since)[ok])
        if paced.any():
            self._service = self._service or no_latencies()
            _add(self._service, kind[paced], (end - start)[paced])
        self._add_series(end, done, ok & self._counted[kind])
        moments = self._moments
        moments["first_ns"] = moments["first_ns"] or int(start[0])
        moments["last_ns"] = int(end[-1])
        data = np.isin(kind, list(DATA))
        if data.any():
            moments["io_first_ns"] = moments["io_first_ns"] or int(start[data][0])
            moments["io_last_ns"] = int(end[data][-1])

    def _add_series(self, end: Integers, done: Integers, counted: npt.NDArray[np.bool_]) -> None:
        elapsed = np.maximum(end - self._origin, 0)
        while int(elapsed.max()) // self._width >= INTERVALS:
            for row in self._series:
                row[:] = np.append(fold(row, 1), np.zeros(INTERVALS // 2, dtype=np.int64))
            self._used = (self._used + 1) // 2
            self._width *= 2
        index = elapsed // self._width
        np.add.at(self._series[0], index, done)
        np.add.at(self._series[1], index, counted.astype(np.int64))
        self._used = max(self._used, int(index.max()) + 1)

    def facts(self) -> Lane:
        """What was counted up to now."""
        return Lane(
            ops=self._executed,
            **self._moments,
            overhead_ns=self._overhead,
            interval_ns=self._width,
            interval_bytes=self._series[0, : self._used].copy(),
            interval_operations=self._series[1, : self._used].copy(),
            latency=_copy(self._latency),
            service=None if self._service is None else _copy(self._service),
            errors=dict(self.errors),
            first_error=self._first_error,
        )


def _copy(latencies: Latencies) -> Latencies:
    return Latencies(
        latencies.counts.copy(),
        latencies.total_ns.copy(),
        latencies.min_ns.copy(),
        latencies.max_ns.copy(),
    )


def _add(latencies: Latencies, kind: Integers, ns: Integers) -> None:
    counted = np.bincount(kind * BINS + bin_of(ns), minlength=KINDS * BINS)
    latencies.counts[:] += counted.reshape(KINDS, BINS)
    np.add.at(latencies.total_ns, kind, ns)
    np.minimum.at(latencies.min_ns, kind, ns)
    np.maximum.at(latencies.max_ns, kind, ns)


def _refusal(kind: int, file: File, file2: File) -> int:
    """What the player itself refuses, whatever the driver."""
    if kind in HANDLE_KINDS:
        return EBADF if file.handle < 0 else 0
    if not file.valid or (kind == RENAME and not file2.valid):
        return EINVAL
    return EBUSY if kind in OPEN_KINDS and file.handle >= 0 else 0


def _pace(intended: int) -> int:
    """Wait for an intended time; the moment then."""
    left = intended - time.monotonic_ns()
    if left > SPIN_NS:
        time.sleep((left - SPIN_NS) / 1e9)
    while (now := time.monotonic_ns()) < intended:
        pass
    return now
