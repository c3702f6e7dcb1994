"""What both players share: options, methods, what they do of a chunk, and what they report.

Both report the same facts of each lane (thread); `merge` makes one result of them.  Points in time
are nanoseconds of CLOCK_MONOTONIC, 0 where there was none.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import MAX_OP_BYTES, OP, OUTCOME, Chunk, Kind
from fsmatrix.results.histogram import BINS

KINDS = len(Kind)
INTERVALS = 1024
FIRST_WIDTH = 10_000_000  # ns
SORTS = ("read", "write", "other")  # of operations whose latencies are kept over time
ESHORT = 1000  # a read met the end of the file before its size
EVERIFY = 1001  # a read gave other bytes than were written
OWN_ERRORS = {ESHORT: "ESHORT", EVERIFY: "EVERIFY"}
NOTHING = int(np.iinfo(np.int64).max)  # minimum of no latencies
Integers = npt.NDArray[np.int64]
ENGINE_C = "player-c"
ENGINE_PYTHON = "player-python"
VERSION = "1"  # of what both players do; changes when a result could
MAX_THREADS = 1024
MAX_DEPTH = 1024  # of any driver
MAX_SLOTS = 1 << 31


@dataclass(frozen=True)
class Latencies:
    """Histograms of latencies, with sums and extremes in ns, by kind of operation."""

    counts: Integers  # [kind, BINS]
    total_ns: Integers  # [kind]
    min_ns: Integers  # [kind], NOTHING where none was counted
    max_ns: Integers  # [kind]


@dataclass(frozen=True)
class LaneError:
    """The first error of a lane; `ns` is when."""

    ns: int
    index: int
    offset: int
    wrong_offset: int
    error: int
    kind: int
    expected: int
    actual: int
    name: bytes


@dataclass(frozen=True)
class Lane:
    """What one lane did: operations, times in ns, latencies, and its first error."""

    ops: int
    first_ns: int
    last_ns: int
    io_first_ns: int
    io_last_ns: int
    overhead_ns: int
    interval_ns: int
    interval_bytes: Integers
    interval_operations: Integers
    latency: Latencies
    service: Latencies | None
    errors: Mapping[int, int]
    first_error: LaneError | None


@dataclass(frozen=True)
class FirstError:
    """The first operation of all lanes that failed."""

    kind: str  # of operation
    file: str
    offset: int
    errno: str
    number: int  # of errno
    op: int  # its index since the player began
    thread: int
    wrong_offset: int | None  # of the first byte that was not as written, in the file
    expected: int | None  # that byte
    found: int | None


@dataclass(frozen=True)
class PlayerResult:
    """What a player did since it was opened.

    Every executed operation either completed (it is in `counts`) or failed (in `errors`).
    `bytes` are those that reached or came from the file, also by an operation that failed
    after a part; bytes that did not pass verification are not among them.
    """

    engine: str
    version: str
    clock: str  # "tsc" or "monotonic"
    ops: int  # executed, failed ones too
    bytes: int
    operations: int  # completed reads and writes; with count_metadata completed ones of any kind
    errors: int
    first_ns: int  # first operation began
    last_ns: int  # last operation ended
    io_first_ns: int  # the same of reads and writes
    io_last_ns: int
    counts: Integers  # [kind, BINS]; of paced operations from the intended time
    total_ns: Integers  # [kind]
    min_ns: Integers  # [kind]; largest int64 where nothing was counted
    max_ns: Integers  # [kind]
    service: Latencies | None  # of operations with an intended time, from the call; or none
    overhead_ns: int  # filling, verifying, looking at directories; over all threads
    interval_ns: int  # width of an interval; the first starts at the player's origin
    interval_bytes: Integers  # [interval], by the end of the operation
    interval_operations: Integers  # [interval]
    timeline: Integers  # [sort, interval, COARSE]: `counts` over time, by SORTS
    errors_by_errno: Mapping[str, int]
    first_error: FirstError | None


def error_name(number: int) -> str:
    """ENOSPC for 28, ESHORT and EVERIFY for the player's own."""
    return OWN_ERRORS.get(number) or errno.errorcode.get(number, f"E{number}")


def no_latencies() -> Latencies:
    """Nothing counted yet; arrays that may be added to."""
    zeros = np.zeros(KINDS, dtype=np.int64)
    least = np.full(KINDS, NOTHING, dtype=np.int64)
    return Latencies(np.zeros((KINDS, BINS), dtype=np.int64), zeros, least, zeros.copy())


