"""What the readers of IOR's text, JSON and CSV have in common: numbers, rows, tests, log lines.

A reader collects `Test`s; `ior_result` makes them into runs.  Settings have the names of the
workload `ior`'s options where there is one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypedDict

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.parsed import Note

MIB = 1 << 20
KIB = 1 << 10
COARSE = 1e-4  # IOR prints a time below 1 s, and all of a CSV and a JSON, with 4 digits or 6
LONGEST_LINE = 1 << 16  # IOR prints none longer; what is longer is foreign
MOST_WARNINGS = 20
MOST_NOTES = 100
DAMAGED = "recovered"
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,3}))?", re.ASCII)
_COMMA = re.compile(r"-?[0-9]+,[0-9]+", re.ASCII)
_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30, "TiB": 1 << 40}
_SUFFIXES = {"": 1, "k": KIB, "m": MIB, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Number:
    """A printed number and half a unit of its last digit: the truth lies within."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """Smallest value that is printed so."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Largest value that is printed so."""
        return self.value + self.half

    def holds(self, value: float) -> bool:
        """Whether `value` may have been printed so."""
        slack = 1e-9 * abs(value)
        return self.low - slack <= value <= self.high + slack


Setting: TypeAlias = str | int | Number | None
Settings: TypeAlias = Mapping[str, Setting]


def count_of(settings: Settings, name: str) -> int | None:
    """The whole number that a setting is; None if it is none, or not known."""
    value = settings.get(name)
    return value if isinstance(value, int) else None


def number(text: str) -> Number | None:
    """A finite printed number; None for anything else ("-", "nan", "1,5", "1.2.3")."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > 64:
        return None
    value = float(text)
    if not math.isfinite(value):
        return None
    digits, exponent = len(match[1] or ""), int(match[2] or 0)
    return Number(value, 0.5 * 10.0 ** (exponent - digits))


def has_decimal_comma(text: str) -> bool:
    """Whether this is a number of another locale."""
    return _COMMA.fullmatch(text) is not None


def whole(text: str) -> int | None:
    """A non-negative whole number that an int64 holds."""
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        return None
    return int(text) if int(text) < 1 << 63 else None


def size(text: str) -> int | None:
    """Bytes of a size on IOR's command line ("4k" = 4096)."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SUFFIXES[match[2].lower()] if match else None


def printed_size(text: str) -> Number | None:
    """Bytes of a size as IOR shows it: "1 MiB" is exact, "1.50 GiB" is rounded."""
    amount, _, unit = text.partition(" ")
    shown = number(amount)
    if shown is None or unit not in _UNITS or shown.value < 0:
        return None
    half = shown.half if "." in amount else 0.0
    return Number(shown.value * _UNITS[unit], half * _UNITS[unit])


@dataclass(frozen=True)
class Row:
    """One access of one iteration, as printed.

    `numbers`: bandwidth (MiB/s), block and transfer_size (KiB), open, transfer, close and
    total (s), and where the version has them iops (1/s) and latency (s).
    """

    access: str  # write, read; writecheck, readcheck in old outputs
    numbers: Mapping[str, Number]
    iteration: int | None = None  # from 0; None where it is not printed
    line: int = 0
    moved: int | None = None  # bytes, from IOR's own warning; None = as expected
    stonewall: Mapping[str, float] = field(default_factory=dict)  # columns of iterations
    wrong: int = 0  # wrong data found by a check
    tasks: int | None = None  # CSV

    @property
    def coarse(self) -> bool:
        """Whether somebody rounded its numbers, or cut them: none has more than three digits."""
        return min(value.half for value in self.numbers.values()) > COARSE

    def within(self, name: str) -> Number:
        """Where the truth of a number lies: of a coarse one from 1.1 halves below (it was rounded
        twice, 0.0574989 to 0.0575 to 0.058) to 2 above (it was cut)."""
        value = self.numbers[name]
        if not self.coarse:
            return value
        return Number(value.value + 0.45 * value.half, 1.55 * value.half)


