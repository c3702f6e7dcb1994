"""The lines of strace: which process did what, when, and what came of it.

A call that strace interrupts for another process stands in two lines; both come as events, so
that what happened between them stays in order.  On a terminal a line may also be cut by a message
of strace or by what the program writes; its parts are put together.  Nothing of a line is believed:
what has not the form is counted, and no line takes longer than its length.
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
from fsmatrix.traces.capture.stamps import START, Malformed, Stamps, Tasks

MOST_LINE = 1 << 20  # bytes; the longest name has 4095, of at most 4 characters each
MOST_PART = 1 << 16  # bytes of a line that was cut
MASK = (1 << 40) - 1  # of a task: its id; above: whose ids these are
HEADER = b"# fsmatrix "  # our own first line: JSON
PLACE = rb"<(?:->|<[^<>]*>|[^<>])*>(?:\(deleted\))?"  # behind a descriptor: -y, -yy
_BODY = re.compile(rb"[a-z_]\w*\(|<\.\.\. |\+\+\+ .*\+\+\+$|--- .*---$", re.DOTALL)
_TAIL = re.compile(
    rb"(-?\d{1,20}|0x[0-9a-f]{1,16}|\?)(" + PLACE + rb")?(?: ([A-Z][A-Z0-9_]*))?(?: \(.*\))?"
    rb"(?: <(\d{1,10})(?:\.(\d{1,9}))?>)?\s*"
)
_MESSAGE = re.compile(
    rb"(?:strace: )?Process (\d{1,10}) (attached|detached|suspended|resumed)"
    rb"(?: \([^()]*\)| with \d+ threads)?$"
)
_GOES_ON = re.compile(rb"[),}\]]| = | <unfinished")  # the rest of a line that was cut
_STACK = b" > "  # lines of -k
_NAME = re.compile(rb"[a-z_]\w*")
_RESUMED = re.compile(rb"<\.\.\. (?:(\S+) )?resumed> ?")
_SUPERSEDED = re.compile(rb"\+\+\+ superseded by execve in pid (\d{1,10}) \+\+\+")
_UNFINISHED = b"<unfinished ...>"
_SUFFIX = re.compile(r"\.(\d{1,10})$")  # of the files of -ff
_TRIES = 8  # " = " in the path that strace -y writes behind a result


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
    place: bytes = b""  # behind the result, as strace -y writes it


Event = tuple[int, What, Call]  # the time of the line, ns
Ended = tuple[bytes, re.Match[bytes]]  # what stands before a result, and the result


class Text:
    """One text of strace."""

    def __init__(self, path: Path, space: int = 0) -> None:
        """`space`: a number for its process ids."""
        self.path = path
        self.line = 0
        self.malformed = 0
        self.first_malformed = ""  # which line, and why
        self.begun_before = 0  # calls that were under way when strace came
        self.header: JsonObject = {}
        self.space = space
        self.stamps = Stamps()
        self._tasks = Tasks()
        self._open: dict[int, Call] = {}
        self._part = b""  # of a line that was cut

    def read_header(self) -> None:
        """The first line, if it is ours, and whose text it is.  Malformed, OSError."""
        with self.path.open("rb") as file:
            line = first = file.readline(MOST_LINE)
            if first.startswith(HEADER):
                line = file.readline(MOST_LINE)
        start, suffix = START.match(line), _SUFFIX.search(self.path.name)
        if start is not None and not (start[1] or start[2]) and suffix is not None:
            self._tasks.alone, self.space = int(suffix[1]), 0  # of one strace, as all others of -ff
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
        """What happened, line by line.  OtherFormError, OSError."""
        with self.path.open("rb") as file:
            for line in self._lines(file):
                try:
                    yield from self._event(line)
                except Malformed as error:
                    self.odd(error)
        self._no_rest()
        for call in [*self._open.values()]:
            yield self.stamps.last, What.ENDED, call
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

    def odd(self, reason: object, line: int = 0) -> None:
        """Count a line that cannot be; without `line` the last one."""
        self.malformed += 1
        self.first_malformed = self.first_malformed or f"line {line or self.line}: {reason}"

    def _event(self, line: bytes) -> Iterator[Event]:
        line = line.rstrip()
        if line == b"\0":
            raise Malformed(f"longer than {MOST_LINE} bytes")
        if b"Process " in line and (message := _MESSAGE.search(line)) is not None:
            if message[2] == b"attached":
                self._tasks.attached(int(message[1]))
            self._part = line[: message.start()] or self._part
            return
        if not line or line.startswith((b"strace:", b"#", b"[ Process PID=", _STACK)):
            return
        if (whole := self._whole(line)) is None:
            return
        start, body, ended = whole
        task = self.space << 40 | self._tasks.id(start)
        time = self.stamps.time(start, self.line)
        self.stamps.in_order(task, time, self.line)
        if body.startswith(b"---"):
            return
        if body.startswith(b"+++"):
            yield from self._gone(task, time, body)
        elif resumed := _RESUMED.match(body):
            yield from self._resumed(task, time, body[resumed.end() :], resumed[1] or b"")
        else:
            if task in self._open:
                yield self._lost(task, time)
            yield self._call(task, time, body, ended)

    def _whole(self, line: bytes) -> tuple[re.Match[bytes], bytes, Ended | None] | None:
        """Its beginning, what follows, the result of a call; None: a cut line, which is kept."""
        rest = bool(self._part) and _GOES_ON.match(line) is not None
        text = self._part + line if rest else line
        start = START.match(text)
        assert start is not None  # all of it is optional
        body = text[start.end() :]
        is_call = not body.startswith((b"<", b"+", b"-")) and not body.endswith(_UNFINISHED)
        ended = _ended(body) if is_call else None
        cut = is_call and ended is None
        if not _BODY.match(body) or (cut and (rest or len(line) > MOST_PART)):
            raise Malformed(f"no call of strace: {shortened(line)}")
        if not rest:
            self._no_rest()
        self._part = text if cut else b""
        return None if cut else (start, body, ended)

    def _no_rest(self) -> None:
        """What was kept of a line has no rest."""
        if self._part:
            self.odd(f"no call of strace: {shortened(self._part)}")
            self._part = b""

    # -- lines -----------------------------------------------------------------------------
    def _call(self, task: int, time: int, body: bytes, ended: Ended | None) -> Event:
        if ended is None:
            name, arguments = _parts(body[: -len(_UNFINISHED)].rstrip())
            call = Call(task, name, arguments, time, line=self.line)
            self._open[task] = call
            return time, What.BEGUN, call
        left, tail = ended
        call = Call(task, *_parts(left[:-1]), time, line=self.line)
        _result(call, tail)
        return time, What.WHOLE, call

    def _lost(self, task: int, time: int) -> Event:
        """A call begins before another one of the same task has ended."""
        self.odd(f"a call begins before {self._open[task].name} has ended")
        return time, What.ENDED, self._open.pop(task)

    def _resumed(self, task: int, time: int, rest: bytes, name: bytes) -> Iterator[Event]:
        call = self._open.get(task)
        if call is None:
            self.begun_before += 1
            return
        if name not in (call.name.encode(), b"???", b""):
            raise Malformed(f"{name.decode('ascii', 'replace')} ends, but {call.name} had begun")
        if rest.endswith(_UNFINISHED):  # interrupted once more, before its result
            return
        if (ended := _ended(rest.replace(_UNFINISHED, b"", 1))) is None:
            raise Malformed(f"no end of a call: {shortened(rest)}")
        left, tail = ended
        del self._open[task]
        call.arguments += left[:-1]
        _result(call, tail)
        yield time, What.ENDED, call

    def _gone(self, task: int, time: int, body: bytes) -> Iterator[Event]:
        if other := _SUPERSEDED.match(body):
            goes_on = self.space << 40 | self._tasks.of(int(other[1]))
            yield time, What.SUPERSEDED, Call(task, time=time, result=goes_on, line=self.line)
            if (call := self._open.pop(goes_on, None)) is not None:
                call.task = task
                self._open[task] = call
            return
        if (call := self._open.pop(task, None)) is not None:
            yield time, What.ENDED, call  # it died in the call
        self._tasks.gone(task & MASK)
        yield time, What.EXIT, Call(task, time=time, line=self.line)


def _ended(body: bytes) -> Ended | None:
    """What stands before the result, with its bracket, and the result; None: there is none."""
    end = len(body)
    for _ in range(_TRIES):
        end = body.rfind(b"= ", 0, end)
        if end < 0:
            break
        tail = _TAIL.fullmatch(body, end + 2)
        left = body[:end].rstrip()
        if tail is not None and left.endswith(b")"):
            return left, tail
    return None


def _parts(text: bytes) -> tuple[str, bytes]:
    name, bracket, arguments = text.partition(b"(")
    if not bracket or not _NAME.fullmatch(name):
        raise Malformed(f"no call of strace: {shortened(text)}")
    return name.decode("ascii"), arguments


def _result(call: Call, tail: re.Match[bytes]) -> None:
    value, place, error, seconds, fraction = tail.group(1, 2, 3, 4, 5)
    if value != b"?":
        call.result = int(value, 16) if value.startswith(b"0x") else int(value)
        if call.result >= 1 << 63 and not value.startswith(b"0x"):
            raise Malformed(f"a result of {call.result}")
    if error:
        call.error = error.decode("ascii")
    call.place = place or b""
    if fraction is not None:
        call.latency = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
        if call.latency >= 1 << 63:
            raise Malformed(f"it took {call.latency} ns: 2^63 or more")


def shortened(text: bytes) -> str:
    """A part of a line for a message, in quotes."""
    words = text.decode("utf-8", "backslashreplace")
    return repr(words if len(words) <= 80 else words[:77] + "...")
