"""What is there before a replay: files, directories and open handles at the window's begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import OP, Chunk, Chunks, Flag, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.workloads.streams.replay.survey import (
    MOST_OFFSET,
    NAME_MAX,
    OPENING,
    PIECE,
    Integers,
    Mask,
    ReplayParams,
    Survey,
    opened_trace,
    parents,
    survey,
    work_of,
)
from fsmatrix.traces.trace_model import ABSENT, UNKNOWN, Columns, Operations

CLOSED = -1  # flags of a slot that is not open
ON_TREE = (
    *OPENING,
    int(Kind.WRITE),
    int(Kind.TRUNCATE),
    int(Kind.UNLINK),
    int(Kind.MKDIR),
    int(Kind.RMDIR),
    int(Kind.RENAME),
    int(Kind.CLOSE),
)


@dataclass
class State:
    """The traced files at one moment."""

    size: Integers  # [file] bytes, ABSENT: not there; of a directory that is there 0
    directory: Mask  # [file]
    opened: Integers  # [slot] flags that it is open with, or CLOSED


def state_at(trace: Operations, first: int) -> State:
    """Before operation `first`: what succeeded before it is carried out on the tables."""
    state = State(
        trace.files.size.copy(),
        trace.files.directory.copy(),
        np.full(len(trace.slots), CLOSED, np.int64),
    )
    if not first:
        return state
    columns = ("kind", "flags", "slot", "slot2", "offset", "size", "result")
    for block in trace.blocks(columns, stop=first):
        took = np.isin(block["kind"], ON_TREE)
        took &= (block["result"] >= 0) | (block["result"] == UNKNOWN)
        _carry_out(state, trace.slots, {name: values[took] for name, values in block.items()})
    return state


def _carry_out(state: State, slots: npt.NDArray[np.uint32], block: Columns) -> None:
    """Operations that change something, one after the other."""
    size, opened = state.size, state.opened
    came = np.where(block["result"] == UNKNOWN, block["size"], block["result"])
    rows = zip(
        block["kind"].tolist(),
        block["flags"].tolist(),
        block["slot"].tolist(),
        slots[block["slot"]].tolist(),
        slots[block["slot2"]].tolist(),
        block["offset"].tolist(),
        came.tolist(),
        strict=True,
    )
    for kind, flags, slot, file, file2, offset, moved in rows:
        if kind == Kind.WRITE:
            size[file] = max(size[file], offset + moved if offset <= MOST_OFFSET else 0)
        elif kind in OPENING:
            opened[slot] = flags
            if flags & Flag.TRUNCATE:
                size[file] = 0
            elif kind == Kind.CREATE:
                size[file] = max(size[file], 0)
        elif kind == Kind.CLOSE:
            opened[slot] = CLOSED
        elif kind == Kind.TRUNCATE:
            size[file] = offset if offset <= MOST_OFFSET else size[file]
        elif kind == Kind.MKDIR:
            size[file], state.directory[file] = 0, True
        elif kind == Kind.RENAME:
            size[file2], state.directory[file2] = size[file], state.directory[file]
            size[file] = ABSENT
        else:  # unlink, rmdir
            size[file] = ABSENT


@dataclass(frozen=True)
class Tree:
    """What is made before: directories, the outermost first, and rows of files with sizes."""

    directories: tuple[bytes, ...]
    files: Integers  # rows
    sizes: Integers  # bytes, of those files


def tree_of(
    trace: Operations, work: ReplayParams, survey: Survey, state: State, possible: Mask
) -> Tree:
    """The tree that the chosen operations expect.

    A queue replay finds every file that it reads or writes as long as it ever was.  Directories
    that the trace says nothing of are made where something below them succeeded, unless that lies
    below one that the trace makes itself.
    """
    names = list(trace.files.names())
    row = {name: i for i, name in enumerate(names)}
    size = state.size.copy()
    if work.mode == "queue":
        size = np.where(survey.data, np.maximum(size, survey.end), size)
    there = survey.chosen & possible & (size != ABSENT)
    later = (size == ABSENT) & survey.made & (work.mode != "queue")
    wanted: set[bytes] = set()
    for i in np.flatnonzero(survey.chosen & possible & (there | survey.used)).tolist():
        for parent in parents(names[i]):
            if parent in row and later[row[parent]]:
                there[i] = False  # whatever the trace says: its directory was not
                break
            wanted.add(parent)
    wanted |= {names[i] for i in np.flatnonzero(there & state.directory).tolist()}
    files = np.flatnonzero(there & ~state.directory)
    files = np.array([i for i in files.tolist() if names[i] not in wanted], np.int64)
    return Tree(tuple(sorted(wanted)), files, size[files])


def nameable(trace: Operations, work: ReplayParams) -> Mask:
    """Files whose path can be had below the target: no part of it, and not all of it, too long."""
    room = work.longest_path - len(work.prefix(Place(0, 1, 0, 1, 1, 0)))
    return np.array(
        [
            len(name) <= room and max(map(len, name.split(b"/"))) <= NAME_MAX
            for name in trace.files.names()
        ],
        np.bool_,
    )


# A trace looked through once, and what was seen of it kept for the next step.
#
# Plan and ranks ask the same of a trace again and again; what they ask depends on the trace and on
# what of it is chosen.


KEPT = 64  # of the most recent works: all that a campaign has
ELSEWHERE = ("time_scale", "direct", "widened", "filled", "able")  # fields that change nothing


def exact_sum(values: Integers) -> int:
    """Of numbers from 0 on, also where 64 bits do not hold it: a trace may lie about sizes."""
    high, low = values >> 32, values & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())


@dataclass(frozen=True)
class Prepared:
    """What is known of a work before it is played."""

    survey: Survey
    state: State
    tree: Tree
    nameable: Mask  # [file]

    @property
    def grown(self) -> int:
        """Bytes by which files grow beyond what they are at first, if none is made shorter."""
        size = np.zeros(len(self.nameable), np.int64)
        size[self.tree.files] = self.tree.sizes
        return exact_sum(np.maximum(self.survey.end - size, 0))


def prepared(work: ReplayParams) -> Prepared:
    """Look through the trace; ValueError for an empty window, ResultError for a bad trace."""
    plain = ReplayParams()
    return _prepared(replace(work, **{name: getattr(plain, name) for name in ELSEWHERE}))


@lru_cache(maxsize=KEPT)
def _prepared(work: ReplayParams) -> Prepared:
    with opened_trace(work) as trace:
        seen = survey(trace, work)
        state = state_at(trace, seen.first)
        possible = nameable(trace, work)
        return Prepared(seen, state, tree_of(trace, work, seen, state, possible), possible)


# The setup streams: the tree of a replay made, and looked at, by the player itself.


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
def _tree(work: ReplayParams) -> Iterator[tuple[Operations, Tree]]:
    with opened_trace(work) as trace:
        yield trace, prepared(work).tree


def _mine(
    trace: Operations, work: ReplayParams, tree: Tree, place: Place
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
