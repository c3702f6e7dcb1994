"""Op streams of the workload `metadata`: what mdtest measures.

A tree of directories (`depth` levels below its root, `branching` directories in each) is
one for all ranks or one per rank.  The items of a rank - files or directories - lie in runs
of neighbours over all directories of the tree.  A chunk names the items that it works on,
slot after slot, and closes what it opens: the slots serve again in the next chunk, and
memory does not grow with the number of items.  Item i of a chunk belongs to thread i mod T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsmatrix.backends.player.ops import OP, Chunk, Chunks, CountingChunks, Flag, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject, Stored, read
from fsmatrix.suite.workloads.streams.chunks import Arrivals, Schedule, prefetch
from fsmatrix.suite.workloads.streams.pattern import owner_of

CHUNK_OPS = 1 << 16
PACED_OPS = 1 << 9  # of a chunk in an open loop: naming its files makes what is due wait
OPERATION_BYTES = 1 << 20
ROOT = "meta"
DIGITS = 4
_LOW = [b"%04d" % number for number in range(10**DIGITS)]
PREFIX = {"file": b"f", "directory": b"s", "renamed": b"n"}


@dataclass(frozen=True)
class Task(Stored):
    """What one step does: the params of its Stream."""

    phase: str  # tree, mkdir, create, stat, read, rename, remove, rmdir
    items: int  # of each rank
    depth: int = 0
    branching: int = 1
    unique: bool = False  # a tree for each rank
    renamed: bool = False  # the files have their second names
    bytes: int = 0  # written or read in each file
    fsync: bool = False
    shift: str = "none"  # whose items: none (own), rank (the next rank's), node
    arrivals: Arrivals | None = None  # open loop: when an item's first call is due


def directories(depth: int, branching: int) -> int:
    """Number of directories of a tree, its root included."""
    return depth + 1 if branching == 1 else (branching ** (depth + 1) - 1) // (branching - 1)


def calls(task: Task) -> list[tuple[Kind, int]]:
    """The operations of one item in order: kind and, for data, bytes of each."""
    data = [OPERATION_BYTES] * (task.bytes // OPERATION_BYTES)
    if task.bytes % OPERATION_BYTES:
        data.append(task.bytes % OPERATION_BYTES)
    if task.phase == "create":
        synced = [(Kind.FSYNC, 0)] if task.fsync else []
        return [(Kind.CREATE, 0), *((Kind.WRITE, n) for n in data), *synced, (Kind.CLOSE, 0)]
    if task.phase == "read":
        return [(Kind.OPEN, 0), *((Kind.READ, n) for n in data), (Kind.CLOSE, 0)]
    single = {
        "tree": Kind.MKDIR,
        "mkdir": Kind.MKDIR,
        "stat": Kind.STAT,
        "rename": Kind.RENAME,
        "remove": Kind.UNLINK,
        "rmdir": Kind.RMDIR,
    }
    return [(single[task.phase], 0)]


def per_chunk(task: Task) -> int:
    """How many items one chunk works on."""
    items = max(1, (PACED_OPS if task.arrivals else CHUNK_OPS) // len(calls(task)))
    return items // 2 if task.phase == "rename" else items


def slots(task: Task) -> int:
    """Slots that the chunks use."""
    return per_chunk(task) * (2 if task.phase == "rename" else 1)


def directory(task: Task, owner: int, number: int) -> bytes:
    """Path of directory `number` of the tree of rank `owner`; 0 is its root."""
    parts = []
    while number:
        parts.append(b"d.%d" % number)
        number = (number - 1) // task.branching
    root = ROOT.encode()
    if task.unique:
        root += b"/r.%08d" % owner
    return b"/".join([root, *reversed(parts)])


def generate(params: JsonObject, place: Place) -> Chunks | CountingChunks:
    """The chunks of one rank; `params` are those of a Task."""
    task = read(Task, params, "params", exact=True)
    return chunks(task, place) if task.arrivals is None else paced(task, task.arrivals, place)


def chunks(task: Task, place: Place) -> Chunks:
    """The chunks of one rank."""
    if task.phase == "tree":
        source = _tree(task, place)
    else:
        source = _items(task, owner_of(task.shift, place), place.threads)
    for chunk in source:
        if (yield chunk):
            return  # a chunk closes what it opens, as far as it was played


def paced(task: Task, arrivals: Arrivals, place: Place) -> CountingChunks:
    """The chunks of one rank in an open loop: the other calls of an item follow the first."""
    schedule = Schedule(arrivals, place, task.phase)
    source = _items(task, owner_of(task.shift, place), place.threads)
    with prefetch(place) as helper:
        for chunk in helper.each(lambda: _timed(next(source, None), task, schedule)):
            if (yield chunk):
                break
    return schedule.tallies(endless=False)


def _timed(chunk: Chunk | None, task: Task, schedule: Schedule) -> Chunk | None:
    """The chunk with the times of its items; its operations are those of other chunks too."""
    if chunk is None:
        return None
    ops = chunk.ops.copy()
    first = ops[:: len(calls(task))]
    first["time"] = schedule.next(len(first))
    return replace(chunk, ops=ops, due=len(first))


def _tree(task: Task, place: Place) -> Iterator[Chunk]:
    """Make the directories, parents first: the shared tree by rank 0, own ones by each."""
    if place.rank and not task.unique:
        return
    total = directories(task.depth, task.branching)
    for first in range(0, total, CHUNK_OPS):
        names = [
            directory(task, place.rank, number)
            for number in range(first, min(first + CHUNK_OPS, total))
        ]
        ops = np.zeros(len(names), dtype=OP)
        ops["kind"] = Kind.MKDIR
        ops["file"] = np.arange(len(names))
        yield Chunk(ops, names, 0)


def _items(task: Task, owner: int, threads: int) -> Iterator[Chunk]:
    """One phase over all items of rank `owner`."""
    size = per_chunk(task)
    template = _template(task, min(size, task.items), threads)
    kind = "directory" if task.phase in ("mkdir", "rmdir") else "file"
    for first in range(0, task.items, size):
        count = min(size, task.items - first)
        if count != min(size, task.items):
            template = _template(task, count, threads)
        own = "renamed" if task.renamed and kind == "file" else kind
        names = item_names(task, own, owner, first, first + count)
        if task.phase == "rename":
            names += item_names(task, "renamed", owner, first, first + count)
        yield Chunk(template, names, 0)


def _template(task: Task, count: int, threads: int) -> Any:
    """Operations of a chunk of `count` items, the same in every chunk: slots are its items."""
    sequence = calls(task)
    ops = np.zeros((count, len(sequence)), dtype=OP)
    ops["kind"] = [kind for kind, _ in sequence]
    ops["size"] = [size for _, size in sequence]
    offsets = np.cumsum([0, *(size for _, size in sequence)])[:-1]
    data = ops["size"][0] > 0 if count else np.zeros(len(sequence), dtype=bool)
    ops["offset"] = np.where(data, offsets, 0)
    item = np.arange(count)[:, np.newaxis]
    ops["file"] = item
    ops["stream"] = item % threads
    if task.phase == "rename":
        ops["file2"] = item + count
    if task.phase == "create":
        ops["flags"][:, 0] = Flag.WRITE_ONLY
    if task.phase == "read":
        ops["flags"][:, 0] = Flag.READ_ONLY
    return ops.reshape(-1)


def item_names(task: Task, kind: str, owner: int, first: int, stop: int) -> list[bytes]:
    """Names of items first..stop-1 of a rank, about 50 ns each: whole runs share a head."""
    total = directories(task.depth, task.branching)
    names: list[bytes] = []
    while first < stop:
        number = first * total // task.items  # item i lies in directory i * total // items
        until = min(stop, -(-(number + 1) * task.items // total))
        path = directory(task, owner, number)
        while first < until:
            high, low = divmod(first, len(_LOW))
            length = min(until - first, len(_LOW) - low)
            head = b"%s/%s.%08d.%d." % (path, PREFIX[kind], owner, high)
            names += [head + tail for tail in _LOW[low : low + length]]
            first += length
    return names