@dataclass
class Test:
    """What was read of one test (IOR scripts run several)."""

    __test__ = False  # not one of pytest's

    line: int = 0
    settings: dict[str, Setting] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    taken: list[Row] = field(default_factory=list)
    places: dict[tuple[str, int | None], Row] = field(default_factory=dict)
    lost: set[tuple[str, int | None]] = field(default_factory=set)
    removals: list[float] = field(default_factory=list)
    summary: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by access
    facts: dict[str, Json] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    messages: set[str] = field(default_factory=set)  # of the notes
    errors: list[str] = field(default_factory=list)
    damaged: int = 0  # results that could not be used

    def put(self, name: str, value: Setting, line: int) -> None:
        """Remember a setting; another value for the same one makes it unknown."""
        if value is None:
            return
        if name in self.settings and self.settings[name] != value:
            self.conflicts.add(name)
            self.note(f"{name} is given as {self.settings[name]} and as {value}", line)
        self.settings.setdefault(name, value)

    def note(self, message: str, line: int = 0, key: str = DAMAGED) -> None:
        """Note what was odd; the same words once."""
        if len(self.notes) < MOST_NOTES and message not in self.messages:
            self.messages.add(message)
            self.notes.append(Note(key, message, line))

    @property
    def rows(self) -> list[Row]:
        """The results that can be used, in their order."""
        return [row for row in self.taken if (row.access, row.iteration) not in self.lost]

    def add(self, row: Row) -> None:
        """A result; one that was printed twice is kept once, two different ones never."""
        key = (row.access, row.iteration)
        if row.iteration is None or key not in self.places:
            self.places[key] = row
            self.taken.append(row)
        elif self.places[key].numbers == row.numbers:
            self.note(f"the line of {row.access}, iteration {row.iteration} is doubled", row.line)
        else:
            self.lost.add(key)
            self.lose(
                f"two different results of {row.access}, iteration {row.iteration}: outputs of "
                "two processes are mixed",
                row.line,
            )

    def discard(self, row: Row, message: str) -> None:
        """A result that was taken and cannot be used after all."""
        self.lost.add((row.access, row.iteration))
        self.lose(message, row.line)

    def lose(self, message: str, line: int) -> None:
        """A result that cannot be used."""
        self.damaged += 1
        self.note(message, line)


@dataclass
class Output:
    """One IOR output: its head, its tests, and whether its end was seen."""

    version: str = ""
    head: dict[str, str] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)
    finished: bool | None = False  # None: this format has no end mark
    banners: int = 0
    torn: str = ""  # why the end must be missing, in words
    before: Test = field(default_factory=Test)  # notes and errors before the first test

    @property
    def test(self) -> Test:
        """The test that is being read."""
        return self.tests[-1] if self.tests else self.before


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line from 1, text without its end); foreign monsters are left out."""
    position, count = 0, 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        count += 1
        if end - position <= LONGEST_LINE:
            yield count, text[position:end].rstrip("\r\n \t")
        position = end + 1


_MOVED = re.compile(r"WARNING: Using actual aggregate bytes moved += ([0-9]{1,19})(?:[.,].*)?")
_EXPECTED = re.compile(r"WARNING: (?:Expected|Stat\(\) of) aggregate file size +=.*")
_STONEWALL = re.compile(
    r"stonewalling pairs accessed min: ([0-9]+) max: ([0-9]+) -- min data: [0-9.]+ GiB "
    r"mean data: [0-9.]+ GiB time: ([0-9.]+)s"
)
_WRONG = re.compile(r"(?:ior )?WARNING: [Ii]ncorrect data on (\w+) \((-?[0-9]+) errors found\)")
_WARNING = re.compile(r"(?:ior )?WARNING: (.+)")
_ERROR = re.compile(r"(?:ior )?ERROR(?: \([^)]*\))?: (.+)")
_QUIET = re.compile(r"maybe caused by deadline|DUMMY (?:initialized|finalized)", re.IGNORECASE)


class Pending(TypedDict, total=False):
    """What messages say about the next result: fields of Row."""

    moved: int
    stonewall: Mapping[str, float]
    wrong: int


class Log:
    """IOR's messages, which stand among its results in any format."""

    def __init__(self, test: Callable[[], Test]) -> None:
        self._test = test
        self._pending: Pending = {}
        self._warnings = 0
        self._known: set[str] = set()  # warnings that were seen already

    def take(self) -> Pending:
        """What the messages since the last result say about this one."""
        pending, self._pending = self._pending, {}
        return pending

    def reads(self, line: str, number_: int) -> bool:
        """Whether the line is a message; it is kept then."""
        if line.startswith("stonewalling pairs"):
            return self._stonewall(line)
        if "WARNING: " not in line[:16] and "ERROR" not in line[:16]:
            return False
        if line in self._known:
            return True
        if match := _MOVED.fullmatch(line):
            self._pending["moved"] = int(match[1])
        elif match := _WRONG.match(line):
            count = abs(int(match[2][:18]))
            self._pending["wrong"] = count
            self._test().errors.append(f"wrong data on {match[1]}: {count} errors found")
        elif match := _ERROR.match(line):
            if len(self._test().errors) < MOST_WARNINGS:
                self._test().errors.append(line)
        elif (match := _WARNING.match(line)) and not _EXPECTED.match(line):
            self._warning(match[1], number_)
            if len(self._known) < MOST_NOTES:
                self._known.add(line)
        return True

    def _stonewall(self, line: str) -> bool:
        if match := _STONEWALL.match(line):
            least, most = whole(match[1]), whole(match[2])
            reached = number(match[3])
            if least is not None and most is not None and reached is not None:
                self._pending["stonewall"] = {
                    "pairs_min": least,
                    "pairs_max": most,
                    "stonewall_seconds": reached.value,
                }
        return match is not None

    def _warning(self, message: str, line: int) -> None:
        if self._warnings < MOST_WARNINGS and not _QUIET.search(message):
            before = len(self._test().notes)
            self._test().note(message[:500], line, "warning")
            self._warnings += len(self._test().notes) - before


