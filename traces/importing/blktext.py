"""Lines of blkparse in its default format: `DEVICE CPU SEQUENCE TIME PROCESS ACTION RWBS ...`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fsmatrix.traces.importing.base import Lines, Malformed, Unseen, number, shown
from fsmatrix.traces.model import MOST_OFFSET

SECOND = 10**9  # ns
DEVICE = re.compile(rb"\d{1,10},\d{1,10}")
SUMMARY = re.compile(rb"(?:CPU\d+|Total) \(|Input file |Throughput \(")
ERROR = re.compile(rb"\[(-?\d{1,5})\]")
NEGATIVE = 1 << 15  # errors from here on are negative numbers of 16 bits
ISSUES = (b"D", b"Q")
ENDS = frozenset({b"C", b"R"})
STEPS = frozenset(b"A B C D F G I M P Q R S T U UT X m".split())  # of one operation's way


class Event(NamedTuple):
    """A line that begins or ends an operation."""

    device: bytes
    time: int  # ns
    process: int
    action: bytes
    rwbs: bytes
    sector: int
    sectors: int
    error: int  # of a completion: 0 or an errno


def is_event(line: bytes) -> bool:
    """Whether a line is of blkparse's default format."""
    words = line.split(None, 7)
    return (
        len(words) >= 7
        and DEVICE.fullmatch(words[0]) is not None
        and words[1].isdigit()
        and re.fullmatch(rb"\d+\.\d{9}", words[3]) is not None
    )


def events(text: Lines, issue: bytes, unseen: Unseen) -> Iterator[Event]:
    """What begins (`issue`) and ends operations, until blkparse's own summary.

    `unseen`: takes unknown actions.  TraceError with the line.
    """
    before = 0
    wanted = ENDS | {issue}
    for line in text:
        words = line.split(None, 7)
        if len(words) < 7 or not DEVICE.fullmatch(words[0]):
            if not words:
                continue
            if SUMMARY.match(line):
                return
            raise text.wrong(
                "no event in blkparse's default format, "
                "'DEVICE CPU SEQUENCE TIME PROCESS ACTION RWBS ...'"
            )
        if words[5] in wanted:
            try:
                event = _event(words)
                if event.time < before:
                    raise Malformed("its time is before that of the event before it")
            except Malformed as error:
                raise text.wrong(error) from error
            before = event.time
            yield event
        elif words[5] not in STEPS:
            unseen.add(f"action {words[5][:8].decode('latin-1')}")


def _event(words: Sequence[bytes]) -> Event:
    seconds, _, fraction = words[3].partition(b".")
    if len(fraction) != 9:
        raise Malformed(f"the time {shown(words[3])} is not SECONDS.NANOSECONDS")
    time = number(seconds, "the time") * SECOND + number(fraction, "the time")
    if time >= MOST_OFFSET:
        raise Malformed("its time is not below 2^63 ns")
    sector = sectors = 0
    rest = words[7].split() if len(words) > 7 else []
    if rest and rest[0].isdigit():
        sector = number(rest[0], "the sector")
        if len(rest) > 2 and rest[1] == b"+":
            sectors = number(rest[2], "the sectors")
    error = _errno(rest[-1]) if rest and words[5] == b"C" else 0
    process = number(words[4], "the process")
    return Event(words[0], time, process, words[5], words[6], sector, sectors, error)


def _errno(word: bytes) -> int:
    """`[ERROR]` of a completion: the kernel puts -errno into 16 bits."""
    match = ERROR.fullmatch(word)
    if match is None:
        return 0
    value = int(match[1])
    return min(2 * NEGATIVE - value if value >= NEGATIVE else abs(value), 4095)