def sort_of(kind: npt.ArrayLike) -> Integers:
    """Which of SORTS each kind of operation is."""
    sorts = np.full(KINDS, SORTS.index("other"), dtype=np.int64)
    sorts[[Kind.READ, Kind.WRITE]] = SORTS.index("read"), SORTS.index("write")
    found: Integers = sorts[np.asarray(kind, dtype=np.int64)]
    return found


def fold(series: Integers, times: int) -> Integers:
    """Add up groups of 2**times neighbours along the first axis."""
    width = 1 << times
    padded = np.zeros((-(-len(series) // width) * width, *series.shape[1:]), dtype=np.int64)
    padded[: len(series)] = series
    summed: Integers = padded.reshape(-1, width, *series.shape[1:]).sum(axis=1)
    return summed


def merge_lanes(
    lanes: Sequence[Lane],
    engine: str,
    version: str,
    clock: str,
    timeline: Callable[[int, int], Integers],
) -> PlayerResult:
    """One result of all lanes; `timeline` gives theirs: (ns of an interval, intervals) -> array."""
    width = max(lane.interval_ns for lane in lanes)
    latency = _add([lane.latency for lane in lanes])
    services = [lane.service for lane in lanes if lane.service is not None]
    moved = _add_series([lane.interval_bytes for lane in lanes], lanes, width)
    counted = _add_series([lane.interval_operations for lane in lanes], lanes, width)
    errors: dict[str, int] = {}
    for lane in lanes:
        for number, count in sorted(lane.errors.items()):
            errors[error_name(number)] = errors.get(error_name(number), 0) + count
    return PlayerResult(
        engine=engine,
        version=version,
        clock=clock,
        ops=sum(lane.ops for lane in lanes),
        bytes=int(moved.sum()),
        operations=int(counted.sum()),
        errors=sum(errors.values()),
        first_ns=_earliest(lane.first_ns for lane in lanes),
        last_ns=max(lane.last_ns for lane in lanes),
        io_first_ns=_earliest(lane.io_first_ns for lane in lanes),
        io_last_ns=max(lane.io_last_ns for lane in lanes),
        counts=latency.counts,
        total_ns=latency.total_ns,
        min_ns=latency.min_ns,
        max_ns=latency.max_ns,
        service=_add(services) if services else None,
        overhead_ns=sum(lane.overhead_ns for lane in lanes),
        interval_ns=width,
        interval_bytes=moved,
        interval_operations=counted,
        timeline=timeline(width, len(moved)),
        errors_by_errno=dict(sorted(errors.items())),
        first_error=_first_error(lanes),
    )


def _add(parts: Sequence[Latencies]) -> Latencies:
    return Latencies(
        counts=np.sum([part.counts for part in parts], axis=0, dtype=np.int64),
        total_ns=np.sum([part.total_ns for part in parts], axis=0, dtype=np.int64),
        min_ns=np.array([part.min_ns for part in parts]).min(axis=0),
        max_ns=np.array([part.max_ns for part in parts]).max(axis=0),
    )


def _add_series(series: Sequence[Integers], lanes: Sequence[Lane], width: int) -> Integers:
    folded = [
        fold(counts, (width // lane.interval_ns).bit_length() - 1)
        for counts, lane in zip(series, lanes, strict=True)
    ]
    whole = np.zeros(max(len(counts) for counts in folded), dtype=np.int64)
    for counts in folded:
        whole[: len(counts)] += counts
    return whole


def _earliest(moments: Any) -> int:
    return min((moment for moment in moments if moment), default=0)


def _first_error(lanes: Sequence[Lane]) -> FirstError | None:
    errors = [
        (lane.first_error.ns, thread, lane.first_error)
        for thread, lane in enumerate(lanes)
        if lane.first_error is not None
    ]
    if not errors:
        return None
    _, thread, error = min(errors, key=lambda item: item[:2])
    wrong = error.error == EVERIFY
    return FirstError(
        kind=Kind(error.kind).name.lower(),
        file=error.name.decode("utf-8", "backslashreplace"),
        offset=error.offset,
        errno=error_name(error.error),
        number=error.error,
        op=error.index,
        thread=thread,
        wrong_offset=error.wrong_offset if wrong else None,
        expected=error.expected if wrong else None,
        found=error.actual if wrong else None,
    )


@dataclass(frozen=True)
class PlayerOptions:
    """How a player plays, whatever the driver.  ValueError for values out of range."""

    slots: int  # files are 0..slots-1
    max_op_bytes: int
    threads: int = 1
    depth: int = 1  # reads and writes in flight per thread, as many as the driver can have
    seed: int = 0  # of the content
    origin_ns: int = 0  # CLOCK_MONOTONIC of the phase's start; 0: when the first play() begins
    fill_ratio: float = 0.0  # share of zeros in the content, 0 to 1
    count_metadata: bool = False
    stop_on_error: bool = True
    # an operation's time is a pause, ns after the end of its thread's previous operation (of the
    # first: after the origin), and latencies count from the call; needs a depth of 1
    pauses: bool = False
    read_ahead: bool = True  # posix: else the kernel reads nothing ahead (POSIX_FADV_RANDOM)

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("slots", self.slots, 1, MAX_SLOTS),
            ("threads", self.threads, 1, MAX_THREADS),
            ("depth", self.depth, 1, MAX_DEPTH),
            ("max_op_bytes", self.max_op_bytes, 0, MAX_OP_BYTES),
            ("origin_ns", self.origin_ns, 0, NOTHING),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must lie between {low} and {high}, not {value}")
        if self.pauses and self.depth > 1:
            raise ValueError(f"with pauses the depth must be 1, not {self.depth}")


class Player(Protocol):
    """Executes chunks.  Used by one thread at a time."""

    def play(self, chunk: Chunk) -> int:
        """Execute a chunk; the number of operations executed, failed ones among them.

        With a depth above 1 those count that have begun; up to `depth` of each thread may be
        in flight afterwards, and only a later play() or drain() tells what came of them.  With
        outcomes none is: they are all there when it returns.

        Fewer than the chunk has if the deadline passed or an error stopped it.  After an
        error that stopped it, a player executes nothing more.  ValueError, before anything
        is executed, if the chunk is not valid.  Without the GIL in the C player.
        """

    def left(self, chunk: Chunk) -> Chunk:
        """What the last play() did not execute of `chunk`, in order, without names.

        With several threads this need not be the chunk's end.  What is in flight counts as
        executed.  A queue stays a queue; outcomes are not asked for.
        """

    def drain(self) -> None:
        """Wait for everything in flight; with a depth of 1 nothing is.

        What is in flight is in no result yet.
        """

    def share(self) -> str:
        """Lines of a root by which other processes join this connection; empty: none do.

        It must stay open until those that joined are closed.  OSError with the reason if the
        driver's library fails.
        """

    def features(self) -> str:
        """What the driver uses of its kernel or library, in words; empty: nothing to choose."""

    def begin(self, origin_ns: int) -> None:
        """Set the origin of intended times and of the intervals.  Before the first play."""

    def stop_at(self, monotonic_ns: int) -> None:
        """No operation begins after this moment; 0: none.  Counts from the next play()."""

    def completed(self) -> int:
        """A number that changes with each operation that completes; also while another plays."""

    def result(self) -> PlayerResult:
        """Everything since the player was opened."""

    def close(self) -> None:
        """Close every open handle and end the threads.  May be called twice."""


def checked_ops(chunk: Chunk) -> npt.NDArray[Any]:
    """The chunk's operations, contiguous and aligned.  ValueError if they are none.

    Its outcomes and its batch are checked too.
    """
    ops, outcomes = chunk.ops, chunk.outcomes
    if not isinstance(ops, np.ndarray) or ops.dtype != OP or ops.ndim != 1:
        raise ValueError("the operations of a chunk must be a one-dimensional array of dtype OP")
    if outcomes is not None and not (
        isinstance(outcomes, np.ndarray)
        and outcomes.dtype == OUTCOME
        and outcomes.shape == ops.shape
        and all(outcomes.flags[name] for name in ("C_CONTIGUOUS", "ALIGNED", "WRITEABLE"))
    ):
        raise ValueError(
            f"the outcomes of a chunk of {len(ops)} operations must be a contiguous, writeable "
            f"array of as many of dtype OUTCOME"
        )
    if not 0 <= chunk.batch <= MAX_SLOTS:
        raise ValueError(f"batch must lie between 0 and {MAX_SLOTS}, not {chunk.batch}")
    return np.require(ops, requirements=["C", "A"])


INTERFACE = 6  # of the extension, as native/module.c has it
