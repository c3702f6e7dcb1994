"""What a player reports: the facts of each lane (thread), and the result that they add up to.

Both players give the same lanes; `merge` makes one result of them.  Points in time are
nanoseconds of CLOCK_MONOTONIC, 0 where there was none.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.histogram import BINS

KINDS = len(Kind)
INTERVALS = 1024
FIRST_WIDTH = 10_000_000  # ns
ESHORT = 1000  # a read met the end of the file before its size
EVERIFY = 1001  # a read gave other bytes than were written
OWN_ERRORS = {ESHORT: "ESHORT", EVERIFY: "EVERIFY"}
NOTHING = int(np.iinfo(np.int64).max)  # minimum of no latencies

Integers = npt.NDArray[np.int64]


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


def fold(series: Integers, times: int) -> Integers:
    """Add up groups of 2**times neighbours."""
    width = 1 << times
    padded = np.zeros(-(-len(series) // width) * width, dtype=np.int64)
    padded[: len(series)] = series
    summed: Integers = padded.reshape(-1, width).sum(axis=1)
    return summed


def merge(lanes: Sequence[Lane], engine: str, version: str, clock: str) -> PlayerResult:
    """One result of all lanes."""
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
