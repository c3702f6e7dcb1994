"""The beginning of a line of strace: whose it is, and when it was written."""

from __future__ import annotations

import re

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
