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

from fsmatrix.results.evidence.stored import JsonObject

# The beginning of a line of strace: whose it is, and when it was written.


DAY = 86400 * 10**9  # ns
NO_EPOCH = 10**8  # s; smaller times of the form of -ttt are those of -r
ODD_ALIKE = 8  # lines in a row whose times have another form: that is no odd line any more
# What the times of a text are.
NONE, SECONDS = "no time", "a time of whole seconds"
CLOCK, DATE, ELAPSED = "a time of the day", "seconds since 1970", "the time since the line before"

START = re.compile(
    rb"\s*(?:\[pid\s+(\d{1,10})(?:<[^<>]*>)?\]\s+|(\d{1,7})(?:<[^<>]*>)?\s+)?"  # -Y: and a name
    rb"(?:(\d{1,10})\.(\d{1,9})\s+|(\d{9,10})\s+|(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s+)?"
    rb"(?:\(\+\s*(\d{1,10})(?:\.(\d{1,9}))?\)\s+)?"  # -r beside another time
    rb"(?:\[\s*(?:[0-9a-f]+|\?+)\]\s+)*"  # -n, -i
)


class Malformed(ValueError):
    """A line, or what it says, cannot be."""


class OtherFormError(ValueError):
    """The lines from one on are written in a way that cannot be read."""


class Tasks:
    """Whose lines those of a terminal are: a task that is alone has no [pid N] before its lines."""

    def __init__(self) -> None:
        self.alone = 0  # the id of the first, where nothing tells it
        self._living: dict[int, int] = {}  # number -> id, the first one first; -1: not known yet

    def attached(self, number: int) -> None:
        """strace says that it has a new one."""
        self._living.setdefault(number, number)

    def id(self, start: re.Match[bytes]) -> int:
        """Of a line that begins so."""
        if start[2]:
            return int(start[2])
        if not start[1]:
            if not self._living:
                self._living[-1] = self.alone
            return next(iter(self._living.values()))
        number = int(start[1])
        if number not in self._living:
            first = {number: self.alone} if self._living.pop(-1, None) is not None else {}
            self._living = {**first, **self._living, **({} if first else {number: number})}
        return self._living[number]

    def gone(self, task: int) -> None:
        """A task ended."""
        self._living = {key: each for key, each in self._living.items() if each != task}

    def of(self, number: int) -> int:
        """The id of a number that a message names."""
        return self._living.get(number, number)


class Stamps:
    """The times of a text, in ns; the numbers of its lines where they tell nothing."""

    def __init__(self) -> None:
        self.form = ""  # of the first call
        self.last = 0
        self._day = 0
        self._first: tuple[int, int] | None = None  # who began the text, and when
        self._latest = 0  # of who began it
        self._others = 0  # lines in a row with another form

    @property
    def timed(self) -> bool:
        """Whether they tell when calls began: whole seconds do not."""
        return self.form in (CLOCK, DATE, ELAPSED)

    def time(self, start: re.Match[bytes], line: int) -> int:
        """Of a line that begins so.  Malformed; OtherFormError."""
        seconds, fraction, whole, clock, part = start.group(3, 4, 5, 6, 7)
        if start[9] is not None and part is None and seconds is None:
            seconds, fraction = start.group(8, 9)  # finer than the whole seconds beside it
        if seconds is not None:
            form = ELAPSED if int(seconds) < NO_EPOCH else DATE
        elif whole is not None or (clock is not None and part is None):
            form = SECONDS
        else:
            form = NONE if clock is None else CLOCK
        if form == SECONDS and clock is not None and self.form == CLOCK:
            form, part = CLOCK, b""
        self.form = self.form or form
        if form != self.form:
            self._other(form, line)
        self._others = 0
        if not self.timed:
            time = line
        elif seconds is not None:
            time = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
            time += self.last if form == ELAPSED else 0
            if time >= 1 << 63:
                raise Malformed(f"a time of {time} ns: 2^63 or more")
        else:
            time = self._of_day(clock, part)
        self.last = time
        return time

    def in_order(self, task: int, time: int, line: int) -> None:
        """OtherFormError where who began the text is back at its beginning.

        Other times that go back are none: strace -z writes calls when they end, clocks are set.
        """
        self._first = self._first or (task, time)
        if task == self._first[0]:
            if time < self._latest and time <= self._first[1]:
                raise OtherFormError(
                    f"line {line}: the times go back to the beginning of the text: is it there "
                    "twice, or was the clock set? Cut it here"
                )
            self._latest = time

    def _of_day(self, clock: bytes, part: bytes) -> int:
        hour, minute, second = map(int, clock.split(b":"))
        seconds = (hour * 60 + minute) * 60 + second
        time = self._day + seconds * 10**9 + int(part.ljust(9, b"0"))
        if time < self.last - DAY // 2:
            self._day += DAY
            time += DAY
        return time

    def _other(self, form: str, line: int) -> None:
        reason = f"it has {form}, the lines before it have {self.form}"
        self._others += 1
        if self._others >= ODD_ALIKE:
            raise OtherFormError(
                f"line {line - ODD_ALIKE + 1}: the form changes here: {reason}; cut the text "
                "here, and import one part at a time"
            )
        raise Malformed(reason)


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


