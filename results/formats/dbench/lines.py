"""The lines of dbench's outputs: what each of them tells of a run (see the package)."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from fsmatrix.results.formats.base import Note, ParseError, apart

LONGEST_LINE = 4096  # dbench prints no longer ones
MAX_NOTES = 20

BANNER = re.compile(r"dbench version (\S{1,32}) - Copyright .*")
RUNNING = re.compile(
    r"Running for (\d{1,9}) seconds with load '(.*)' and minimum warmup (-?\d{1,9}) secs"
)
PREPARED = re.compile(r"(\d{1,9}) of (\d{1,9}) processes prepared for launch +(\d{1,9}) sec")
TICK = re.compile(
    r" *(\d{1,9}) +(\d{1,10}) +(\d{1,12}\.\d\d) MB/sec  (warmup|execute) +(\d{1,9}) sec"
    r"(?:  latency (\d{1,12}\.\d{3}) ms)?(?: \*\d{1,3})?"  # and the mark of a remark
)
CLEANUP = re.compile(r" *(\d{1,9})  cleanup +(\d{1,9}) sec")
OLD_THROUGHPUT = re.compile(r"^Throughput \S{1,24} MB/sec[^\n]{0,80}? \d{1,9} procs", re.MULTILINE)
TABLE = re.compile(r" ?Operation +Count +AvgLat +MaxLat")
OPERATION = re.compile(
    r" ([A-Za-z]\w{0,40}) +(\d{1,12}) +(\d{1,12}\.\d{3}) +(\d{1,12}\.\d{3})", re.ASCII
)
CLIENT = re.compile(r"Client (\d{1,9}) did \d{1,10} lines and (\d{1,18}) bytes")
THROUGHPUT = re.compile(
    r"Throughput (\S{1,24}) MB/sec( \(sync open\))?( \(sync dirs\))?"
    r"  (\d{1,9}) clients  (\d{1,9}) procs(?:  max_latency=(\d{1,12}(?:\.\d{1,3})?) ms)?"
)
TROUBLE = re.compile(
    r"\[\d+\] .*?(?:failed|expected to write|succeeded for handle|Unknown operation).*"
    r"|\(\d+\) ERROR: .*|ERROR: .*|Child (?:\d+ )?failed .*|FAILED TO START .*"
    r"|[Ff]ailed to (?:initialize|use|release|setup) .*|can't (?:get|attach|register) .*"
    r"|file table full for .*|Out of memory|Badly formed status .*|create -?\d+ procs\? .*"
    r"|dbench: error opening .*|Invalid option .*|No (?:backend|loadfile) was specified.*"
    r"|Unknown backend .*|Incorrect [A-Z]+ at .*"
)
BARRIER = "failed to create barrier semaphore"
LINES = re.compile(r"\n+|[^\n]+")
MACHINE = re.compile(r"^@[RWC]@\d", re.MULTILINE)
COMMA = re.compile(r"\d,\d+ (?:MB/sec|ms)")
ERRNO = re.compile(r"\(([A-Z][^()]{1,60})\)|(?:: |- )([A-Z][^:()]{1,60})$")
ERRNOS = {os.strerror(number): name for number, name in sorted(errno.errorcode.items())}


@dataclass(frozen=True)
class Tick:
    """One per-second line: the mean rate since the counters were last set back."""

    rate: float  # MB/s, rounded to 0.01
    second: int
    latency: float | None  # largest of the second, seconds


@dataclass
class Reading:
    """What the lines of one run told so far."""

    headed: bool = False  # begins with dbench's banner: nothing of it stands before
    version: str = ""
    runtime: int | None = None
    load: str = ""
    warm_up: int | None = None
    looks: int = 0  # lines about clients prepared for launch, ten a second
    prepared: tuple[int, int] = (0, 0)  # of
    released: bool = False
    barrier: int = 0  # line of the semaphore's message
    warm: list[Tick] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    cleanups: list[tuple[int, int]] = field(default_factory=list)  # clients not done, second
    operations: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    table: str = ""  # of all clients: "", open, closed
    client_bytes: dict[int, int] = field(default_factory=dict)
    client_operations: dict[str, int] = field(default_factory=dict)  # sums over clients
    end: re.Match[str] | None = None
    errors: list[str] = field(default_factory=list)  # the first ones
    error_count: int = 0
    errnos: dict[str, int] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing of a run was told yet but that its clients were looked for."""
        return not (self.warm or self.ticks or self.cleanups or self.end)

    def damaged(self, message: str) -> None:
        """Keep what is wrong with the output; the first few are enough."""
        if len(self.damage) < MAX_NOTES:
            self.damage.append(message)

    def note(self, key: str, message: str, line: int = 0) -> None:
        """Keep a note, once, and not too many."""
        if len(self.notes) < MAX_NOTES and all(n.message != message for n in self.notes):
            self.notes.append(Note(key, message, line, "mixed"))


