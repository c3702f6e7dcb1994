"""The generator of a replay: a rank's part of a trace as chunks, and what became of it.

Operations of different threads that depend on each other keep their order.  Two do if they touch
one thing and one of them changes it.  Resources are: a path (created, removed, renamed, made
shorter), the entries of a directory (looked at, or removed with it; two new entries do not meet), a
slot (opened, closed), and 64 KiB of a file's data (written).  A read that met the end of its file,
and anything long, counts as a change of the path.
"""

from __future__ import annotations

import heapq
import resource
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import OP, OUTCOME, Chunk, CountingChunks, Flag, Kind, Place
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.workloads.streams.chunks import prefetch
from fsmatrix.suite.workloads.streams.replay.outcomes import (
    Counts,
    Pauses,
    Played,
    converted,
    skipped,
    times,
)
from fsmatrix.suite.workloads.streams.replay.survey import (
    KINDS,
    OPENING,
    Integers,
    Mask,
    ReplayParams,
    Survey,
    is_data,
    opened_trace,
    parents,
    selected,
    work_of,
)
from fsmatrix.suite.workloads.streams.replay.tree import CLOSED, State, prepared
from fsmatrix.traces.trace_model import BLOCK, Columns, Operations

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


# Who plays which thread of a trace: ranks get groups that do not depend, lanes get threads.


@dataclass(frozen=True)
class Lanes:
    """Arrays have one element for each thread of the trace; -1: not this rank's."""

    lane: Integers
    sharing: int  # threads that share a lane with one that lived at the same time
    threads: int  # of this rank


def lanes_of(
    trace: Operations, work: ReplayParams, survey: Survey, things: Resources, place: Place
) -> Lanes:
    """The lane of each of this rank's threads."""
    used = survey.thread_count > 0
    if not work.private and place.ranks > 1:
        used &= _ranks(trace, work, survey, things, place.ranks) == place.rank
    return _packed(survey, np.flatnonzero(used), place.threads)


def _ranks(
    trace: Operations, work: ReplayParams, survey: Survey, things: Resources, ranks: int
) -> Integers:
    """The rank of each thread: groups that depend stay together, the largest are dealt first."""
    groups = Groups(len(trace.threads))
    for block in trace.blocks(first=survey.first, stop=survey.stop):
        mask = selected(trace, work, survey.chosen, block)
        part = {name: values[mask] for name, values in block.items()}
        if things.moved_directory(part).any():
            groups.add_all()
            break
        groups.add(things.of(part, data=False), part["thread"])
    of = groups.of()
    size = np.bincount(of, weights=survey.thread_count, minlength=len(of)).astype(np.int64)
    order = sorted(np.flatnonzero(size).tolist(), key=lambda group: (-size[group], group))
    rank_of = np.full(len(of), -1, np.int64)
    loads = [(0, rank) for rank in range(ranks)]
    for group in order:
        load, rank = heapq.heappop(loads)
        rank_of[group] = rank
        heapq.heappush(loads, (load + int(size[group]), rank))
    return rank_of[of]


def _packed(survey: Survey, threads: Integers, lanes: int) -> Lanes:
    """A lane is free again when its thread has ended; without a free one, the least loaded."""
    lane = np.full(len(survey.thread_count), -1, np.int64)
    ends = np.full(lanes, -1, np.int64)
    load = np.zeros(lanes, np.int64)
    sharing = 0
    for thread in threads[np.argsort(survey.thread_first[threads], kind="stable")].tolist():
        free = np.flatnonzero(ends < survey.thread_first[thread])
        sharing += not len(free)
        choice = free if len(free) else np.arange(lanes)
        best = int(choice[np.argmin(load[choice])])
        lane[thread] = best
        ends[best] = max(ends[best], survey.thread_last[thread])
        load[best] += survey.thread_count[thread]
    return Lanes(lane, sharing, len(threads))


NAMES = 1 << 14  # slots that are named at once
TURN = 1 << 13  # operations of a block that ranks of a node take in turns
BATCH = 16  # operations that a thread takes at once from a queue
IN_QUEUE = ("kind", "slot", "offset", "size", "result")  # columns it needs
LEAD_NS = 50_000_000  # before the first issue time, for names and open files
LEAD_PER_SLOT_NS = 10_000
Pieces = Generator[Chunk, bool | None, None]


