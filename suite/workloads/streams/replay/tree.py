"""What is there before a replay: files, directories and open handles at the window's begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Flag, Kind, Place
from fsmatrix.suite.workloads.streams.replay.survey import Integers, Mask, Survey, parents
from fsmatrix.suite.workloads.streams.replay.work import MOST_OFFSET, NAME_MAX, OPENING, Work
from fsmatrix.traces.model import ABSENT, UNKNOWN, Columns, Operations

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


def tree_of(trace: Operations, work: Work, survey: Survey, state: State, possible: Mask) -> Tree:
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


def nameable(trace: Operations, work: Work) -> Mask:
    """Files whose path can be had below the target: no part of it, and not all of it, too long."""
    room = work.longest_path - len(work.prefix(Place(0, 1, 0, 1, 1, 0)))
    return np.array(
        [
            len(name) <= room and max(map(len, name.split(b"/"))) <= NAME_MAX
            for name in trace.files.names()
        ],
        np.bool_,
    )
