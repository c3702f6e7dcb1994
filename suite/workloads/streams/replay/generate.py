"""The generator of a replay: a rank's part of a trace as chunks, and what became of it."""

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
from fsmatrix.suite.workloads.streams.ahead import prefetch
from fsmatrix.suite.workloads.streams.replay.converting import (
    Pauses,
    Played,
    converted,
    skipped,
    times,
)
from fsmatrix.suite.workloads.streams.replay.dependencies import Groups, Resources, cuts
from fsmatrix.suite.workloads.streams.replay.outcomes import Counts
from fsmatrix.suite.workloads.streams.replay.survey import (
    Integers,
    Mask,
    ReplayParams,
    Survey,
    opened_trace,
    selected,
    work_of,
)
from fsmatrix.suite.workloads.streams.replay.tree import CLOSED, State, prepared
from fsmatrix.traces.model import BLOCK, Columns, Operations

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