def generate(params: JsonObject, place: Place) -> CountingChunks:
    """The chunks of one rank; `params` are those of a ReplayParams."""
    work = work_of(params)
    _raise_limit()
    with opened_trace(work) as trace:
        rank = _Rank.of(trace, work, place)
        pieces = rank.queue() if work.mode == "queue" else rank.threads()
        first = next(pieces, None)  # made before the first chunk is asked for
        yield from rank.names()
        while first is not None:
            yield first
            first = next(pieces, None)
        return rank.counts.tallies()


def _raise_limit() -> None:
    """As many open files as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Room:
    """Memory of a block that is used again: that of new arrays would be zeroed page by page."""

    def __init__(self) -> None:
        self.ops, self.outcomes = np.zeros(BLOCK, OP), np.zeros(BLOCK, OUTCOME)


@dataclass(frozen=True)
class _Queued:
    """A block of a queue."""

    part: Columns
    played: Played
    outcomes: npt.NDArray[np.void]  # dtype OUTCOME
    file_class: npt.NDArray[np.uint8]  # of each of the part's operations


@dataclass
class _Rank:
    """One rank's part of a replay."""

    trace: Operations
    work: ReplayParams
    place: Place
    survey: Survey
    state: State  # when the window begins
    possible: Mask  # [file] whether it can be named
    counts: Counts

    @classmethod
    def of(cls, trace: Operations, work: ReplayParams, place: Place) -> _Rank:
        """Look through the trace."""
        ready, counts = prepared(work), Counts(work.mode == "timed")
        return cls(trace, work, place, ready.survey, ready.state, ready.nameable, counts)

    # -- names -----------------------------------------------------------------------------
    def names(self) -> Iterator[Chunk]:
        """Names of all slots, and of their twins behind them."""
        trace, work = self.trace, self.work
        prefix, none = work.prefix(self.place), np.zeros(0, dtype=OP)
        queue = work.mode == "queue"
        rows = np.arange(len(trace.files)) if queue else trace.slots
        for at in range(0, len(rows), NAMES):
            part = rows[at : at + NAMES].tolist()
            names = [prefix + trace.files.name(i) if self.possible[i] else b"" for i in part]
            yield Chunk(none, names, at)
            if work.twins:
                yield Chunk(none, names, work.slots + at)

    # -- a thread's operations one after the other -------------------------------------------
    def threads(self) -> Pieces:
        """Closed loop or timed: each thread's operations in order, by one lane."""
        trace, work, seen, counts = self.trace, self.work, self.survey, self.counts
        things = Resources(trace)
        lanes = lanes_of(trace, work, seen, things, self.place)
        counts.threads, counts.sharing = lanes.threads, lanes.sharing
        pauses = Pauses(work, self.place.threads, seen.begin_ns)
        lead = LEAD_NS + LEAD_PER_SLOT_NS * len(trace.slots)
        waiting = self._reopened()
        for block in trace.blocks(first=seen.first, stop=seen.stop):
            part = self._part(block, lanes.lane[block["thread"]] >= 0)
            lane = lanes.lane[part["thread"]]
            played = converted(part, work, part["slot"], lane)
            if work.mode == "timed":
                own = played.source >= 0
                due = times(part, work, seen.begin_ns, lead)
                played.ops["time"][own] = due[played.source[own]]
            elif work.time_scale:
                own = played.source >= 0
                played.ops["time"][own] = pauses.of(part, lane)[played.source[own]]
            if waiting is not None:
                yield from self._added(waiting)
                waiting = None
            yield from self._pieces(part, played, self._ends(things, part, lane, played))

    def _part(self, block: Columns, own: Mask | None = None) -> Columns:
        """What this rank plays of a block, of `own` or of all; what is skipped is counted."""
        mask = selected(self.trace, self.work, self.survey.chosen, block)
        if own is not None:
            mask &= own
        part = block if mask.all() else {name: values[mask] for name, values in block.items()}
        reason = skipped(part, self.work, self.possible, self.trace.slots)
        if reason is None:
            return part
        out = reason >= 0
        if out.any():
            self.counts.skip(part["kind"][out], reason[out])
            part = {name: values[~out] for name, values in part.items()}
        return part

    def _ends(self, things: Resources, part: Columns, lane: Integers, played: Played) -> list[int]:
        """Where a chunk of the block's operations must end."""
        if self.work.mode == "timed" or self.place.threads == 1 or not len(lane):
            return []
        limits = cuts(things.of(part), lane, things.moved_directory(part))
        self.counts.barriers += len(limits)
        if len(played.ops) == len(lane):
            return limits
        ends: list[int] = np.searchsorted(np.maximum.accumulate(played.source), limits).tolist()
        return ends

    def _pieces(self, part: Columns, played: Played, ends: list[int]) -> Pieces:
        """The chunks of a block, and then what became of it."""
        if not len(played.ops):
            return
        outcomes = np.zeros(len(played.ops), dtype=OUTCOME)
        for begin, end in zip((0, *ends), (*ends, len(played.ops)), strict=True):
            if begin < end:
                yield Chunk(played.ops[begin:end], outcomes=outcomes[begin:end])
        file = self.trace.slots[part["slot"]]
        self.counts.add(part, played, outcomes, self.survey.file_class[file])

    def _added(self, ops: npt.NDArray[np.void]) -> Pieces:
        """Opens or closes that the trace does not have."""
        for begin in range(0, len(ops), BLOCK):
            part = ops[begin : begin + BLOCK]
            outcomes = np.zeros(len(part), dtype=OUTCOME)
            yield Chunk(part, outcomes=outcomes)
            self.counts.added += len(part)
            self.counts.added_failed += int((outcomes["result"] < 0).sum())

    def _reopened(self) -> npt.NDArray[np.void] | None:
        """Opens of the slots that are open when the window begins."""
        if not self.survey.first:
            return None
        opened = self.state.opened
        slots = np.flatnonzero(opened != CLOSED)
        file = self.trace.slots[slots]
        slots = slots[self.possible[file] & self.survey.chosen[file]]
        if not len(slots):
            return None
        return self._opens(slots, opened[slots] & ~int(Flag.TRUNCATE | Flag.EXCLUSIVE))

    def _opens(self, slots: Integers, flags: Integers) -> npt.NDArray[np.void]:
        """Opens of slots by all threads; with twins, of these too."""
        ops = np.zeros(len(slots), dtype=OP)
        ops["kind"], ops["file"] = Kind.OPEN, slots
        ops["stream"] = np.arange(len(slots)) % self.place.threads
        direct = self.work.direct
        kept = flags if direct is None else flags & ~int(Flag.DIRECT)
        ops["flags"] = kept | (Flag.DIRECT if direct else 0)
        if not self.work.twins:
            return ops
        twins = ops.copy()
        twins["file"] += self.work.slots
        twins["flags"] &= ~np.uint8(Flag.DIRECT)
        return np.concatenate([ops, twins])

    # -- as fast as possible -------------------------------------------------------------------
    def queue(self) -> Pieces:
        """Reads and writes from a queue that all threads share, between opens and closes."""
        seen = self.survey
        used = np.flatnonzero(seen.data & self.possible)
        flags = np.where(seen.asked[used] > 0, 0, int(Flag.READ_ONLY))
        opens = self._opens(used, flags)
        yield from self._added(opens)
        blocks, rooms = self._blocks(), cycle([_Room(), _Room()])
        with prefetch(self.place) as helper:
            for each in helper.each(lambda: self._queued(blocks, rooms)):
                yield Chunk(each.played.ops, outcomes=each.outcomes, batch=BATCH)
                helper.soon(partial(self._became, each))
        closes = opens.copy()
        closes["kind"], closes["flags"] = Kind.CLOSE, 0
        yield from self._added(closes)

    def _queued(self, blocks: Iterator[Columns], rooms: Iterator[_Room]) -> _Queued | None:
        """The next block that has something to play, in the next of the `rooms`."""
        for block in blocks:
            part = self._part(block)
            if len(part["kind"]):
                room = next(rooms)
                file = self.trace.slots[part["slot"]]
                played = converted(part, self.work, file, room=room.ops)
                outcomes = room.outcomes[: len(played.ops)]
                outcomes.view(np.uint64).fill(0)  # it may not be played
                return _Queued(part, played, outcomes, self.survey.file_class[file])
        return None

    def _became(self, each: _Queued) -> None:
        self.counts.add(each.part, each.played, each.outcomes, each.file_class)

    def _blocks(self) -> Iterator[Columns]:
        """This rank's blocks: all; or those of its node, that its ranks take in turns."""
        trace, seen, place = self.trace, self.survey, self.place
        if self.work.private or place.ranks == 1:
            yield from trace.blocks(IN_QUEUE, seen.first, seen.stop)
            return
        assert place.turn is not None  # Stream.shared_queue
        while True:
            first = seen.first + (place.turn() * place.nodes + place.node) * TURN
            if first >= seen.stop:
                return
            yield from trace.blocks(IN_QUEUE, first, min(first + TURN, seen.stop))
