"""Operations of a trace as operations of the player, and what became of them.

Some cannot be played: each is counted, with the reason.  The others stand beside what became of
them when they were captured.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import DATA_KINDS, OP, Flag, Kind, Tallies
from fsmatrix.results.evidence.stored import JsonObject, inside
from fsmatrix.results.histogram import BINS, bin_of, dense
from fsmatrix.suite.workloads.streams.replay.survey import (
    ALIGNMENT,
    CLASSES,
    KINDS,
    LARGEST,
    MOST_OFFSET,
    MOST_TIME,
    OPENING,
    Integers,
    Mask,
    ReplayParams,
    is_data,
)
from fsmatrix.traces.trace_model import FLAGS, UNKNOWN, Columns

NOTHING_CAPTURED = -1  # source of an operation that was added

Chosen = slice | Integers | npt.NDArray[np.bool_]  # of the operations of a block
ERRNOS = 256  # numbers below it are counted by themselves, all others together as 0


class Skipped(enum.IntEnum):
    """Why an operation is not played."""

    MODE = 0  # a queue has reads and writes only
    DRIVER = 1  # it has no operation of that kind
    SIZE = 2  # larger, or further behind, than the player does
    NAME = 3  # a path that no file system takes


@dataclass(frozen=True)
class Played:
    """Operations to be played; `source` is the place of each in the block, or -1 if added."""

    ops: npt.NDArray[np.void]  # dtype OP
    source: Integers
    before: Integers  # bytes that were added in front of each (widened)
    buffered: int  # operations that go through the second handle
    widened: int


def skipped(
    block: Columns, work: ReplayParams, nameable: Mask, slots: npt.NDArray[np.uint32]
) -> Integers | None:
    """Why each operation is skipped, -1 if it is not; None: none of them is.

    `block`: of a queue without "slot2", which only a rename has.
    """
    kind = block["kind"]
    if (
        block["size"].max(initial=0) <= LARGEST
        and block["offset"].max(initial=0) <= MOST_OFFSET
        and nameable.all()
        and _among(kind, _played(work)).all()
    ):
        return None  # as it mostly is: far less to look at than one by one
    reason = np.full(len(kind), -1, np.int64)
    named = nameable[slots[block["slot"]]]
    if "slot2" in block:
        named &= (kind != Kind.RENAME) | nameable[slots[block["slot2"]]]
    data = is_data(kind)
    large = data & (block["size"] > LARGEST)
    far = (data | (kind == Kind.TRUNCATE)) & (block["offset"] > MOST_OFFSET)
    unable = ~_among(kind, work.able)
    for where, why in (
        (~named, Skipped.NAME),
        (large | far, Skipped.SIZE),
        (unable, Skipped.DRIVER),
        (~data if work.mode == "queue" else None, Skipped.MODE),
    ):
        if where is not None and where.any():
            reason[where] = why
    return reason


def _played(work: ReplayParams) -> tuple[int, ...]:
    """Kinds that are not skipped."""
    if work.mode != "queue":
        return work.able
    return tuple(kind for kind in work.able if kind in DATA_KINDS)


def converted(
    block: Columns,
    work: ReplayParams,
    slot: npt.NDArray[np.uint32],
    lane: Integers | int = 0,
    room: npt.NDArray[np.void] | None = None,
) -> Played:
    """Operations of the player; `slot`, `lane`: the player's, of each operation.

    `block`: of a queue, which has reads and writes only, without "slot2" and "flags".
    `room`: of a queue, zeros or what an earlier call made of it; the operations stand there.
    """
    kind = block["kind"]
    ops = np.zeros(len(kind), dtype=OP) if room is None else room[: len(kind)]
    ops["kind"], ops["file"] = kind, slot
    data = is_data(kind)
    if work.mode == "queue":  # whichever lane is free takes them
        ops["offset"], ops["size"] = block["offset"], block["size"]
    else:
        ops["stream"] = lane
        ops["file2"] = np.where(kind == Kind.RENAME, block["slot2"], 0)
        ops["offset"] = np.where(data | (kind == Kind.TRUNCATE), block["offset"], 0)
        ops["size"] = np.where(data, block["size"], 0)
        ops["flags"] = _flags(kind, block["flags"], work)
    source = np.arange(len(kind), dtype=np.int64)
    if not work.direct:
        return Played(ops, source, np.broadcast_to(np.int64(0), len(kind)), 0, 0)
    before = np.zeros(len(kind), np.int64)
    askew = data & ((ops["offset"] % ALIGNMENT != 0) | (ops["size"] % ALIGNMENT != 0))
    if work.widened:
        begin = ops["offset"][askew] // ALIGNMENT * ALIGNMENT
        end = ops["offset"][askew] + ops["size"][askew]
        before[askew] = (ops["offset"][askew] - begin).astype(np.int64)
        ops["offset"][askew] = begin
        ops["size"][askew] = -(-end.astype(np.int64) // ALIGNMENT) * ALIGNMENT - begin.astype(
            np.int64
        )
        return Played(ops, source, before, 0, int(askew.sum()))
    ops["file"][askew] += work.slots
    return _twinned(ops, source, before, work, int(askew.sum()))


def _flags(
    kind: npt.NDArray[np.uint8], flags: npt.NDArray[np.uint8], work: ReplayParams
) -> npt.NDArray[np.uint8]:
    """Those that a kind has; O_DIRECT as the replay has it."""
    opens = _among(kind, OPENING)
    taken = np.where(opens, flags & (FLAGS & ~Flag.VERIFY), 0)
    taken |= np.where(kind == Kind.FSYNC, flags & Flag.DATA_ONLY, 0)
    if work.direct is not None:
        taken &= ~np.uint8(Flag.DIRECT)
    if work.direct:
        taken |= np.where(opens, np.uint8(Flag.DIRECT), np.uint8(0))
    return taken.astype(np.uint8)


def _twinned(
    ops: npt.NDArray[np.void], source: Integers, before: Integers, work: ReplayParams, buffered: int
) -> Played:
    """Each open and close followed by that of a handle without O_DIRECT."""
    handles = np.isin(ops["kind"], (*OPENING, int(Kind.CLOSE)))
    count = np.where(handles, 2, 1)
    place = np.repeat(np.arange(len(ops)), count)
    second = np.zeros(len(place), np.bool_)
    second[1:] = place[1:] == place[:-1]
    more = ops[place]
    opens = second & np.isin(more["kind"], OPENING)
    more["kind"][opens] = Kind.OPEN
    more["flags"][opens] &= ~np.uint8(Flag.DIRECT | Flag.TRUNCATE | Flag.EXCLUSIVE)
    more["file"][second] += work.slots
    return Played(
        more, np.where(second, NOTHING_CAPTURED, source[place]), before[place], buffered, 0
    )


def times(
    block: Columns, work: ReplayParams, begin_ns: int, lead_ns: int
) -> npt.NDArray[np.uint64]:
    """Issue times of a timed replay, ns after the start of the phase, never 0."""
    after = (block["time"] - np.uint64(begin_ns)).astype(np.float64) * work.time_scale
    limited: npt.NDArray[np.uint64] = np.minimum(after + lead_ns, MOST_TIME).astype(np.uint64)
    return limited


class Pauses:
    """Think times: from the end of an operation to the next one of its lane, as captured."""

    def __init__(self, work: ReplayParams, lanes: int, begin_ns: int) -> None:
        self._scale = work.time_scale
        self._end = np.full(lanes, begin_ns, np.int64)  # of the last operation of each lane

    def of(self, block: Columns, lane: Integers) -> npt.NDArray[np.uint64]:
        """ns before each operation."""
        order = np.argsort(lane, kind="stable")
        begin = block["time"].astype(np.int64)[order]
        end = begin + np.maximum(block["latency"][order], 0)
        own = lane[order]
        before = np.empty_like(begin)
        before[1:] = end[:-1]
        first = np.ones(len(own), np.bool_)
        first[1:] = own[1:] != own[:-1]
        before[first] = self._end[own[first]]
        last = np.ones(len(own), np.bool_)
        last[:-1] = first[1:]
        self._end[own[last]] = end[last]
        pause = np.empty(len(own), np.float64)
        pause[order] = np.maximum(begin - before, 0) * self._scale
        limited: npt.NDArray[np.uint64] = np.minimum(pause, MOST_TIME).astype(np.uint64)
        return limited


def _among(kind: npt.NDArray[np.uint8], kinds: Sequence[int]) -> Mask:
    """Which operations are of one of `kinds`; np.isin takes four times as long."""
    table = np.zeros(KINDS, np.bool_)
    table[list(kinds)] = True
    among: Mask = table[kind]
    return among


def _by_kind() -> Integers:
    return np.zeros(KINDS, np.int64)


class Counts:
    """Tallies of one rank, or of all; names and shapes are those of the phase's facts."""

    def __init__(self, timed: bool = False) -> None:
        """`timed`: operations have issue times; else a time is a pause."""
        self._timed = timed
        self.played = _by_kind()
        self.agreed = _by_kind()  # the captured outcome
        self.failed_as_captured = _by_kind()
        self.failed_otherwise = _by_kind()  # another errno, or it had succeeded
        self.succeeded_otherwise = _by_kind()  # it had failed
        self.other_bytes = _by_kind()  # succeeded both times, with other bytes moved
        self.short = _by_kind()  # fewer bytes than asked for
        self.skipped = np.zeros((len(Skipped), KINDS), np.int64)
        self.errno = np.zeros((2, ERRNOS), np.int64)  # as captured, otherwise
        self.bytes = _by_kind()
        self.ns = _by_kind()
        self.class_operations = np.zeros(CLASSES + 1, np.int64)
        self.class_bytes = np.zeros(CLASSES + 1, np.int64)
        self.class_ns = np.zeros(CLASSES + 1, np.int64)
        self.issue_error = np.zeros(BINS, np.int64)
        self.issue_error_ns = 0
        self.issue_error_ns_max = 0
        self.added = 0  # opens and closes that the trace does not have
        self.added_failed = 0
        self.widened = 0
        self.buffered = 0
        self.barriers = 0
        self.threads = 0  # of the trace
        self.sharing = 0  # threads that share a lane with another of their time

    @classmethod
    def of(cls, tallies: JsonObject) -> Counts:
        """Those of all ranks, from the tallies of a phase's facts."""
        counts = cls()
        for name, own in list(vars(counts).items()):
            if isinstance(own, np.ndarray):
                setattr(counts, name, dense(inside(tallies[name])).reshape(own.shape))
            elif not name.startswith("_"):
                setattr(counts, name, tallies[name])
        return counts

    def tallies(self) -> Tallies:
        """As a generator returns them: tables row by row."""
        return {
            name: value.ravel() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if not name.startswith("_")
        }

    def skip(self, kind: npt.NDArray[np.uint8], reason: Integers) -> None:
        """Count what is not played."""
        np.add.at(self.skipped, (reason, kind), 1)

    def add(
        self,
        block: Columns,
        played: Played,
        outcomes: npt.NDArray[np.void],
        file_class: npt.NDArray[np.uint8],
    ) -> None:
        """Count what was played of a block; `file_class`: of each of the block's operations."""
        ran = outcomes["start"] > 0
        own: Chosen = slice(None)  # as it mostly is: all ran and nothing was added
        source: Chosen = own
        if len(played.ops) != len(block["kind"]) or not ran.all():
            own = ran & (played.source >= 0)
            added = ran & (played.source < 0)
            self.added += int(added.sum())
            self.added_failed += int((added & (outcomes["result"] < 0)).sum())
            source = played.source[own]
        self.widened += played.widened
        self.buffered += played.buffered
        kind = block["kind"][source]
        result, size = _result(block, played, outcomes, own, source)
        data = is_data(kind)
        as_captured = self._compare(kind, data, result, block["result"][source], size)
        came = result if as_captured else np.where(data, np.maximum(result, 0), 0)
        self._sum(kind, file_class[source], came, outcomes["duration"][own])
        if self._timed:
            self._issue(played.ops["time"][own], outcomes["start"][own])

    def _sum(
        self,
        kind: npt.NDArray[np.uint8],
        file_class: npt.NDArray[np.uint8],
        came: Integers,
        ns: npt.NDArray[np.uint64],
    ) -> None:
        """Operations, bytes and ns by kind and by class of files."""
        if not len(kind):
            return
        shape = (CLASSES + 1, KINDS)
        operations, moved, took = np.zeros((3, *shape), np.int64)
        if kind.min() == kind.max() and file_class.min() == file_class.max():
            place = file_class[0], kind[0]  # as in long runs of reads: sums are much faster
            operations[place], moved[place], took[place] = len(kind), came.sum(), ns.sum()
        else:
            both = file_class.astype(np.intp) * KINDS + kind
            # a block's sums are far below 2^53, where a float64 stops to be exact
            operations, moved, took = (
                np.bincount(both, weights, operations.size).astype(np.int64).reshape(shape)
                for weights in (None, came, ns)
            )
        self.played += operations.sum(axis=0)
        self.bytes += moved.sum(axis=0)
        self.ns += took.sum(axis=0)
        self.class_operations += operations.sum(axis=1)
        self.class_bytes += moved.sum(axis=1)
        self.class_ns += took.sum(axis=1)

    def _compare(
        self,
        kind: npt.NDArray[np.uint8],
        data: npt.NDArray[np.bool_],
        result: Integers,
        captured: Integers,
        size: Integers,
    ) -> bool:
        """Outcomes beside those captured; only what is not plainly the same is looked at twice.

        True: all are reads and writes that moved what they asked for, then and now.
        """
        plain = (result == captured) & (result == size) & data
        if plain.all():
            self.agreed += np.bincount(kind, minlength=KINDS)
            return True
        self.agreed += np.bincount(kind[plain], minlength=KINDS)
        rest = np.flatnonzero(~plain)
        kind, result, captured, size = kind[rest], result[rest], captured[rest], size[rest]
        data = is_data(kind)
        failed = result < 0
        unknown = captured == UNKNOWN
        had_failed = (captured < 0) & ~unknown
        same = np.where(data | failed | had_failed, result == captured, True)
        agreed = np.where(unknown, ~failed, same)
        for total, mask in (
            (self.agreed, agreed),
            (self.failed_as_captured, failed & agreed),
            (self.failed_otherwise, failed & ~agreed),
            (self.succeeded_otherwise, ~failed & had_failed),
            (self.other_bytes, ~failed & ~had_failed & ~agreed),
            (self.short, data & ~failed & (result < size)),
        ):
            total += np.bincount(kind[mask], minlength=KINDS)
        number = np.where(-result < ERRNOS, -result, 0)
        for row, mask in zip(self.errno, (failed & agreed, failed & ~agreed), strict=True):
            row += np.bincount(number[mask], minlength=ERRNOS)
        return False

    def _issue(self, intended: npt.NDArray[np.uint64], start: npt.NDArray[np.uint64]) -> None:
        """How late operations with a time were issued."""
        timed = intended > 0
        if not timed.any():
            return
        late = np.maximum(start[timed].astype(np.int64) - intended[timed].astype(np.int64), 0)
        self.issue_error += np.bincount(bin_of(late), minlength=BINS)
        self.issue_error_ns += int(late.sum())
        self.issue_error_ns_max = max(self.issue_error_ns_max, int(late.max()))


def _result(
    block: Columns,
    played: Played,
    outcomes: npt.NDArray[np.void],
    own: Chosen,
    source: Chosen,
) -> tuple[Integers, Integers]:
    """Results as the captured operation would have had them, and the bytes it asked for."""
    result: Integers = outcomes["result"][own].copy()
    size = block["size"][source].astype(np.int64)
    data = is_data(block["kind"][source])
    if not data.all():
        size[~data] = 0
    if played.widened:
        moved = result >= 0
        inside = np.clip(result - played.before[own], 0, size)
        result = np.where(moved, inside, result)
    return result, size


def kinds() -> tuple[str, ...]:
    """Names of the kinds, in the order of the tallies."""
    return tuple(kind.name.lower() for kind in Kind)
