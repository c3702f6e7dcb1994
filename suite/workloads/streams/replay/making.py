"""The setup streams: the tree of a replay made, and looked at, by the player itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fsmatrix.backends.player.ops import OP, Chunk, Chunks, Flag, Kind, Place
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.workloads.streams.replay.prepared import prepared
from fsmatrix.suite.workloads.streams.replay.tree import Tree
from fsmatrix.suite.workloads.streams.replay.work import PIECE, Work, opened_trace, work_of
from fsmatrix.traces.model import Operations

NAMES = 256  # slots of these streams: open files, well below the usual limit of 1024
OPERATIONS = 1 << 13  # of a chunk, about


def directories(params: JsonObject, place: Place) -> Chunks:
    """Make the directories, the outermost first: of each rank's own tree, or rank 0 of the tree.

    A level of the tree is a chunk: its directories are made by all threads.
    """
    work = work_of(params)
    prefix = work.prefix(place)
    if place.rank and not work.private:
        return
    levels: dict[int, list[bytes]] = {-1: [prefix[:-1]]} if prefix else {}
    for name in prepared(work).tree.directories:
        levels.setdefault(name.count(b"/"), []).append(prefix + name)
    for level in sorted(levels):
        for names in _groups(levels[level]):
            yield _chunk(names, [(i, Kind.MKDIR, 0, 0) for i in range(len(names))], place)


def files(params: JsonObject, place: Place) -> Chunks:
    """Make the files of this rank as long as they are at the start, and written if so asked."""
    work = work_of(params)
    with _tree(work) as (trace, tree):
        for names, sizes in _mine(trace, work, tree, place):
            yield _chunk(names, [(i, Kind.CREATE, 0, 0) for i in range(len(names))], place)
            if work.filled:
                yield from _filled(sizes, place)
            else:
                long = [(i, Kind.TRUNCATE, size, 0) for i, size in enumerate(sizes) if size]
                yield _chunk((), long, place)
            ends = (Kind.FSYNC, Kind.CLOSE) if work.filled else (Kind.CLOSE,)
            yield _chunk((), [(i, kind, 0, 0) for i in range(len(names)) for kind in ends], place)


def verify(params: JsonObject, place: Place) -> Chunks:
    """Look at each file of this rank, and read its last byte: an error ends the run."""
    work = work_of(params)
    with _tree(work) as (trace, tree):
        for names, sizes in _mine(trace, work, tree, place):
            ops: list[tuple[int, Kind, int, int]] = []
            for i, size in enumerate(sizes):
                ops.append((i, Kind.OPEN, 0, 0))
                if size:
                    ops.append((i, Kind.READ, size - 1, 1))
                ops.append((i, Kind.CLOSE, 0, 0))
            yield _chunk(names, ops, place)


@contextmanager
def _tree(work: Work) -> Iterator[tuple[Operations, Tree]]:
    with opened_trace(work) as trace:
        yield trace, prepared(work).tree


def _mine(
    trace: Operations, work: Work, tree: Tree, place: Place
) -> Iterator[tuple[list[bytes], list[int]]]:
    """Names and sizes of this rank's files, some at a time."""
    prefix = work.prefix(place)
    own = slice(None) if work.private else slice(place.rank, None, place.ranks)
    rows, sizes = tree.files[own].tolist(), tree.sizes[own].tolist()
    for at in range(0, len(rows), NAMES):
        part = rows[at : at + NAMES]
        yield [prefix + trace.files.name(row) for row in part], sizes[at : at + NAMES]


def _groups(names: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(names), NAMES):
        yield names[at : at + NAMES]


def _filled(sizes: Sequence[int], place: Place) -> Chunks:
    """Write every byte of the open files, in pieces."""
    ops: list[tuple[int, Kind, int, int]] = []
    for i, size in enumerate(sizes):
        for offset in range(0, size, PIECE):
            ops.append((i, Kind.WRITE, offset, min(PIECE, size - offset)))
            if len(ops) == OPERATIONS:
                yield _chunk((), ops, place)
                ops = []
    if ops:
        yield _chunk((), ops, place)


def _chunk(
    names: Sequence[bytes], ops: Sequence[tuple[int, Kind, int, int]], place: Place
) -> Chunk:
    """Operations (slot, kind, offset, size), those of one slot in one stream."""
    chunk_ops = np.zeros(len(ops), dtype=OP)
    if ops:
        columns = np.array(ops, dtype=np.int64)
        chunk_ops["file"], chunk_ops["kind"], chunk_ops["offset"], chunk_ops["size"] = columns.T
        chunk_ops["stream"] = columns[:, 0] % place.threads
        chunk_ops["flags"][chunk_ops["kind"] == Kind.OPEN] = Flag.READ_ONLY
    return Chunk(chunk_ops, names, 0)
