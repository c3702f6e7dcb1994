"""One op-stream step in one rank: agreed start, play, fixed time and wear-out, reduction."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsmatrix.backends.player.ops import Chunk, Chunks, Place
from fsmatrix.backends.player.player import (
    Player,
    PlayerResult,
    wait_until,
)
from fsmatrix.backends.player.result import Latencies, fold, no_latencies
from fsmatrix.suite.session.clock import Offset
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.connecting import leave, open_together
from fsmatrix.suite.session.wire import Arrays

LEAD_NS = 2_000_000  # between the agreement on a start and the start, plus a bit per rank
LEAD_PER_RANK_NS = 50_000
RANK_FIELDS = ("start", "end", "io_start", "io_end", "overhead")
RANK_COUNTS = ("bytes", "operations", "errors")


@dataclass
class Source:
    """Chunks of a generator; keeps the time that making them took."""

    generator: Chunks
    spent_ns: int = 0
    _next: Chunk | None = None
    _over: bool = False

    def peek(self) -> None:
        """Make the first chunk before the clock runs."""
        self._next = self._pull(None)

    def take(self) -> Chunk | None:
        """The next chunk; None at the end."""
        if self._next is not None:
            chunk, self._next = self._next, None
            return chunk
        begin = time.monotonic_ns()
        chunk2 = self._pull(None)
        self.spent_ns += time.monotonic_ns() - begin
        return chunk2

    def stop(self) -> Chunk | None:
        """Tell the generator that its time is over; its first closing chunk."""
        self._next = None
        return self._pull(True)

    def _pull(self, stop: bool | None) -> Chunk | None:
        if self._over:
            return None
        try:
            return self.generator.send(stop) if stop else next(self.generator)
        except StopIteration:
            self._over = True
            return None


@dataclass
class Played:
    """What a rank did besides what its player counted."""

    executed: int = 0
    stopped: bool = False  # the time was over before the data was
    facts: dict[str, Any] = field(default_factory=dict)


def play(
    player: Player, source: Source, seconds: float, wear_out: float, origin_ns: int, comm: Comm
) -> Played:
    """Play a stream; with `seconds` until that time, then worn out to the busiest rank."""
    progress = Played()
    if not seconds:
        while (chunk := source.take()) is not None:
            done = player.play(chunk)
            progress.executed += done
            if done < len(chunk.ops):
                break  # the first error ended it
        player.drain()
        return progress
    rest = _until(player, source, origin_ns + int(seconds * 1e9), None, progress)
    at_stop = progress.executed
    most = int(comm.largest(np.array([progress.executed], dtype=np.int64))[0])
    if wear_out and most > progress.executed and rest is not None:
        limit = time.monotonic_ns() + int(wear_out * 1e9)
        rest = _until(player, source, limit, most, progress, rest)
    progress.facts = {
        "stonewall_seconds": seconds,
        "operations_at_stonewall": at_stop,
        "worn_out_to": most if wear_out else None,
        "reached": progress.executed,
    }
    player.stop_at(0)
    if progress.stopped and progress.executed:  # else nothing was opened that could be closed
        # a stream that has nothing more to say was stopped inside its closing chunk
        tail = source.stop() or rest
        while tail is not None:
            player.play(tail)
            tail = source.take()
    player.drain()
    return progress


def _until(
    player: Player,
    source: Source,
    limit_ns: int,
    most: int | None,
    progress: Played,
    first: Chunk | None = None,
) -> Chunk | None:
    """Play until `limit_ns` or, if given, `most` operations; what was left of the chunk."""
    player.stop_at(limit_ns)
    chunk = first if first is not None else source.take()
    progress.stopped = True
    while chunk is not None:
        allowed = len(chunk.ops) if most is None else most - progress.executed
        beyond = chunk.ops[allowed:]
        part = Chunk(chunk.ops[:allowed], chunk.names, chunk.first) if len(beyond) else chunk
        done = player.play(part)
        progress.executed += done
        if done < len(part.ops):
            if player.result().errors:
                progress.stopped = False  # an error ended it: nothing is closed in order
                return None
            left = player.left(part)
            return Chunk(np.concatenate([left.ops, beyond]), left.names, left.first)
        if most is not None and progress.executed >= most:
            return Chunk(beyond) if len(beyond) else None
        chunk = source.take()
    progress.stopped = False  # the stream ended by itself, its files are closed
    return None


def run_stream(
    spec: Mapping[str, Any],
    root: str,
    place: Place,
    comm: Comm,
    offset: Offset,
    oversubscribed: bool,
) -> tuple[dict[str, Any], Arrays]:
    """Run one Stream step; the merged phase at rank 0 of `comm`, nothing elsewhere.

    `spec` is the step's Stream as a dict, with "seed" (content) and "driver".  All times in
    the answer are seconds after the agreed start on the common clock.
    """
    module, function = str(spec["generator"]).split(":")
    generator = getattr(importlib.import_module(module), function)(spec["params"], place)
    source = Source(generator)
    source.peek()
    player = open_together(spec, root, place.threads, comm)
    try:
        start_ns, began = _agree(comm)
        origin = start_ns + offset.nanoseconds  # on this kernel's own clock
        player.begin(origin)
        wait_until(origin, 0 if oversubscribed else 200_000)
        progress = play(player, source, spec["seconds"], spec["wear_out"], origin, comm)
        comm.patient_barrier()
        result = player.result()
        leave(spec, player, comm)
    finally:
        player.close()
    message, arrays = _reduce(comm, result, source, origin, offset)
    if comm.rank == 0:
        message |= {"began": began, "facts": progress.facts | {"clock": result.clock}}
    return message, arrays


def _agree(comm: Comm) -> tuple[int, float]:
    """The agreed start on rank 0's monotonic clock, and the same as Unix time."""
    comm.barrier()
    lead = LEAD_NS + LEAD_PER_RANK_NS * comm.size
    now = time.monotonic_ns()
    start, began = comm.bcast([now + lead, (time.time_ns() + lead) / 1e9])
    return int(start), float(began)