# What an IOR command line says about a run (options of IOR 3.2 to 4.1, their union).


# short options that take a value; all others are flags (parse_options.c of 3.2.1 to 4.1)
VALUED = "aAbdDfGijJlMNoOQstTUX"
FLAGS = {
    "c": "collective",
    "C": "reorder_tasks",
    "e": "fsync",
    "F": "file_per_process",
    "k": "keep",
    "R": "check_read",
    "W": "check_write",
    "Y": "fsync_per_write",
    "z": "random_offset",
    "Z": "reorder_random",
}
SIZES = {"b": "block_size", "t": "transfer_size"}
COUNTS = {"s": "segments", "D": "stonewall", "i": "iterations", "Q": "task_offset"}
# what says where, how long before, and how it is reported: no other work
NO_WORK = "AGdfjkNorvwB"
REPORTS = ("summary", "save", "verbose", "outlier")  # how directives begin that are none either
# directives of -O
DIRECTIVES = {
    "stonewallingwearout": "stonewall_wear_out",
    "useo_direct": "direct",
    "fsync": "fsync",
    "fsyncperwrite": "fsync_per_write",
    "maxtimeduration": "limited",
}


def settings(argv: Sequence[str]) -> dict[str, str | int]:
    """Settings by the names of the workload's options, and `read`, `write`, `script`.

    `other_options`: what else makes it other work (`--mpiio.hintsFileName=h -g`), in one text.
    What is not on the command line is absent, except flags: without its flag one is off.
    A run by a script (-f) tells only `script`.
    """
    seen: dict[str, str | int] = dict.fromkeys(FLAGS.values(), False)
    seen |= {"direct": False, "stonewall_wear_out": False}
    access: set[str] = set()
    others: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word in ("--posix.odirect", "--posix.odirect=1"):
            seen["direct"] = True
        elif word.startswith("--"):
            others.append(word)
        if not word.startswith("-") or word.startswith("--"):
            continue
        name, equals, value = word[1:].partition("=")
        for index, letter in enumerate(name):
            if letter in VALUED:
                given = name[index + 1 :] + equals + value
                if equals and index + 1 == len(name):
                    given = value
                given = given or next(words, "")
                others += _value(seen, letter, given)
                break
            if letter in "rw":
                access.add(letter)
            elif letter == "B":
                seen["direct"] = True
            elif letter in FLAGS:
                seen[FLAGS[letter]] = True
            elif letter not in NO_WORK:
                others.append(f"-{letter}")
    if others:
        seen["other_options"] = " ".join(sorted(others))
    if seen.get("script"):
        return {"script": True}
    neither = not access and not seen["check_read"] and not seen["check_write"]
    seen["write"] = "w" in access or neither
    seen["read"] = "r" in access or seen["check_read"] or neither
    return seen


def _value(seen: dict[str, str | int], letter: str, value: str) -> list[str]:
    """Put what an option says; what no setting has a name for."""
    if letter == "a":
        seen["api"] = value
    elif letter == "f":
        seen["script"] = True
    elif letter == "T":
        seen["limited"] = value != "0"
    elif letter in SIZES or letter in COUNTS:
        amount = size(value)
        if amount is not None:
            seen[(SIZES | COUNTS)[letter]] = amount
    elif letter == "O":
        return [
            f"-O {rest}" for directive in value.split(",") if (rest := _directive(seen, directive))
        ]
    elif letter not in NO_WORK:
        return [f"-{letter} {value}"]
    return []


def _directive(seen: dict[str, str | int], text: str) -> str:
    """As `_value` of one of -O: itself if it makes other work that has no name here."""
    name, _, given = text.strip().partition("=")
    if option := DIRECTIVES.get(name.strip().lower()):
        seen[option] = given.strip() not in ("", "0")
        return ""
    return "" if name.lower().startswith(REPORTS) else text.strip()
