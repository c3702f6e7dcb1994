"""blktrace's events as blkparse prints them: one file for each device, named by its numbers.

An operation's issue is D (given to the driver), or Q (queued) in a text that has no D, as those
of devices made of other devices; its end is C (completed).  A sector has 512 bytes whatever the
device's own have.  The text has no opens: each device is opened before its first operation and
closed after the last, which the header's facts say.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.importing.importer import (
    Files,
    Handle,
    Importer,
    Lines,
    Malformed,
    Unseen,
    extent,
    number,
    shown_word,
    single,
)
from fsmatrix.traces.trace_model import (
    MOST_OFFSET,
    NOT_CAPTURED,
    UNKNOWN,
    Header,
    Operation,
    Thread,
    TraceError,
)
from fsmatrix.traces.tracefile import TraceWriter

# Lines of blkparse in its default format: `DEVICE CPU SEQUENCE TIME PROCESS ACTION RWBS ...`.


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
        raise Malformed(f"the time {shown_word(words[3])} is not SECONDS.NANOSECONDS")
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


SECTOR = 512  # bytes
MOST_HELD = 1 << 16  # operations that wait for the end of one before them
MOST_THREADS = 1 << 22  # as many processes as Linux has
MOST_DEVICES = 1 << 12


@dataclass(slots=True)
class Held:
    """An operation that is begun, or that waits for one before it."""

    event: Event
    kind: Kind
    left: int  # sectors that are not completed
    next: int  # the first of them
    latency: int = NOT_CAPTURED
    result: int = UNKNOWN
    done: bool = False
    again: bool = False  # requeued: it will be issued again


class Blkparse(Importer):
    """One text of blkparse, which may be of several devices."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        return is_event(head.partition(b"\n")[0])

    def read(self, inputs: Sequence[Path], writer: TraceWriter, roots: Sequence[Path]) -> Header:
        path = single(inputs, "blkparse itself merges devices")
        if roots:
            raise TraceError(path, "events of devices have no paths: --root cannot be used")
        issue = _issue(path)
        text, reading = Lines(path), _Reading(writer)
        for event in events(text, issue, reading.unseen):
            try:
                reading.do(event)
            except Malformed as error:
                raise text.wrong(error) from error
        reading.end()
        return Header(
            source="blktrace",
            unseen=dict(reading.unseen),
            facts={
                "issue": issue.decode(),
                "opened_by_import": len(reading.handles),
                "closed_without_a_call": len(reading.handles),
                "not_completed": reading.not_completed,
            },
        )


def _issue(path: Path) -> bytes:
    """The action that an operation begins with in this text."""
    driver, queued = ISSUES
    given = events(Lines(path), driver, Unseen())
    return driver if any(event.action == driver for event in given) else queued


class _Reading:
    """Puts begins and ends together; operations are written in the order of their begins."""

    def __init__(self, writer: TraceWriter) -> None:
        self.unseen = Unseen()
        self.handles: dict[bytes, Handle] = {}  # device ->
        self.not_completed = 0
        self._writer, self._files = writer, Files(writer)
        self._held: deque[Held] = deque()
        self._begun: dict[tuple[bytes, Kind, int], Held] = {}  # (device, kind, next sector)
        self._processes: dict[int, int] = {}  # -> thread of the trace
        self._begin = 0
        self._last = 0

    def do(self, event: Event) -> None:
        """One event.  Malformed for what cannot be."""
        issued = event.action in ISSUES
        kind = self._kind(event, issued)
        if kind is None:
            return
        if issued:
            self._issued(event, kind)
        elif (held := self._begun.pop((event.device, kind, event.sector), None)) is not None:
            self._ended(event, held)
        elif event.action == b"C":
            self.unseen.add("completed without a begin")
        while self._held and (self._held[0].done or len(self._held) > MOST_HELD):
            self._write(self._held.popleft())

    def end(self) -> None:
        """No more events: what has no end stays without; the devices are closed."""
        while self._held:
            self._write(self._held.popleft())
        for handle in self.handles.values():
            self._writer.add(Operation(Kind.CLOSE, handle.slot), self._last)
        self._files.end()

    def _kind(self, event: Event, count: bool) -> Kind | None:
        """What an event is of; None for what no trace has, which is counted."""
        rwbs = event.rwbs
        flush, what = rwbs[:1] == b"F", rwbs.removeprefix(b"F")[:1]
        if flush and not event.sectors:
            return Kind.FSYNC
        if what in (b"R", b"W") and event.sectors:
            if count and flush:
                self.unseen.add("flush before a write")
            if count and b"F" in rwbs[1:]:
                self.unseen.add("forced unit access")
            return Kind.READ if what == b"R" else Kind.WRITE
        if count:
            self.unseen.add("discard" if what == b"D" else "neither read nor write")
        return None

    def _issued(self, event: Event, kind: Kind) -> None:
        extent(event.sector * SECTOR, event.sectors * SECTOR)
        if event.device not in self.handles and len(self.handles) >= MOST_DEVICES:
            raise Malformed(f"more than {MOST_DEVICES} devices")
        if event.process not in self._processes and len(self._processes) >= MOST_THREADS:
            raise Malformed(f"more than {MOST_THREADS} processes")
        held = Held(event, kind, event.sectors, event.sector)
        key = (event.device, kind, event.sector)
        if (before := self._begun.get(key)) is not None:
            before.done = True  # its end cannot be told from the new one's
        self._begun[key] = held
        self._held.append(held)

    def _ended(self, event: Event, held: Held) -> None:
        """A completion, perhaps of a part, or a requeue."""
        held.left -= event.sectors
        held.next += event.sectors
        if event.action == b"R":
            held.again = held.done = True
        elif event.error or held.left <= 0:
            size = held.event.sectors * SECTOR
            held.result = -event.error if event.error else size
            held.latency = event.time - held.event.time
            held.done = True
        else:
            self._begun[(event.device, held.kind, held.next)] = held

    def _write(self, held: Held) -> None:
        """The next operation of the trace."""
        event, kind = held.event, held.kind
        key = (event.device, kind, held.next)
        if self._begun.get(key) is held:
            del self._begun[key]
        if held.again:
            return
        self.not_completed += int(held.result == UNKNOWN)
        thread = self._processes.get(event.process)
        if thread is None:
            thread = self._writer.thread(Thread(process=event.process, thread=event.process))
            self._processes[event.process] = thread
        handle = self._open(event, thread)
        offset, size = event.sector * SECTOR, event.sectors * SECTOR
        if kind == Kind.READ:
            handle.node.read(offset + size)
        elif kind == Kind.WRITE:
            handle.node.written(offset + size)
        self._last = event.time - self._begin
        self._writer.add(
            Operation(kind, handle.slot, offset=offset if size else 0, size=size),
            self._last,
            thread=thread,
            latency=held.latency,
            result=held.result,
        )

    def _open(self, event: Event, thread: int) -> Handle:
        """The open device."""
        if (handle := self.handles.get(event.device)) is None:
            if not self.handles:
                self._begin = event.time
            self._files.use(event.device)
            handle = self.handles[event.device] = self._files.opened(event.device)
            operation = Operation(Kind.OPEN, handle.slot)
            self._writer.add(operation, event.time - self._begin, thread=thread)
        return handle