# The arguments of a call as strace prints them: names, numbers, flags, vectors, structures.


AT_FDCWD = -100
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("|$)|(?<=[0-9D])' + PLACE + rb"|[{}\[\](),]", re.DOTALL)
_STATED = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"|(?<![\w.])(\d{1,9}|AT_FDCWD)<((?:/|\\x2f)[^<>]*)(?:<[^<>]*>)?>'
    rb"(?!\(deleted)",
    re.DOTALL,
)
_SIGN = re.compile(rb'["{\[(<]')
_TEXT = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\.\.\.)?', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_NUMBER = re.compile(rb"-?\d{1,20}")
_DESCRIPTOR = re.compile(rb"(-?\d{1,10}|AT_FDCWD)(?:" + PLACE + rb")?(?: /\*.*\*/)?")
_LENGTH = re.compile(rb"iov_len=(\d{1,20})")
_SIZE = re.compile(rb"\bstx?_size=(\d{1,20})")
_MODE = re.compile(rb"\bstx?_mode=(S_IF[A-Z]+)")


def split(arguments: bytes) -> list[bytes]:
    """The arguments, in order.  Malformed for a string that does not end."""
    if not _SIGN.search(arguments):
        return [part.strip() for part in arguments.split(b",")]
    parts, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(arguments):
        sign = token[0]
        if sign == b"," and depth == 0:
            parts.append(arguments[begin : token.start()].strip())
            begin = token.end()
        elif sign in (b"{", b"[", b"("):
            depth += 1
        elif sign in (b"}", b"]", b")"):
            depth -= 1
        elif token[1] == b"":
            raise Malformed(f"a string does not end: {shortened(arguments)}")
    parts.append(arguments[begin:].strip())
    return parts


def at(parts: list[bytes], index: int) -> bytes:
    """One of the arguments.  Malformed if there are fewer."""
    if index >= len(parts):
        raise Malformed(f"{len(parts)} arguments where {index + 1} are needed")
    return parts[index]


def number(text: bytes) -> int:
    """A decimal number of 64 bits."""
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{shortened(text)} where a number is needed")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        raise Malformed(f"{value} where a number of 64 bits is needed")
    return value


def offset(text: bytes) -> int:
    """A number of bytes of a file, below 2^63."""
    value = number(text)
    if value >= 1 << 63:
        raise Malformed(f"an offset of {value}: 2^63 or more")
    return value


def descriptor(text: bytes) -> int:
    """A file descriptor, or AT_FDCWD."""
    match = _DESCRIPTOR.fullmatch(text)
    if match is None:
        raise Malformed(f"{shortened(text)} where a file descriptor is needed")
    return AT_FDCWD if match[1] == b"AT_FDCWD" else int(match[1])


def name(text: bytes) -> bytes | None:
    """A path; None if strace could not read it."""
    match = _TEXT.fullmatch(text)
    if match is None:
        if text.startswith(b'"'):
            raise Malformed(f"{shortened(text)} where a path is needed")
        return None
    if match[2]:
        raise Malformed(f"a path was cut off: {shortened(text)}")
    path = plain(match[1])
    if b"\0" in path:
        raise Malformed(f"a path with a NUL byte: {shortened(text)}")
    return path


def plain(text: bytes) -> bytes:
    """A path without the escapes of strace."""
    return _ESCAPE.sub(_byte, text) if b"\\" in text else text


def stated(arguments: bytes) -> Iterator[tuple[int, bytes]]:
    """Descriptors, or AT_FDCWD, and the absolute paths that strace -y writes behind them."""
    for match in _STATED.finditer(arguments):
        path = plain(match[2] or b"")
        if path and b"\0" not in path and not path.endswith(b" (deleted)"):
            yield AT_FDCWD if match[1] == b"AT_FDCWD" else int(match[1]), path


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    if code[:1] in b"01234567":
        return bytes((int(code, 8) & 0xFF,))
    return _PLAIN.get(code, code)


def flags(text: bytes) -> frozenset[bytes]:
    """O_RDWR|O_CREAT.  OtherFormError for numbers, whose meaning is the machine's."""
    words = text.partition(b"/* ")[2].partition(b" */")[0] or text
    if words.startswith(b"0x"):
        raise OtherFormError(f"the number {shortened(words)} for flags: trace without -X raw")
    return frozenset(words.split(b"|"))


def vector(text: bytes) -> int:
    """Bytes of an I/O vector, as many of its parts as strace wrote down."""
    bare = re.sub(rb'"(?:[^"\\]++|\\.)*+"', b"", text, flags=re.DOTALL)
    return sum(int(length) for length in _LENGTH.findall(bare))


def first_of(text: bytes) -> bytes | None:
    """The number in "[4096]" or "[4096] => [8192]"; None for NULL."""
    if not text.startswith(b"["):
        return None
    return text[1:].partition(b"]")[0]


def facts(arguments: bytes) -> tuple[int | None, bytes]:
    """Size and type ("S_IFREG") that a stat call gave; None and b"" where it gave none."""
    answer = arguments[arguments.rfind(b'"') + 1 :]  # a name may look like an answer
    mode, size = _MODE.search(answer), _SIZE.search(answer)
    return (int(size[1]) if size else None), (mode[1] if mode else b"")
