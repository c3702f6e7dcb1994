"""One op-stream step in one rank: agreed start, play, fixed time and wear-out, reduction.

A step may ask for the client's ceiling instead: how fast a rank makes and plays the stream for a
driver that does nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.lanes import (
    SORTS,
    Latencies,
    Player,
    PlayerResult,
    fold,
    no_latencies,
)
from fsmatrix.backends.player.ops import Chunk, Chunks, CountingChunks, Place, Tallies
from fsmatrix.backends.player.player import wait_until
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.evidence.workloads import BEGUN, PLAYED
from fsmatrix.results.histogram import sparse
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import (
    TIMELINE,
    Merged,
    OperationError,
    Playing,
    StepCommand,
    Stream,
)
from fsmatrix.suite.session.players import last_words, leave, open_together, settled, taking_turns
from fsmatrix.suite.session.wire import Arrays, telling

# One clock for all ranks: offsets of the kernels' monotonic clocks to rank 0's.
#
# Ranks of one kernel (boot id) share CLOCK_MONOTONIC: their offset is 0 and certain.  Between
# kernels the offset comes from ping-pongs; the one with the smallest round trip counts (as in
# NTP), and half that round trip bounds its error.


ROUNDS = 40
TAG = 7
FAN = 8


@dataclass(frozen=True)
class Offset:
    """Local monotonic clock minus rank 0's, and the bound of its error, nanoseconds."""

    nanoseconds: int = 0
    uncertainty: int = 0


def measure(comm: Any, first_of_kernel: dict[str, int], boot_id: str) -> Offset:
    """Measure along a tree of kernels from rank 0's; collective over `comm` (an MpiComm).

    `first_of_kernel`: boot id -> the rank that speaks for it, the same at every rank.  Up to
    FAN kernels are compared with rank 0's directly; beyond that errors of hops add up, and
    rank 0 answers FAN - 1 kernels at most for each factor of FAN.
    """
    own = first_of_kernel[boot_id]
    if len(first_of_kernel) == 1:
        return Offset()
    speakers = sorted(first_of_kernel.values())  # rank 0 speaks for its own kernel
    result = Offset()
    for first, other in pairs(len(speakers)):
        if comm.rank == speakers[first]:
            _answer(comm.handle, speakers[other], result)
        elif comm.rank == speakers[other]:
            result = _ask(comm.handle, speakers[first])
    table = comm.bcast(_collect(comm, first_of_kernel, result))
    nanoseconds, uncertainty = table[str(own)]
    return Offset(nanoseconds, uncertainty)


def pairs(count: int) -> list[tuple[int, int]]:
    """Who knows the time and who asks, in an order in which every first one knows it already.

    A tree over 0 .. count-1 with log(count) / log(FAN) hops: who asks is its asker's index
    without its first digit in base FAN.
    """
    chosen = []
    reached = 1
    while reached < count:
        for other in range(reached, min(FAN * reached, count)):
            chosen.append((other % reached, other))
        reached *= FAN
    return chosen


def _collect(comm: Any, first: dict[str, int], own: Offset) -> dict[str, list[int]] | None:
    gathered = comm.gather([own.nanoseconds, own.uncertainty])
    if gathered is None:
        return None
    return {str(speaker): gathered[speaker] for speaker in first.values()}


