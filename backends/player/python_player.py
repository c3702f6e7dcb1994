"""The pure-Python player: the same work as the C one where that is not built, slower.

Same bytes in the same files, same counts, same errors; a test plays random streams on both.
Recorded as an engine of its own ("player-python").  Only the driver posix and null.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import EBADF, EBUSY, EINVAL
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import (
    ENGINE_PYTHON,
    ESHORT,
    EVERIFY,
    FIRST_WIDTH,
    INTERVALS,
    KINDS,
    SORTS,
    VERSION,
    Integers,
    Lane,
    LaneError,
    Latencies,
    PlayerOptions,
    PlayerResult,
    checked_ops,
    fold,
    merge_lanes,
    no_latencies,
    sort_of,
)
from fsmatrix.backends.player.ops import DATA_KINDS, UNKNOWN, Chunk, Flag, Kind
from fsmatrix.backends.player.python_posix import Calls, File, NullCalls, PosixCalls
from fsmatrix.results.histogram import BINS, COARSE, PER_COARSE, bin_of

# One lane of the pure-Python player: plays operations, then counts them in numpy.


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
        self._series = np.zeros((INTERVALS, 2), dtype=np.int64)
        self._timeline = np.zeros((INTERVALS, len(SORTS), COARSE), dtype=np.int64)
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
        interval = self._intervals(end)
        np.add.at(self._series[:, 0], interval, done)
        np.add.at(self._series[:, 1], interval, (ok & self._counted[kind]).astype(np.int64))
        coarse = bin_of((end - since)[ok]) // PER_COARSE
        np.add.at(self._timeline, (interval[ok], sort_of(kind[ok]), coarse), 1)
        moments = self._moments
        moments["first_ns"] = moments["first_ns"] or int(start[0])
        moments["last_ns"] = int(end[-1])
        data = np.isin(kind, list(DATA))
        if data.any():
            moments["io_first_ns"] = moments["io_first_ns"] or int(start[data][0])
            moments["io_last_ns"] = int(end[data][-1])

    def _intervals(self, end: Integers) -> Integers:
        """In which interval each operation ended; as wide as it takes to have them all."""
        elapsed = np.maximum(end - self._origin, 0)
        while int(elapsed.max()) // self._width >= INTERVALS:
            for series in (self._series, self._timeline):
                series[: INTERVALS // 2] = fold(series, 1)
                series[INTERVALS // 2 :] = 0
            self._used = (self._used + 1) // 2
            self._width *= 2
        index = elapsed // self._width
        self._used = max(self._used, int(index.max()) + 1)
        return index

    def timeline(self, width: int, intervals: int) -> Integers:
        """Latencies over time, [sort, interval, COARSE], on intervals of `width` ns."""
        folded = fold(self._timeline[: self._used], (width // self._width).bit_length() - 1)
        padded = np.zeros((intervals, *folded.shape[1:]), dtype=np.int64)
        padded[: len(folded)] = folded
        return padded.transpose(1, 0, 2)

    def facts(self) -> Lane:
        """What was counted up to now."""
        return Lane(
            ops=self._executed,
            **self._moments,
            overhead_ns=self._overhead,
            interval_ns=self._width,
            interval_bytes=self._series[: self._used, 0].copy(),
            interval_operations=self._series[: self._used, 1].copy(),
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


MAX_NAME = 4095
MAX_OFFSET = (1 << 63) - 1 - (1 << 30)
MAX_TIME = ((1 << 63) - 1) // 32


class PythonPlayer:
    """See `player.Player` for the methods."""

    def __init__(self, driver: Any, root: str, options: PlayerOptions) -> None:
        if driver not in ("posix", "null"):
            raise ValueError(f"no driver {driver!r}: the Python player has posix and null")
        if options.depth != 1:
            raise ValueError(f"depth must be 1 for the Python player, not {options.depth}")
        pool = content.make_pool(options.seed, options.fill_ratio)
        self._options = options
        posix = driver == "posix"
        self._calls: Calls = PosixCalls(root, options.read_ahead) if posix else NullCalls()
        self._files: dict[int, File] = {}
        self._origin = options.origin_ns
        self._deadline = 0
        self._before = 0
        self._left: list[int] = []  # places in the last chunk
        self._open = True
        self._pool = ThreadPoolExecutor(options.threads) if options.threads > 1 else None
        self._lanes = [
            PythonLane(
                self._calls,
                self._files,
                _mapped(content.extended(pool, options.max_op_bytes)),
                _mapped(np.zeros(options.max_op_bytes + 1, dtype=np.uint8)),
                count_metadata=options.count_metadata,
                stop_on_error=options.stop_on_error,
                pauses=options.pauses,
            )
            for _ in range(options.threads)
        ]

    def play(self, chunk: Chunk) -> int:
        """See `Player`."""
        self._usable()
        ops = checked_ops(chunk)
        self._check_ops(ops)
        self._check_names(chunk.names, chunk.first)
        for slot, name in enumerate(chunk.names, chunk.first):
            self._files[slot] = File(name, content.key_of(self._options.seed, name))
        for slot in np.union1d(ops["file"], ops["file2"]).tolist():
            self._files.setdefault(slot, File(b"", 0))
        self._origin = self._origin or time.monotonic_ns()
        if chunk.outcomes is not None:
            chunk.outcomes[:] = (0, 0, UNKNOWN)
        paced = bool(ops["time"].any())
        for lane in self._lanes:
            lane.begin(self._origin, self._deadline, self._before, self._lanes, paced)
        if self._options.stop_on_error and any(lane.errors for lane in self._lanes):
            self._left = list(range(len(ops)))
        else:
            self._left = self._run(ops, chunk.outcomes, chunk.batch)
        self._before += len(ops)
        return sum(lane.played for lane in self._lanes)

    def _run(self, ops: npt.NDArray[Any], outcomes: Outcomes, batch: int) -> list[int]:
        """Play with all lanes; the places of what was not executed."""
        places = range(len(ops))
        queues: list[deque[Sequence[int]]]  # of each lane
        if self._pool is None:
            return self._lanes[0].run([places], ops, outcomes)
        if batch:
            batches = (places[at : at + batch] for at in places[::batch])
            queues = [deque(batches)] * len(self._lanes)
        else:
            thread = ops["stream"] % len(self._lanes)
            own = (np.flatnonzero(thread == index).tolist() for index in range(len(self._lanes)))
            queues = [deque([row]) for row in own]
        running = [
            self._pool.submit(lane.run, _taken(queue), ops, outcomes)
            for lane, queue in zip(self._lanes, queues, strict=True)
        ]
        left = [place for future in running for place in future.result()]
        return sorted(left + [place for row in queues[0] for place in row])

    def left(self, chunk: Chunk) -> Chunk:
        """See `Player`."""
        return Chunk(chunk.ops[np.array(self._left, dtype=np.intp)], batch=chunk.batch)

    def drain(self) -> None:
        """See `Player`."""

    def share(self) -> str:
        """See `Player`."""
        return ""

    def features(self) -> str:
        """See `Player`: it has none."""
        return ""

    def begin(self, origin_ns: int) -> None:
        """See `Player`."""
        self._usable()
        if self._before:
            raise ValueError("the player has begun to play already")
        self._origin = origin_ns

    def stop_at(self, monotonic_ns: int) -> None:
        """See `Player`."""
        self._usable()
        self._deadline = monotonic_ns

    def completed(self) -> int:
        """See `Player`."""
        return sum(lane.completed for lane in self._lanes)

    def result(self) -> PlayerResult:
        """See `Player`."""
        self._usable()
        return merge_lanes(
            [lane.facts() for lane in self._lanes],
            ENGINE_PYTHON,
            VERSION,
            "monotonic",
            lambda *on: np.sum([lane.timeline(*on) for lane in self._lanes], axis=0),
        )

    def close(self) -> None:
        """See `Player`."""
        if not self._open:
            return
        self._open = False
        for file in self._files.values():
            if file.handle >= 0:
                self._calls.execute(Kind.CLOSE, 0, file, file, 0, _NO_BYTES)
        if self._pool is not None:
            self._pool.shutdown()
        self._calls.close()

    def _usable(self) -> None:
        if not self._open:
            raise ValueError("the player is closed")

    def _check_ops(self, ops: npt.NDArray[Any]) -> None:
        kind, slots = ops["kind"], self._options.slots
        data = (kind == Kind.READ) | (kind == Kind.WRITE)
        for bad, text in (
            (kind >= len(Kind), "an unknown kind"),
            (ops["file"] >= slots, "a file beyond the slots"),
            (
                (kind == Kind.RENAME) & (ops["file2"] >= slots),
                "a file2 beyond the slots",
            ),
            (data & (ops["size"] > self._options.max_op_bytes), "a size above max_op_bytes"),
            (ops["offset"] > MAX_OFFSET, "an offset beyond 2**63"),
            (ops["time"] > MAX_TIME, "a time beyond 2**58"),
        ):
            if bad.any():
                raise ValueError(f"operation {int(np.argmax(bad))} has {text}")

    def _check_names(self, names: Sequence[bytes], first: int) -> None:
        slots = self._options.slots
        if names and not 0 <= first <= slots - len(names):
            last = first + len(names) - 1
            raise ValueError(f"names for slots {first} to {last}, there are {slots}")
        for slot, name in enumerate(names, first):
            if not isinstance(name, bytes):
                raise ValueError(f"name {name!r} is not bytes")
            if b"\0" in name:
                raise ValueError(f"name {name!r} has a NUL byte")
            if len(name) > MAX_NAME:
                raise ValueError(f"a name of {len(name)} bytes; {MAX_NAME} are allowed")
            if slot in self._files and self._files[slot].handle >= 0:
                raise ValueError(f"slot {slot} cannot be named {name!r}: it is open")


def _taken(queue: deque[Sequence[int]]) -> Iterator[Sequence[int]]:
    """What is in the queue, until nothing is left; a deque's popleft is safe among threads."""
    while True:
        try:
            batch = queue.popleft()
        except IndexError:
            return
        yield batch


_NO_BYTES = memoryview(b"")


def _mapped(data: content.Bytes) -> content.Bytes:
    """A copy in page-aligned memory, as O_DIRECT needs it."""
    copy = np.frombuffer(mmap.mmap(-1, len(data)), dtype=np.uint8)
    copy[:] = data
    return copy
