"""From operations of a trace to operations of the player, and why some cannot be played."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import DATA_KINDS, OP, Flag, Kind
from fsmatrix.suite.workloads.streams.replay.survey import (
    ALIGNMENT,
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
from fsmatrix.traces.model import FLAGS, Columns

NOTHING_CAPTURED = -1  # source of an operation that was added


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