def _ask(handle: Any, knowing: int) -> Offset:
    best: tuple[int, int] | None = None
    buffer = np.zeros(2, dtype=np.int64)
    for _ in range(ROUNDS):
        before = time.monotonic_ns()
        handle.Send(buffer, dest=knowing, tag=TAG)
        handle.Recv(buffer, source=knowing, tag=TAG)
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, (before + after) // 2 - int(buffer[0]))
    assert best is not None  # ROUNDS > 0
    return Offset(best[1], best[0] // 2 + 1 + int(buffer[1]))


def _answer(handle: Any, asking: int, own: Offset) -> None:
    """Rank 0's time as this rank knows it, and how well it does."""
    buffer = np.zeros(2, dtype=np.int64)
    for _ in range(ROUNDS):
        handle.Recv(buffer, source=asking, tag=TAG)
        buffer[:] = time.monotonic_ns() - own.nanoseconds, own.uncertainty
        handle.Send(buffer, dest=asking, tag=TAG)


def wall_correction(comm: Any, offset: Offset) -> float:
    """Seconds to add to this kernel's Unix time to get rank 0's; collective over `comm`.

    Unix time runs beside the monotonic clock at a distance that each kernel knows: the two
    distances and the offset of the monotonic clocks give that of the Unix times.
    """
    own = time.time_ns() - time.monotonic_ns()
    zero = int(comm.bcast(own))
    if offset == Offset():
        return 0.0  # the same kernel
    return (zero - own - offset.nanoseconds) / 1e9


# What all ranks of a step measured, and what their generators counted, put together.


RANK_FIELDS = ("start", "end", "io_start", "io_end", "overhead")
RANK_COUNTS = ("bytes", "operations", "errors")
LARGEST = "_max"  # how the names end of which the largest counts; others are added up
NUMBER = -1  # length of what is no array
MOST_FAILURES = 16  # whose errors are told
Integers = npt.NDArray[np.int64]


def reduced(
    comm: Comm,
    result: PlayerResult,
    generating_ns: int,
    origin: int,
    offset: Offset,
) -> tuple[Merged | None, Arrays]:
    """Everything that the ranks measured, merged: sums by one reduce, times gathered.

    `generating_ns`: what making the chunks took this rank; `origin`: of its player.  Nothing but
    at rank 0; began and facts are for the caller to say.
    """
    arrays = _histograms(comm, result)
    width, series = _series(comm, result)
    arrays |= series
    seconds = [
        (stamp - origin) / 1e9 if stamp else float("nan")
        for stamp in (result.first_ns, result.last_ns, result.io_first_ns, result.io_last_ns)
    ]
    seconds.append((result.overhead_ns + generating_ns) / 1e9)
    own = {
        "seconds": seconds,
        "counts": [result.bytes, result.operations, result.errors],
        "errno": dict(result.errors_by_errno),
        "first_error": result.first_error and vars(result.first_error),
        "uncertainty": offset.uncertainty / 1e9,
    }
    gathered = comm.gather(own)
    if gathered is None:
        return None, {}
    table = np.array([entry["seconds"] for entry in gathered], dtype=np.float64)
    counts = np.array([entry["counts"] for entry in gathered], dtype=np.int64)
    arrays |= {name: table[:, i] for i, name in enumerate(RANK_FIELDS)}
    arrays |= {name: counts[:, i] for i, name in enumerate(RANK_COUNTS)}
    errno: dict[str, int] = {}
    for entry in gathered:
        for name, count in entry["errno"].items():
            errno[name] = errno.get(name, 0) + count
    failures = [
        OperationError(rank=rank, **entry["first_error"])
        for rank, entry in enumerate(gathered)
        if entry["first_error"]
    ]
    merged = Merged(
        interval=width,
        errors_by_errno=errno,
        failures=tuple(failures[:MOST_FAILURES]),
        clock_uncertainty=max(entry["uncertainty"] for entry in gathered),
    )
    return merged, arrays


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
    arrays = {"interval_bytes": total[0], "interval_operations": total[1]}
    return width / 1e9, arrays | _timeline(comm, result, width, longest)


def _timeline(comm: Comm, result: PlayerResult, width: int, intervals: int) -> Arrays:
    """Latencies over time of all ranks, "timeline.read" -> [interval, COARSE]; where there are any.

    Only bins that some rank has are sent: there are 116 for each interval.
    """
    used = comm.largest(np.array([table.any(axis=0) for table in result.timeline], dtype=np.int64))
    merged: Arrays = {}
    for sort, own, bins in zip(SORTS, result.timeline, map(np.flatnonzero, used), strict=True):
        if not bins.size:
            continue
        folded = fold(own[:, bins], (width // result.interval_ns).bit_length() - 1)
        padded = np.zeros((intervals, bins.size), dtype=np.int64)
        padded[: len(folded)] = folded
        whole = np.zeros((intervals, own.shape[1]), dtype=np.int64)
        whole[:, bins] = comm.sum(padded)
        merged[TIMELINE + sort] = whole
    return merged


def put_together(tallies: Tallies | None, comm: Comm) -> JsonObject:
    """Tallies of all ranks at rank 0, JSON-able; called by all ranks of `comm`.

    A number stays a number, an array is stored by its values that are not zero
    (`histogram.dense` reads it).  What a rank did not count is nothing.  ValueError, at every
    rank, if two ranks give arrays of different lengths.
    """
    own = {name: _integers(name, value) for name, value in (tallies or {}).items()}
    lengths = comm.gather({name: _length(values) for name, values in own.items()})
    agreed, problem = comm.bcast(None if lengths is None else _agreed(lengths))
    if problem:
        raise ValueError(problem)
    merged = {
        name: values
        for largest in (False, True)
        for name, values in _merged(own, agreed, largest, comm).items()
    }
    return {name: merged[name] for name in agreed} if comm.rank == 0 else {}


def _integers(name: str, value: Any) -> Integers:
    values = np.asarray(value)
    if values.dtype.kind not in "iu" or values.ndim > 1:
        raise ValueError(f"tally {name!r} is neither a whole number nor an array of them")
    return values.astype(np.int64)


def _length(values: Integers) -> int:
    return len(values) if values.ndim else NUMBER


def _agreed(lengths: list[Mapping[str, int]]) -> tuple[dict[str, int], str]:
    """The length of each tally; why there is none."""
    merged: dict[str, int] = {}
    for rank, own in enumerate(lengths):
        for name, length in own.items():
            if merged.setdefault(name, length) != length:
                return {}, (
                    f"tally {name!r} has {length} elements at rank {rank}, "
                    f"{merged[name]} at a rank before it ({NUMBER}: it is a number)"
                )
    return merged, ""


def _merged(
    own: Mapping[str, Integers], lengths: Mapping[str, int], largest: bool, comm: Comm
) -> JsonObject:
    """Those of one sort, by one reduction."""
    names = [name for name in lengths if name.endswith(LARGEST) == largest]
    if not names:
        return {}
    nothing = np.iinfo(np.int64).min if largest else 0
    parts = [
        own[name].ravel()
        if name in own
        else np.full(1 if lengths[name] == NUMBER else lengths[name], nothing)
        for name in names
    ]
    packed = np.concatenate(parts)
    merged = comm.largest(packed) if largest else comm.sum(packed)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return {
        name: int(values[0]) if lengths[name] == NUMBER else sparse(values)
        for name, values in zip(names, np.split(merged, ends), strict=True)
    }


LEAD_NS = 2_000_000  # between the agreement on a start and the start, plus a bit per rank
LEAD_PER_RANK_NS = 50_000


@dataclass
class Source:
    """Chunks of a generator; keeps the time that making them took, and what it counted.

    That time counts between operations only: not before the first, nor for what follows the last.

    `wear_out`: what is left of a chunk may be played later, so that it cannot have outcomes.
    """

    generator: Chunks | CountingChunks
    wear_out: bool = False
    spent_ns: int = 0
    due: int = 0  # operations with a time in the chunks that were taken (Chunk.due)
    tallies: Tallies | None = None  # when it has ended
    _next: Chunk | None = None
    _over: bool = False
    _began: bool = False  # a chunk with operations was taken

    def peek(self) -> None:
        """Make the first chunk before the clock runs."""
        self._next = self._pull(None)

    def take(self) -> Chunk | None:
        """The next chunk; None at the end."""
        begin = time.monotonic_ns()
        chunk, self._next = self._next or self._pull(None), None
        if chunk is not None:
            if self._began:
                self.spent_ns += time.monotonic_ns() - begin
            self._began = self._began or len(chunk.ops) > 0
            self.due += chunk.due
        return chunk

    def stop(self) -> Chunk | None:
        """Tell the generator that its time is over; its first closing chunk."""
        self._next = None
        return self._pull(True)

    def _pull(self, stop: bool | None) -> Chunk | None:
        if self._over:
            return None
        try:
            chunk = self.generator.send(stop) if stop else next(self.generator)
        except StopIteration as end:
            self._over = True
            self.tallies = end.value
            return None
        if self.wear_out and chunk.outcomes is not None:
            raise ValueError("a chunk with outcomes cannot be played under a wear-out")
        return chunk


def _due(chunk: Chunk | None) -> int:
    """Operations that have a time."""
    return 0 if chunk is None else int(np.count_nonzero(chunk.ops["time"]))


@dataclass
class Played:
    """What a rank did besides what its player counted."""

    stop_on_error: bool
    executed: int = 0
    stopped: bool = False  # the time was over before the data was
    facts: JsonObject = field(default_factory=dict)
    tallies: Tallies = field(default_factory=dict)


def play(
    player: Player,
    source: Source,
    seconds: float,
    wear_out: float,
    origin_ns: int,
    comm: Comm,
    *,
    stop_on_error: bool = True,
) -> Played:
    """Play a stream; with `seconds` until that time, then worn out to the busiest rank.

    `stop_on_error`: the player's.
    """
    progress = Played(stop_on_error)
    if not seconds:
        while (chunk := source.take()) is not None:
            done = player.play(chunk)
            progress.executed += done
            if done < len(chunk.ops):
                if not player.result().errors:
                    raise RuntimeError(f"the player left {len(chunk.ops) - done} operations undone")
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
    _close(player, source, rest, progress)
    return progress


def play_paced(player: Player, source: Source, stream: Stream, origin_ns: int) -> Played:
    """Play an open loop: no operation is left out for being late, but after `stream.seconds`."""
    progress = Played(stream.stop_on_error)
    end, limit = (origin_ns + int(moment * 1e9) for moment in (stream.arrivals_end, stream.seconds))
    rest = _until(player, source, end, None, progress)
    begun = source.due - _due(rest)
    if rest is not None:
        rest = _until(player, source, limit if stream.seconds else 0, None, progress, rest)
    progress.tallies = {BEGUN: begun, PLAYED: source.due - _due(rest)}
    if stream.seconds:
        progress.facts = {"stonewall_seconds": stream.arrivals_end}
    _close(player, source, rest, progress)
    return progress


def _close(player: Player, source: Source, rest: Chunk | None, progress: Played) -> None:
    """Play what closes the files; `rest`: what is left of the last chunk."""
    player.stop_at(0)
    if progress.stopped and progress.executed:  # else nothing was opened that could be closed
        # a stream that has nothing more to say was stopped inside its closing chunk
        tail = source.stop() or rest
        while tail is not None:
            player.play(tail)
            tail = source.take()
    player.drain()


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
        part = replace(chunk, ops=chunk.ops[:allowed]) if len(beyond) else chunk
        done = player.play(part)
        progress.executed += done
        if done < len(part.ops):
            if progress.stop_on_error and player.result().errors:
                progress.stopped = False  # an error ended it: nothing is closed in order
                return None
            if part.outcomes is not None:
                return None  # its generator sees there what is left
            left = player.left(part)
            return replace(left, ops=np.concatenate([left.ops, beyond]))
        if most is not None and progress.executed >= most:
            return Chunk(beyond, batch=chunk.batch) if len(beyond) else None
        chunk = source.take()
    progress.stopped = False  # the stream ended by itself, its files are closed
    return None


def run_stream(
    command: StepCommand, playing: Playing, root: str, place: Place, comm: Comm, offset: Offset
) -> tuple[Merged | None, Arrays]:
    """Run one Stream step; the merged phase at rank 0 of `comm`, nothing elsewhere.

    All times in the answer are seconds after the agreed start on the common clock.
    """
    stream = playing.stream
    module, function = stream.generator.split(":")
    with contextlib.ExitStack() as shared:
        if stream.shared_queue:
            place = replace(place, turn=shared.enter_context(taking_turns(place.node, comm)))
        generator = getattr(importlib.import_module(module), function)(stream.params, place)
        source = Source(generator, stream.wear_out > 0)
        source.peek()
        playing, driver = settled(playing, comm)
        player = open_together(playing, root, place.threads, comm)
        try:
            start_ns, began = _agree(comm)
            origin = start_ns + offset.nanoseconds  # on this kernel's own clock
            player.begin(origin)
            wait_until(origin, 0 if command.oversubscribed else 200_000)
            with telling(command.progress, comm.rank, player.completed):
                progress = (
                    play_paced(player, source, stream, origin)
                    if stream.arrivals_end
                    else play(
                        player,
                        source,
                        stream.seconds,
                        stream.wear_out,
                        origin,
                        comm,
                        stop_on_error=stream.stop_on_error,
                    )
                )
            comm.sleeping_barrier()
            result = player.result()
            features = player.features()
            leave(playing.driver, player, comm)
        finally:
            player.close()
    printed = last_words(player, comm)
    merged, arrays = reduced(comm, result, source.spent_ns, origin, offset)
    tallies = put_together({**(source.tallies or {}), **progress.tallies}, comm)
    if merged is None:
        return None, arrays
    facts = {**progress.facts, **driver, "clock": result.clock}
    if features:
        facts["driver_features"] = features
    if tallies:
        facts["tallies"] = tallies
    if not stream.stop_on_error:  # they are counted, and the run goes on
        facts["first_errors"] = [failure.document() for failure in merged.failures]
        merged = replace(merged, failures=())
    return replace(merged, began=began, facts=facts, printed=printed), arrays


def _agree(comm: Comm) -> tuple[int, float]:
    """The agreed start on rank 0's monotonic clock, and the same as Unix time."""
    comm.barrier()
    lead = LEAD_NS + LEAD_PER_RANK_NS * comm.size
    now = time.monotonic_ns()
    start, began = comm.bcast([now + lead, (time.time_ns() + lead) / 1e9])
    return int(start), float(began)


def measure_ceiling(playing: Playing, place: Place, comm: Comm) -> float | None:
    """Operations per second of all ranks of `comm`, at its rank 0; None elsewhere.

    Each rank plays the stream, which must end or go on without outcomes, again and again for
    `playing.ceiling` seconds.  As in a run, making its first chunk does not count, nor waiting.
    """
    module, function = playing.stream.generator.split(":")
    make = getattr(importlib.import_module(module), function)
    player = open_together(playing, "/", place.threads, comm)
    spent = 0
    try:
        source = Source(make(playing.stream.params, place))
        source.peek()
        comm.barrier()
        end = time.monotonic_ns() + int(playing.ceiling * 1e9)
        player.stop_at(end)
        while True:
            begin = time.monotonic_ns()
            while (chunk := source.take()) is not None and player.play(chunk) == len(chunk.ops):
                pass
            player.drain()
            spent += time.monotonic_ns() - begin
            if time.monotonic_ns() >= end:
                break
            source = Source(make(playing.stream.params, place))
            source.peek()
        operations = player.result().operations
    finally:
        player.close()
    rates = comm.gather(operations / spent * 1e9 if spent else 0.0)
    return None if rates is None else float(sum(rates))
