"""Op streams of the workload `pattern`: sequential and random reads and writes.

A stream is one opening chunk, chunks of data operations, and one closing chunk.  The file
is opened, synced and closed by stream 0 and shared by all threads of the rank: what makes
that safe is that the end of a chunk is a barrier for the threads.

The data of a rank is cut into blocks of `chunk` bytes; what is left over is one short block,
the tail, done last.  Operation i of a pass belongs to thread i mod T.  In sequential order
each thread has a contiguous part of the rank's blocks; in random order the threads deal out
one permutation of them.  Nothing here grows with the number of operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsmatrix.backends.player.ops import (
    OP,
    OUTCOME,
    Chunk,
    Chunks,
    CountingChunks,
    Flag,
    Integers,
    Kind,
    Place,
    drawn,
    mix,
    permuted,
    salt,
)
from fsmatrix.results.evidence.stored import JsonObject, Stored, read
from fsmatrix.suite.workloads.streams.chunks import Arrivals, Schedule, prefetch

CHUNK_OPS = 1 << 15
# in an open loop what is due between two chunks waits some 200 us: these are to be rare, and where
# no CPU is free to prepare the next one, short
PACED_OPS = (1 << 12, 1 << 16)
PACED_SECONDS = 0.5
SHARED = "data"


@dataclass(frozen=True)
class Task(Stored):
    """What one step does: the params of its Stream."""

    step: str  # its name: two steps of a run have different random orders
    operation: str  # read, write, mixed
    layout: str  # file-per-process, shared-segmented, shared-strided
    chunk: int  # bytes of one operation
    bytes: int  # of every process, or of all processes together
    total: bool = False  # `bytes` is of all together
    random: str = ""  # "" sequential, permutation, with-replacement
    read_share: tuple[int, int] = (1, 2)  # mixed: reads of operations, as a fraction
    shift: str = "none"  # whose data: none (own), rank (the next rank's), node
    direct: bool = False
    fsync: str = "none"  # none, end, per-write
    create: bool = False
    verify: bool = False
    endless: bool = False  # begin again after the last block
    evict: bool = False  # before beginning again: drop what was read, so that it is cold again
    operation_bytes: int = 0  # where the data lies in one piece: another size of operation
    arrivals: Arrivals | None = None  # open loop: when reads and writes are due


@dataclass(frozen=True)
class Part:
    """The blocks of one rank: block b lies at origin + b * stride."""

    full: int  # whole blocks
    size: int  # bytes of one
    origin: int
    stride: int
    tail: int  # bytes of the short block at the end; 0 = none
    tail_offset: int

    @property
    def operations(self) -> int:
        """How many operations one pass has."""
        return self.full + bool(self.tail)

    @property
    def bytes(self) -> int:
        """How many bytes one pass moves."""
        return self.full * self.size + self.tail


def part_of(task: Task, rank: int, ranks: int) -> Part:
    """The part of `rank`: the parts of all ranks cover the data once, without a hole.

    `total`: whole blocks are dealt out evenly, the remainder of blocks to the first ranks;
    the short block at the end of the data goes to the next rank in turn (in segments, where
    it must lie at the end, to the last rank).
    """
    size = task.chunk
    blocks, rest = divmod(task.bytes, size)
    strided, segmented = (task.layout == f"shared-{kind}" for kind in ("strided", "segmented"))
    if task.total:
        even, more = divmod(blocks, ranks)
        full, before = even + (rank < more), rank * even + min(rank, more)
        tail = rest if rank == (ranks - 1 if segmented else more) else 0
        origin, end = before * size, task.bytes - rest
    else:
        full, tail = blocks, rest
        origin, end = rank * task.bytes, blocks * ranks * size + rank * rest
    if strided:
        return Part(full, size, rank * size, ranks * size, tail, end)
    origin = origin if segmented else 0
    part = Part(full, size, origin, size, tail, origin + full * size)
    if not task.operation_bytes:
        return part
    full, tail = divmod(part.bytes, task.operation_bytes)
    size = task.operation_bytes
    return Part(full, size, origin, size, tail, origin + full * size)


def owner_of(shift: str, place: Place) -> int:
    """The rank whose data this rank reads; ValueError if ranks of a node are not neighbours."""
    if shift == "none":
        return place.rank
    if shift == "rank":
        return (place.rank + 1) % place.ranks
    per_node = place.ranks // place.nodes
    if place.rank // per_node != place.node:
        raise ValueError(
            f"a shift by a node needs the ranks of a node to follow each other: rank "
            f"{place.rank} of {place.ranks} is on node {place.node} of {place.nodes}"
        )
    return (place.rank + per_node) % place.ranks


def name_of(layout: str, rank: int) -> str:
    """Name of the file that holds the data of `rank`, relative to the run's directory."""
    return f"{SHARED}.{rank:08d}" if layout == "file-per-process" else SHARED


