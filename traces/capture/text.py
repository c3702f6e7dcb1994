"""The lines of strace: which process did what, when, and what came of it.

A call that strace interrupts for another process stands in two lines; both come as events, so
that what happened between them stays in order.  Nothing of a line is believed: what has not the
form is a Malformed, and no line takes longer than its length.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fsmatrix.results.evidence.values import JsonObject

MOST_LINE = 1 << 20  # bytes; the longest name has 4095, of at most 4 characters each
DAY = 86400 * 10**9  # ns
NO_EPOCH = 10**8  # s; smaller times of the form of -ttt are those of -r
HEADER = b"# fsmatrix "  # our own first line: JSON

_START = re.compile(
    rb"(?:\[pid\s+(\d{1,10})\]\s+|(\d{1,10})\s+)?"
    rb"(?:(\d{1,10})\.(\d{1,9})\s+|(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s+)?"
)
_TAIL = re.compile(
    rb"(-?\d{1,20}|0x[0-9a-f]{1,16}|\?)(?:<[^>]*>)?(?: ([A-Z][A-Z0-9_]*))?(?: \(.*\))?"
    rb"(?: <(\d{1,10})\.(\d{1,9})>)?\s*"
)
_NAME = re.compile(rb"[a-z_]\w*")
_RESUMED = re.compile(rb"<\.\.\. (?:(\S+) )?resumed> ?")
_SUPERSEDED = re.compile(rb"\+\+\+ superseded by execve in pid (\d{1,10}) \+\+\+")
_UNFINISHED = b"<unfinished ...>"
_SUFFIX = re.compile(r"\.(\d{1,10})$")  # of the files of -ff
_TRIES = 8  # " = " in the path that strace -y writes behind a result


class Malformed(ValueError):
    """A line, or what it says, cannot be."""


class What(enum.IntEnum):
    """What an event is."""

    WHOLE = 0  # a call, begun and ended
    BEGUN = 1
    ENDED = 2
    EXIT = 3  # the process or thread is gone
    SUPERSEDED = 4  # its other thread, `result`, goes on under its id


@dataclass(slots=True)
class Call:
    """A system call, or the end of a process."""

    task: int
    name: str = ""
    arguments: bytes = b""
    time: int = 0  # of the issue, ns since whatever the text counts from
    result: int | None = None  # None: not written down
    error: str = ""  # "ENOENT"
    latency: int = -1  # ns
    line: int = 0


Event = tuple[int, What, Call]  # the time of the line, ns


class Text:
    """One text of strace."""

    def __init__(self, path: Path, space: int = 0, lenient: bool = False) -> None:
        """`space`: a number for its process ids; `lenient`: count malformed lines only."""
        self.path = path
        self.line = 0
        self.malformed = 0
        self.timed: bool | None = None  # None: no call yet
        self.begun_before = 0  # calls that were under way when strace came
        self.header: JsonObject = {}
        self._lenient = lenient
        self.space = space
        self._alone = 0  # the id of its only task, if it is a text of strace -ff
        self._open: dict[int, Call] = {}
        self._day = 0
        self._last = 0

    def read_header(self) -> None:
        """The first line, if it is ours, and whose text it is.  Malformed, OSError."""
        with self.path.open("rb") as file:
            line = first = file.readline(MOST_LINE)
            if first.startswith(HEADER):
                line = file.readline(MOST_LINE)
        start, suffix = _START.match(line), _SUFFIX.search(self.path.name)
        if start is not None and not (start[1] or start[2]) and suffix is not None:
            self._alone, self.space = int(suffix[1]), 0  # of one strace, as all others of -ff
        if not first.startswith(HEADER):
            return
        try:
            header = json.loads(first[len(HEADER) :])
        except (ValueError, RecursionError) as error:
            raise Malformed(f"cannot be understood: {error}") from error
        if not isinstance(header, dict):
            raise Malformed("cannot be understood: no JSON object")
        self.header = header

    def events(self) -> Iterator[Event]:
        """What happened, line by line.  Malformed (see `line`), OSError."""
        with self.path.open("rb") as file:
            for line in self._lines(file):
                try:
                    yield from self._event(line)
                except Malformed:
                    if not self._lenient:
                        raise
                    self.malformed += 1
        for call in [*self._open.values()]:
            yield self._last, What.ENDED, call
        self._open.clear()

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        while line := file.readline(MOST_LINE):
            self.line += 1
            if len(line) == MOST_LINE and not line.endswith(b"\n"):
                while rest := file.readline(MOST_LINE):
                    if rest.endswith(b"\n"):
                        break
                line = b"\0"
            yield line

    def _event(self, line: bytes) -> Iterator[Event]:
        line = line.rstrip()
        if not line or line.startswith((b"strace:", b"#", b"[ Process PID=")):
            return
        if line == b"\0":
            raise Malformed(f"longer than {MOST_LINE} bytes")
        start = _START.match(line)
        assert start is not None  # all of it is optional
        pid = start[1] or start[2]
        task = self.space << 40 | (int(pid) if pid else self._alone)
        body = line[start.end() :]
        time = self._time(start)
        if body.startswith(b"---") and body.endswith(b"---"):
            return
        if body.startswith(b"+++") and body.endswith(b"+++"):
            yield from self._gone(task, time, body)
        elif resumed := _RESUMED.match(body):
            yield from self._resumed(task, time, body[resumed.end() :], resumed[1] or b"")
        else:
            if task in self._open:
                yield from self._lost(task, time)
            yield self._call(task, time, body)

    # -- times -----------------------------------------------------------------------------
    def _time(self, start: re.Match[bytes]) -> int:
        seconds, fraction, hour, minute, second, part = start.group(3, 4, 5, 6, 7, 8)
        if self.timed is None:
            self.timed = seconds is not None or hour is not None
        elif self.timed != (seconds is not None or hour is not None):
            raise Malformed("some lines have a time and some have none")
        if not self.timed:
            time = self.line
        elif seconds is not None:
            if int(seconds) < NO_EPOCH:
                raise Malformed(
                    f"the time {seconds.decode()}.{fraction.decode()} is not a time of the clock "
                    "(strace -r?); use -ttt or --absolute-timestamps=format:unix,precision:ns"
                )
            time = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
            if time >= 1 << 63:
                raise Malformed(f"a time of {time} ns: 2^63 or more")
        else:
            clock = (int(hour) * 60 + int(minute)) * 60 + int(second)
            time = self._day + clock * 10**9 + int((part or b"").ljust(9, b"0"))
            if time < self._last - DAY // 2:
                self._day += DAY
                time += DAY
        self._last = time
        return time

    # -- lines -----------------------------------------------------------------------------
    def _call(self, task: int, time: int, body: bytes) -> Event:
        if body.endswith(_UNFINISHED):
            name, arguments = _parts(body[: -len(_UNFINISHED)].rstrip())
            call = Call(task, name, arguments, time, line=self.line)
            self._open[task] = call
            return time, What.BEGUN, call
        left, tail = _ended(body)
        call = Call(task, *_parts(left[:-1]), time, line=self.line)
        _result(call, tail)
        return time, What.WHOLE, call

    def _lost(self, task: int, time: int) -> Iterator[Event]:
        """A call begins before another one of the same task has ended."""
        reason = f"a call begins before {self._open[task].name} has ended"
        if not self._lenient:
            raise Malformed(reason)
        self.malformed += 1
        yield time, What.ENDED, self._open.pop(task)

    def _resumed(self, task: int, time: int, rest: bytes, name: bytes) -> Iterator[Event]:
        call = self._open.get(task)
        if call is None:
            self.begun_before += 1
            return
        if name not in (call.name.encode(), b"???", b""):
            raise Malformed(f"{name.decode('ascii', 'replace')} ends, but {call.name} had begun")
        if rest.endswith(_UNFINISHED):  # interrupted once more, before its result
            return
        left, tail = _ended(rest.replace(_UNFINISHED, b"", 1))
        del self._open[task]
        call.arguments += left[:-1]
        _result(call, tail)
        yield time, What.ENDED, call

    def _gone(self, task: int, time: int, body: bytes) -> Iterator[Event]:
        if other := _SUPERSEDED.match(body):
            goes_on = self.space << 40 | int(other[1])
            yield time, What.SUPERSEDED, Call(task, time=time, result=goes_on, line=self.line)
            if (call := self._open.pop(goes_on, None)) is not None:
                call.task = task
                self._open[task] = call
            return
        if (call := self._open.pop(task, None)) is not None:
            yield time, What.ENDED, call  # it died in the call
        yield time, What.EXIT, Call(task, time=time, line=self.line)


def _ended(body: bytes) -> tuple[bytes, re.Match[bytes]]:
    """What stands before the result, with its bracket, and the result."""
    end = len(body)
    for _ in range(_TRIES):
        end = body.rfind(b"= ", 0, end)
        if end < 0:
            break
        tail = _TAIL.fullmatch(body, end + 2)
        left = body[:end].rstrip()
        if tail is not None and left.endswith(b")"):
            return left, tail
    raise Malformed(f"no call of strace: {shortened(body)}")


def _parts(text: bytes) -> tuple[str, bytes]:
    name, bracket, arguments = text.partition(b"(")
    if not bracket or not _NAME.fullmatch(name):
        raise Malformed(f"no call of strace: {shortened(text)}")
    return name.decode("ascii"), arguments


def _result(call: Call, tail: re.Match[bytes]) -> None:
    value, error, seconds, fraction = tail.group(1, 2, 3, 4)
    if value != b"?":
        call.result = int(value, 16) if value.startswith(b"0x") else int(value)
        if call.result >= 1 << 63 and not value.startswith(b"0x"):
            raise Malformed(f"a result of {call.result}")
    if error:
        call.error = error.decode("ascii")
    if seconds is not None:
        call.latency = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
        if call.latency >= 1 << 63:
            raise Malformed(f"it took {call.latency} ns: 2^63 or more")


def shortened(text: bytes) -> str:
    """A part of a line for a message, in quotes."""
    words = text.decode("utf-8", "backslashreplace")
    return repr(words if len(words) <= 80 else words[:77] + "...")