def read(text: str, source: str) -> list[Reading]:
    """All runs that a text tells something of; ParseError if there is none."""
    runs = [Reading()]
    for number, line in _lines(text):
        if ("MB/sec" in line or "latency" in line) and COMMA.search(line):
            reason = "a number with a decimal comma: run dbench with LC_ALL=C"
            raise ParseError(source, number, reason)
        if match := BANNER.fullmatch(line):
            last = _next(runs)
            last.version, last.headed = match[1], True
        elif match := RUNNING.fullmatch(line):
            _running(runs, number, match)
        else:
            _line(runs[-1], number, line)
    first = [run.damage[:1] for run in runs]
    for (run, hurt), (following, next_hurt) in pairwise(zip(runs, first, strict=True)):
        if run.runtime is None and run.end is None:  # of a run that was cut twice, or of this one
            following.damaged("lines of a run stand before its first one")
        if not following.headed:  # a line of the one may have come into the other
            following.damage += hurt
        if not following.headed or run.end is None:
            run.damage += next_hurt
    values = [
        run
        for run in runs
        if not run.empty or run.runtime is not None or (run.version and run.errors)
    ]
    if MACHINE.search(text) and not any(run.ticks or run.warm for run in values):
        reason = "dbench's --machine-readable output: run it without that option"
        raise ParseError(source, 0, reason)
    if not values and OLD_THROUGHPUT.search(text):
        raise ParseError(source, 0, "dbench before 4.0 is too old: run 4.0 or newer")
    if not values:
        reason = "no output of a dbench run: neither 'Running for' nor a line of a rate"
        raise ParseError(source, 0, reason)
    return values


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are neither empty nor longer than any of dbench's, with their numbers from 1."""
    number = 1
    for match in LINES.finditer(text):
        start, end = match.span()
        if text[start] == "\n":
            number += end - start
        elif end - start <= LONGEST_LINE:
            for part in apart(match[0], BANNER):
                yield number, part.rstrip("\r ")


def _next(runs: list[Reading]) -> Reading:
    """The run that a banner begins: a new one if the last has something already."""
    if not runs[-1].empty or runs[-1].runtime is not None:
        runs.append(Reading())
    return runs[-1]


def _running(runs: list[Reading], number: int, match: re.Match[str]) -> None:
    state = (int(match[1]), match[2], int(match[3]))
    last = runs[-1]
    again = state == (last.runtime, last.load, last.warm_up)
    if again and last.empty and not last.looks:
        last.note("recovered", "a line stands there twice", number)
        return
    if not last.empty or last.runtime is not None:
        runs.append(Reading(version=last.version))
    runs[-1].runtime, runs[-1].load, runs[-1].warm_up = state


def _line(run: Reading, number: int, line: str) -> None:
    """One line that begins no run.  What is not dbench's is passed over."""
    if line.startswith(("[", "(")):
        if TROUBLE.fullmatch(line):
            _trouble(run, number, line)
    elif match := TICK.fullmatch(line):
        latency = None if match[6] is None else float(match[6]) / 1000
        tick = Tick(float(match[3]), int(match[5]), latency)
        _series(run, run.warm if match[4] == "warmup" else run.ticks, tick, number)
    elif match := CLEANUP.fullmatch(line):
        run.cleanups.append((int(match[1]), int(match[2])))
    elif match := THROUGHPUT.fullmatch(line):
        if run.end is not None and run.end[0] != line:
            run.damaged(f"line {number}: a second and other line of the throughput")
        run.end, run.table = match, "closed"
    elif match := PREPARED.fullmatch(line):
        run.looks += 1
        run.prepared = (int(match[1]), int(match[2]))
    elif line.lower() == "releasing clients":
        run.released = True
    elif match := CLIENT.fullmatch(line):
        run.client_bytes[int(match[1])] = int(match[2])
        run.table = "closed"
    elif line == BARRIER:
        run.barrier = number
    elif TROUBLE.fullmatch(line):
        _trouble(run, number, line)
    else:
        _table(run, number, line)


def _series(run: Reading, ticks: list[Tick], tick: Tick, number: int) -> None:
    if tick in ticks[-3:]:
        run.note("recovered", "a line stands there twice", number)
    elif ticks and tick.second < ticks[-1].second:
        run.damaged(f"line {number}: second {tick.second} after second {ticks[-1].second}")
    else:
        ticks.append(tick)


def _trouble(run: Reading, number: int, line: str) -> None:
    run.error_count += 1
    if len(run.errors) < 3:
        run.errors.append(f"line {number}: {line[:200]}")
    match = ERRNO.search(line)
    name = ERRNOS.get(match[1] or match[2], "") if match else ""
    if name:
        run.errnos[name] = run.errnos.get(name, 0) + 1


def _table(run: Reading, number: int, line: str) -> None:
    """The table of operations of all clients; behind it, on request, one for each client."""
    if TABLE.fullmatch(line):
        run.table = "closed" if run.operations else "open"
    elif line.startswith("Per client"):
        run.table = "closed"
    elif match := OPERATION.fullmatch(line):
        _row(run, number, match)
    elif line.startswith((" ", "\ufffd")) and (
        "\ufffd" in line or (run.table == "open" and not line.startswith(" ---"))
    ):
        run.damaged(f"line {number}: a row that cannot be read")


def _row(run: Reading, number: int, match: re.Match[str]) -> None:
    name, count = match[1], int(match[2])
    if run.table == "open":
        row = (count, float(match[3]) / 1000, float(match[4]) / 1000)
        if run.operations.get(name, row) != row:
            run.damaged(f"line {number}: operation {name} with two counts")
        elif name in run.operations:
            run.note("recovered", "a line stands there twice", number)
        run.operations[name] = row
    elif run.client_bytes:
        run.client_operations[name] = run.client_operations.get(name, 0) + count
    else:
        run.damaged(f"line {number}: a row of operations that is in no table")