def _reduce(
    comm: Comm,
    result: PlayerResult,
    source: Source,
    origin: int,
    offset: Offset,
) -> tuple[dict[str, Any], Arrays]:
    """Everything that the ranks measured, merged: sums by one reduce, times gathered."""
    arrays = _histograms(comm, result)
    width, series = _series(comm, result)
    arrays |= series
    seconds = [
        (stamp - origin) / 1e9 if stamp else float("nan")
        for stamp in (result.first_ns, result.last_ns, result.io_first_ns, result.io_last_ns)
    ]
    seconds.append((result.overhead_ns + source.spent_ns) / 1e9)
    own = {
        "seconds": seconds,
        "counts": [result.bytes, result.operations, result.errors],
        "errno": dict(result.errors_by_errno),
        "first_error": result.first_error,
        "uncertainty": offset.uncertainty / 1e9,
    }
    gathered = comm.gather(own)
    if gathered is None:
        return {}, {}
    table = np.array([entry["seconds"] for entry in gathered], dtype=np.float64)
    counts = np.array([entry["counts"] for entry in gathered], dtype=np.int64)
    arrays |= {name: table[:, i] for i, name in enumerate(RANK_FIELDS)}
    arrays |= {name: counts[:, i] for i, name in enumerate(RANK_COUNTS)}
    errno: dict[str, int] = {}
    for entry in gathered:
        for name, count in entry["errno"].items():
            errno[name] = errno.get(name, 0) + count
    failures = [
        {"rank": rank, **entry["first_error"]}
        for rank, entry in enumerate(gathered)
        if entry["first_error"]
    ]
    message = {
        "interval": width,
        "errors_by_errno": errno,
        "failures": failures[:16],
        "clock_uncertainty": max(entry["uncertainty"] for entry in gathered),
    }
    return message, arrays


def _histograms(comm: Comm, result: PlayerResult) -> Arrays:
    """Rows are kinds; if any rank was paced, the service times follow in as many rows."""
    paced = int(comm.largest(np.array([result.service is not None], dtype=np.int64))[0])
    parts = [Latencies(result.counts, result.total_ns, result.min_ns, result.max_ns)]
    if paced:
        parts.append(result.service or no_latencies())
    counts = np.concatenate([part.counts for part in parts])
    packed = np.concatenate([counts.ravel(), *(part.total_ns for part in parts)])
    summed = comm.sum(packed)
    largest = comm.largest(
        np.concatenate([*(-part.min_ns for part in parts), *(part.max_ns for part in parts)])
    )
    kinds = len(counts)
    return {
        "counts": summed[: counts.size].reshape(counts.shape),
        "total": summed[counts.size :] / 1e9,
        "minimum": -largest[:kinds] / 1e9,
        "maximum": largest[kinds:] / 1e9,
    }


def _series(comm: Comm, result: PlayerResult) -> tuple[float, Arrays]:
    """Series of all ranks on the widest interval among them; widths are 10 ms x 2**n."""
    lengths = np.array([result.interval_ns, 0], dtype=np.int64)
    width = int(comm.largest(lengths)[0])
    folded = [
        fold(series, (width // result.interval_ns).bit_length() - 1)
        for series in (result.interval_bytes, result.interval_operations)
    ]
    longest = int(comm.largest(np.array([len(folded[0])], dtype=np.int64))[0])
    padded = np.zeros((2, longest), dtype=np.int64)
    for row, series in enumerate(folded):
        padded[row, : len(series)] = series
    total = comm.sum(padded)
    return width / 1e9, {"interval_bytes": total[0], "interval_operations": total[1]}