def reads_of(task: Task, part: Part, threads: int) -> tuple[int, int]:
    """Reads of one pass of a mixed pattern: their number, and how many bytes they read."""
    above, below = task.read_share
    count = sum(
        -(-(part.operations - stream) // threads) * above // below
        for stream in range(min(threads, part.operations))
    )
    turn = part.full // threads
    tail_is_read = part.tail and (turn + 1) * above // below > turn * above // below
    return count, count * part.size - (part.size - part.tail if tail_is_read else 0)


def generate(params: JsonObject, place: Place) -> Chunks | CountingChunks:
    """The chunks of one rank; `params` are those of a Task."""
    task = read(Task, params, "params", exact=True)
    return chunks(task, place) if task.arrivals is None else paced(task, task.arrivals, place)


def chunks(task: Task, place: Place) -> Chunks:
    """The chunks of one rank."""
    owner = owner_of(task.shift, place)
    part = part_of(task, owner, place.ranks)
    key = mix(place.seed, place.rank, salt(task.step))
    data = _data(task, part, place.threads, key)
    chunk = next(data, None)  # made before the first chunk is asked for: before the clock runs
    stop = yield _opening(task, owner)
    while chunk is not None and not stop:
        stop = yield chunk
        chunk = None if stop else next(data, None)
    yield _closing(task)


def paced(task: Task, arrivals: Arrivals, place: Place) -> CountingChunks:
    """The chunks of one rank in an open loop; endless ones end with the arrivals."""
    owner = owner_of(task.shift, place)
    part = part_of(task, owner, place.ranks)
    key = mix(place.seed, place.rank, salt(task.step))
    schedule = Schedule(arrivals, place, task.step)
    data = _data(task, part, place.threads, key)
    first = [next(data, None)]  # made before the clock runs, as in a closed loop
    outcome = np.zeros(1, dtype=OUTCOME)
    stop = yield replace(_opening(task, owner), outcomes=outcome)
    schedule.opened(int(outcome["start"][0] + outcome["duration"][0]))

    def make() -> Chunk | None:
        chunk = first.pop() if first else next(data, None)
        return None if chunk is None else _timed(chunk, task, schedule)

    with prefetch(place) as helper:
        for chunk in helper.each(make):
            if stop or (stop := (yield chunk)):
                break
    yield _closing(task)
    return schedule.tallies(endless=task.endless)


def _timed(chunk: Chunk, task: Task, schedule: Schedule) -> Chunk | None:
    """The chunk with its reads and writes due at their times; None after the end of endless ones.

    A sync of one write follows it without a time of its own, and is left out with it.
    """
    if task.endless and schedule.over:
        return None
    ops = chunk.ops
    data = (ops["kind"] == Kind.READ) | (ops["kind"] == Kind.WRITE)
    times = schedule.next(int(np.count_nonzero(data)))
    ops["time"][data] = times
    due = len(times)
    if task.endless and due and times[-1] >= schedule.until:
        due = int(np.searchsorted(times, schedule.until))
        late = ops["time"] >= schedule.until
        late[1:] |= late[:-1] & ~data[1:]
        ops = ops[~late]
    return replace(chunk, ops=ops, due=due)


def _opening(task: Task, owner: int) -> Chunk:
    flags = {"read": Flag.READ_ONLY, "write": Flag.WRITE_ONLY, "mixed": Flag(0)}[task.operation]
    if task.direct:
        flags |= Flag.DIRECT
    ops = np.zeros(1, dtype=OP)
    ops["kind"] = Kind.CREATE if task.create else Kind.OPEN
    ops["flags"] = flags
    return Chunk(ops, [name_of(task.layout, owner).encode()], 0)


def _closing(task: Task) -> Chunk:
    synced = task.fsync == "end" and task.operation != "read"
    kinds = [Kind.FSYNC, Kind.CLOSE] if synced else [Kind.CLOSE]
    return Chunk(_of_file(kinds))


def _data(task: Task, part: Part, threads: int, key: int) -> Iterator[Chunk]:
    """Chunks of data operations: one pass, or pass after pass if endless."""
    per_pass = part.operations
    each = task.fsync == "per-write" and task.operation != "read"
    size = CHUNK_OPS
    if task.arrivals is not None:
        size = min(max(round(PACED_SECONDS * task.arrivals.rate), PACED_OPS[0]), PACED_OPS[1])
    template = np.zeros(size // 2 if each else size, dtype=OP)
    template["kind"] = Kind.READ if task.operation == "read" else Kind.WRITE
    if task.operation == "read" and task.verify:
        template["flags"] = Flag.VERIFY
    template["size"] = part.size
    between = _between(task)
    position = 0
    while per_pass and (task.endless or position < per_pass):
        count = len(template)
        if between or not task.endless:
            count = min(count, per_pass - position % per_pass)
        ops = _operations(task, part, threads, key, position, _copy(template[:count]))
        yield Chunk(_synced(ops) if each else ops)
        position += count
        if between and position % per_pass == 0:
            yield Chunk(_of_file(between))


def _between(task: Task) -> list[Kind]:
    """What stands between two passes, so that the next one does not work in the page cache.

    Writes are synced, since another pass would only overwrite dirty pages; cold reads are
    evicted.  The whole file each time: other ranks' blocks of a shared one are no warmer.
    """
    kinds = []
    if task.endless and task.operation != "read" and task.fsync == "end":
        kinds.append(Kind.FSYNC)
    if task.endless and task.evict:
        kinds.append(Kind.EVICT)
    return kinds


def _of_file(kinds: Sequence[Kind]) -> Any:
    """Operations on the open file, in order."""
    ops = np.zeros(len(kinds), dtype=OP)
    ops["kind"] = kinds
    return ops


def _operations(task: Task, part: Part, threads: int, key: int, position: int, ops: Any) -> Any:
    """Fill in operations position, position + 1, ... (counted over all passes)."""
    index = np.arange(position, position + len(ops), dtype=np.int64)
    number = position // part.operations  # of the pass
    passes: Integers | int = number
    if position + len(ops) > (number + 1) * part.operations:
        passes = index // part.operations
    turn_in_pass = index - passes * part.operations
    turn, stream = (turn_in_pass, 0) if threads == 1 else np.divmod(turn_in_pass, threads)
    ops["stream"] = stream
    block = _blocks(task, part, threads, key, index, passes, turn_in_pass)
    ops["offset"] = block * part.stride + part.origin
    if part.tail and (number + 1) * part.operations <= position + len(ops):
        last = turn_in_pass == part.full
        ops["offset"][last] = part.tail_offset
        ops["size"][last] = part.tail
    if task.operation == "mixed":
        above, below = task.read_share
        reads = (turn + 1) * above // below > turn * above // below
        ops["kind"][reads] = Kind.READ
        if task.verify:
            ops["flags"][reads] = Flag.VERIFY
    return ops


def _blocks(
    task: Task,
    part: Part,
    threads: int,
    key: int,
    index: Integers,
    passes: Integers | int,
    turn: Integers,
) -> Integers:
    """The block of each operation; what it says of the tail has no meaning."""
    full = max(part.full, 1)
    turn = np.minimum(turn, full - 1) if part.tail else turn
    if task.random == "with-replacement":
        return drawn(index, full, key)
    if task.random == "permutation":
        return _reordered(turn, passes, full, key)
    if threads == 1:
        return turn
    even, more = divmod(full, threads)
    step, stream = np.divmod(turn, threads)
    return stream * even + np.minimum(stream, more) + step


def _reordered(turn: Integers, passes: Integers | int, full: int, key: int) -> Integers:
    """A permutation, in every pass after the first entered and left at another place."""
    if isinstance(passes, int) and passes == 0:
        return permuted(turn, full, key)
    several = np.atleast_1d(passes)
    numbers = np.arange(several[0], several[-1] + 1, dtype=np.int64)
    entry, leave = (drawn(numbers, full, mix(key, end))[several - several[0]] for end in (1, 2))
    entered: Integers = turn + entry
    entered -= full * (entered >= full)
    left: Integers = permuted(entered, full, key) + leave
    left -= full * (left >= full)
    return left


def _copy(ops: Any) -> Any:
    """A copy as whole words: numpy copies a structured array field by field, 40 x slower."""
    return ops.view(np.uint64).copy().view(OP)


def _synced(ops: Any) -> Any:
    """Each write followed by an fsync of the same stream."""
    both = np.zeros((len(ops), 2), dtype=OP)
    both[:, 0] = ops
    both[:, 1]["kind"] = Kind.FSYNC
    both[:, 1]["stream"] = ops["stream"]
    keep = np.ones(both.shape, dtype=bool)
    keep[:, 1] = ops["kind"] == Kind.WRITE
    return both[keep]
