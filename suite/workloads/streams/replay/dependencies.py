"""Which operations of different threads must keep their order, and who plays which thread.

Two operations depend on each other if they touch one thing and one of them changes it.  Resources
are: a path (created, removed, renamed, made shorter), the entries of a directory (looked at, or
removed with it; two new entries do not meet), a slot (opened, closed), and 64 KiB of a file's
data (written).  A read that met the end of its file, and anything long, counts as a change of
the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.suite.workloads.streams.replay.survey import (
    KINDS,
    OPENING,
    Integers,
    Mask,
    is_data,
    parents,
)
from fsmatrix.traces.model import Columns, Operations

GRAIN = 1 << 16  # bytes of a file's data that are one thing
MOST_GRAINS = 64  # of one operation; above, it counts as a change of the path
LOOK, ENTRY, CHANGE = 1, 2, 4  # how a thing is touched: LOOKs agree, ENTRYs agree
ON_ENTRIES = (Kind.CREATE, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR, Kind.RENAME)
ON_NAMES = (*ON_ENTRIES, Kind.OPEN, Kind.STAT, Kind.READDIR)
CHANGES = (*ON_ENTRIES, Kind.TRUNCATE)
SEVERAL = -2  # lanes


def _of(*kinds: int) -> Mask:
    table = np.zeros(KINDS, np.bool_)
    table[list(kinds)] = True
    return table


IS_CHANGE, IS_ENTRY, IS_NAME = _of(*CHANGES), _of(*ON_ENTRIES), _of(*ON_NAMES)
IS_HANDLE_END = _of(*OPENING, Kind.CLOSE)


@dataclass(frozen=True)
class Touches:
    """One row for each thing that an operation touches."""

    thing: npt.NDArray[np.uint64]
    operation: Integers  # number in the block
    how: npt.NDArray[np.int64]  # LOOK, ENTRY or CHANGE


class Resources:
    """What the operations of a trace touch: paths, entries, slots, data."""

    def __init__(self, trace: Operations) -> None:
        self._slots = trace.slots
        names = list(trace.files.names())
        rows = {name: i for i, name in enumerate(names)}
        above: dict[bytes, int] = {}  # directories without a row get numbers behind the rows
        parent = np.zeros(len(names), np.int64)
        for i, name in enumerate(names):
            directory = name.rpartition(b"/")[0]
            number = rows.get(directory)
            if number is None:
                number = above.setdefault(directory, len(names) + len(above))
            parent[i] = number
        self._parent = parent
        above_others = {higher for name in names for higher in parents(name)}
        self._above = np.array([name in above_others for name in names], np.bool_)
        self._entries = len(names) + len(above)  # where the numbers of entries begin
        self._first_slot = 2 * self._entries

    def of(self, block: Columns, data: bool = True) -> Touches:
        """What each operation of a block touches.

        `data`: reads and writes touch grains of the file; else a write changes the whole path.
        """
        kind, slot = block["kind"], block["slot"]
        file = self._slots[slot].astype(np.int64)
        number = np.arange(len(kind), dtype=np.int64)
        how = np.where(IS_CHANGE[kind], CHANGE, LOOK)
        grains = _grains(block)
        moves = is_data(kind)
        if data:
            short = moves & (block["result"] >= 0) & (block["result"] < block["size"])
            how[(grains > MOST_GRAINS) | short] = CHANGE
        else:
            how[kind == Kind.WRITE] = CHANGE
        how[np.isin(kind, OPENING) & (block["flags"] & Flag.TRUNCATE != 0)] = CHANGE
        parts = [(file, number, how)]
        parts.append(
            (
                self._first_slot + slot.astype(np.int64),
                number,
                np.where(IS_HANDLE_END[kind], CHANGE, LOOK),
            )
        )
        parts += self._names(kind, file, number, IS_NAME[kind])
        renames = kind == Kind.RENAME
        if renames.any():
            second = self._slots[block["slot2"]].astype(np.int64)
            parts.append((second[renames], number[renames], np.full(renames.sum(), CHANGE)))
            parts += self._names(kind, second, number, renames)
        if data:
            parts.append(_data(block, file, number, np.where(moves, grains, 0)))
        thing, operation, touched = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Touches(thing.astype(np.uint64), operation, touched)

    def _names(
        self, kind: npt.NDArray[np.uint8], file: Integers, number: Integers, mask: Mask
    ) -> list[tuple[Integers, Integers, Integers]]:
        """The directory above, its entries, and the own entries of a directory."""
        parent = self._parent[file]
        entry = mask & IS_ENTRY[kind]
        listed = mask & (kind == Kind.READDIR)
        removed = mask & ((kind == Kind.RMDIR) | (kind == Kind.RENAME))
        return [
            (parent[mask], number[mask], np.full(mask.sum(), LOOK)),
            (self._entries + parent[entry], number[entry], np.full(entry.sum(), ENTRY)),
            (self._entries + file[listed], number[listed], np.full(listed.sum(), LOOK)),
            (self._entries + file[removed], number[removed], np.full(removed.sum(), CHANGE)),
        ]

    def moved_directory(self, block: Columns) -> Mask:
        """Renames of paths that others lie below: these are touched too."""
        renames = block["kind"] == Kind.RENAME
        below = self._above[self._slots[block["slot"]]] | self._above[self._slots[block["slot2"]]]
        moved: Mask = renames & below
        return moved


def _grains(block: Columns) -> Integers:
    offset = (block["offset"] // GRAIN).astype(np.int64)
    last = (block["offset"] + np.maximum(block["size"], 1) - 1) // GRAIN
    return last.astype(np.int64) - offset + 1


def _data(
    block: Columns, file: Integers, number: Integers, grains: Integers
) -> tuple[Integers, Integers, Integers]:
    """The grains that each read or write touches: their numbers are hashes."""
    count = np.where(grains > MOST_GRAINS, 0, grains)
    operation = np.repeat(number, count)
    begins = np.cumsum(count) - count
    within = np.arange(len(operation), dtype=np.int64) - begins[operation]
    grain = (block["offset"] // GRAIN).astype(np.uint64)[operation] + within.astype(np.uint64)
    mixed = (file[operation].astype(np.uint64) << np.uint64(40)) ^ grain
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed |= np.uint64(1 << 63)  # apart from all other numbers
    how = np.where(block["kind"][operation] == Kind.WRITE, CHANGE, LOOK)
    return mixed.view(np.int64), operation, how


def cuts(touches: Touches, lane: Integers, always: Mask) -> list[int]:
    """Operations before which a chunk must end, so that what depends keeps its order.

    `lane`: of each operation of the block.  `always`: operations that stand alone.
    """
    relevant = _meeting(touches, lane)
    order = np.argsort(touches.operation[relevant], kind="stable")
    operations = touches.operation[relevant][order].tolist()
    things = touches.thing[relevant][order].tolist()
    hows = touches.how[relevant][order].tolist()
    alone = np.flatnonzero(always).tolist()
    cuts_at = set(alone) | {i + 1 for i in alone}
    fixed = sorted(cuts_at, reverse=True)
    seen: dict[int, tuple[int, int]] = {}  # thing -> lane and how, since the last cut
    at = 0
    while at < len(operations):
        operation = operations[at]
        while fixed and fixed[-1] <= operation:
            fixed.pop()
            seen.clear()
        end = at
        while end < len(operations) and operations[end] == operation:
            end += 1
        own = int(lane[operation])
        touched = [(things[i], hows[i]) for i in range(at, end)]
        if any(_conflict(seen.get(thing), own, how) for thing, how in touched):
            cuts_at.add(operation)
            seen.clear()
        for thing, how in touched:
            _touch(seen, thing, own, how)
        at = end
    return sorted(cut for cut in cuts_at if 0 < cut < len(lane))


def _conflict(before: tuple[int, int] | None, lane: int, how: int) -> bool:
    return before is not None and before[0] != lane and (before[1] != how or how == CHANGE)


def _touch(seen: dict[int, tuple[int, int]], thing: int, lane: int, how: int) -> None:
    before = seen.get(thing)
    if before is None:
        seen[thing] = (lane, how)
    else:
        seen[thing] = (lane if before[0] == lane else SEVERAL, before[1] | how)


def _meeting(touches: Touches, lane: Integers) -> Mask:
    """Touches of things that several lanes touch and somebody changes."""
    _, thing = np.unique(touches.thing, return_inverse=True)
    count = int(thing.max()) + 1 if len(thing) else 0
    own = lane[touches.operation]
    first = np.zeros(count, np.int64)
    first[thing] = own
    several = np.zeros(count, np.bool_)
    several[thing[own != first[thing]]] = True
    how = np.zeros(count, np.int64)
    np.bitwise_or.at(how, thing, touches.how)
    meeting: Mask = (several & (how != LOOK) & (how != ENTRY))[thing]
    return meeting


class Groups:
    """Threads that depend on each other, by union and find over what they touch."""

    def __init__(self, threads: int) -> None:
        self._root = np.arange(threads, dtype=np.int64)
        self._seen: dict[int, tuple[int, int]] = {}  # thing -> a thread, and how by all of them
        self._others: dict[int, set[int]] = {}  # threads of a thing that nobody has changed yet

    def add(self, touches: Touches, thread: npt.NDArray[np.uint32]) -> None:
        """Join the threads that a block makes depend on each other."""
        own = thread[touches.operation].astype(np.uint64)
        rows = np.unique(np.stack([touches.thing, own, touches.how.astype(np.uint64)]), axis=1)
        for thing, who, how in rows.T.tolist():
            first, before = self._seen.setdefault(thing, (who, how))
            together = before | how
            self._seen[thing] = (first, together)
            if first == who:
                pass
            else:
                self._others.setdefault(thing, set()).add(who)
            if together not in (LOOK, ENTRY):
                for other in self._others.pop(thing, ()):
                    self._join(first, other)

    def add_all(self) -> None:
        """All threads depend on each other."""
        self._root[:] = 0

    def _join(self, a: int, b: int) -> None:
        self._root[self._find(a)] = self._find(b)

    def _find(self, thread: int) -> int:
        root = self._root
        while root[thread] != thread:
            root[thread] = root[root[thread]]
            thread = int(root[thread])
        return thread

    def of(self) -> Integers:
        """The group of each thread: the number of one of its threads."""
        return np.array([self._find(i) for i in range(len(self._root))], np.int64)
