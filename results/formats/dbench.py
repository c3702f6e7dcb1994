"""Outputs of dbench 4.0 to 5.0: one run for each start of the program in a text.

What dbench counts (its dbench.c and child.c; tried with Debian's 4.0):

- An alarm of one second prints a line.  After the warm-up, which is a fifth of the time
  limit where nothing else is said (integer division: none below 5 s), it sets its counters
  back; `execute` lines then give the mean rate since that moment, not of the last second.
- `Throughput` is the rate at the last `execute` line.  The alarm that finds the time limit
  passed tells the clients to stop and prints the first `cleanup` line: the last second before
  it is in the table of operations, not in `Throughput`.
- MB are 10^6 bytes, read and written together, also of reads that came back short.
- A client's fault may leave the exit status 0.

So the phase `mixed` lasts from the end of the warm-up to the first `cleanup` line, the window
of the operations; its bytes are `Throughput` times that, so that its rate is what dbench says.
Times are whole seconds as printed; an alarm comes late by milliseconds, never early.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    aged,
    agrees,
    apart,
    is_older,
    overlapping,
    totals,
)
from fsmatrix.results.record import Floats, Integers, Phase

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

MEGABYTE = 1e6
LARGEST = 2.0**62
# A series is differenced from means of two decimals: its intervals are as long as it takes for
# that to blur their bytes less.
SERIES_BLUR = 0.05
EARLY = 0.9  # of the time that was asked for; seconds are whole ones
SHORT = "expected to write"  # a write that came back short, which ends the client
OLDEST = "4.0"  # version
HEAD_LINES = "dbench's first lines, with the time limit, the load and the clients"
RECOGNISED = (
    re.compile(r"^dbench version \S{1,32} - Copyright", re.MULTILINE),
    re.compile(r"^Running for \d{1,9} seconds with load '", re.MULTILINE),
    re.compile(r"^Throughput \S{1,24} MB/sec.{0,80} procs", re.MULTILINE),
)
WINDOW = "end of the warm-up to the time limit, as dbench's one-second alarm sees them"


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


def read_lines(text: str, source: str) -> list[Reading]:
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


def parse(text: str, source: str) -> list[Parsed]:
    """All runs in a text; ParseError if there is none, or its numbers are not dbench's."""
    return overlapping([[aged(_parsed(run, source), OLDEST)] for run in read_lines(text, source)])


def _parsed(run: Reading, source: str) -> Parsed:
    rate = _rate(run, source)
    stop = _stop(run)
    failure = _failure(run, rate, stop)
    clients = int(run.end[4]) if run.end else run.prepared[1] or None
    options: dict[str, Json] = {} if run.runtime is None else {"runtime": run.runtime}
    if run.load:  # another one is other work, wherever it lies
        options["loadfile"] = run.load.rpartition("/")[2]
    facts: dict[str, Json] = {"loadfile": run.load}
    if run.looks:  # ten looks a second, the last of them when all are there
        facts["launch_seconds"] = (run.looks - 1) / 10
    if run.cleanups:
        facts["last_second"] = run.cleanups[-1][1]
    if run.end:
        options |= {"sync": bool(run.end[2]), "sync_directories": bool(run.end[3])}
        facts["clients_per_process"] = int(run.end[4]) // max(int(run.end[5]), 1)
    _marks(run, rate, failure)
    if stop is not None and run.runtime and stop < EARLY * run.runtime:
        run.note("ended-early", f"it ran {stop} s of the {run.runtime} s it was asked to")
    return Parsed(
        engine="dbench",
        version=run.version,
        phases=_phase(run, rate, stop, source),
        options=options,
        nodes=1,
        processes=clients,
        failure=failure,
        notes=tuple(run.notes),
        facts={name: value for name, value in facts.items() if value != ""},
    )


def _rate(run: Reading, source: str) -> float:
    """MB/s of the whole run, of its last line if it was cut; 0 if there is none."""
    if run.end is None:
        return run.ticks[-1].rate if run.ticks else 0.0
    try:
        rate = float(run.end[1])
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate) or not 0 <= rate * MEGABYTE * (run.runtime or 1) < LARGEST:
        raise ParseError(source, 0, f"a throughput of {run.end[1]} MB/s is no measurement")
    return rate


def _stop(run: Reading) -> int | None:
    """The second in which the clients were told to stop; None if no line is sure of it.

    The first `cleanup` line: no client has ended, and it follows the last `execute` line.
    """
    if not run.cleanups or not run.end:
        return None
    waiting, second = run.cleanups[0]
    followed = bool(run.ticks) and second == run.ticks[-1].second + 1
    return second if waiting == int(run.end[4]) and (followed or second == run.runtime) else None


def _failure(run: Reading, rate: float, stop: int | None) -> str:
    """Why the run failed, although dbench may have ended with status 0."""
    if is_older(run.version, OLDEST):
        return "its lines are not those that are known here"
    reasons = []
    if run.error_count:
        more = f" (and {run.error_count - 1} more)" if run.error_count > 1 else ""
        short = "; the file system or a quota is full" if SHORT in run.errors[0] else ""
        reasons.append(f"dbench reports errors: {run.errors[0]}{more}{short}")
    if run.end is None:
        if not run.error_count:
            reasons.append("the output is cut: the run did not end (no line of the throughput)")
    elif not run.ticks or rate == 0:
        limit = "" if run.runtime is None else f" of {run.runtime} s"
        reasons.append(f"nothing was measured within the time limit{limit}")
    elif run.cleanups and run.cleanups[-1][0]:
        reasons.append(f"{run.cleanups[-1][0]} clients died: they never finished their cleanup")
    elif stop is None and run.runtime is not None:
        reasons.append("no line tells when the clients stopped: they died, or the line is lost")
    elif not run.operations:
        reasons.append("the table of operations is missing")
    elif run.client_bytes and run.client_operations != _counts(run):
        reasons.append("the clients' tables of operations do not add up to that of all")
    if run.runtime is None or (run.ticks and not run.released):
        reasons.insert(0, f"the output is damaged: its beginning is missing ({HEAD_LINES})")
    if run.damage:
        reasons.append(f"the output is damaged: {run.damage[0]}")
    return "; ".join(reasons)


def _counts(run: Reading) -> dict[str, int]:
    """Count of each operation over all clients."""
    return {name: count for name, (count, _, _) in run.operations.items()}


def _marks(run: Reading, rate: float, failure: str) -> None:
    """Notes for the audits; none of a version whose lines are not known."""
    if is_older(run.version, OLDEST):
        run.notes.clear()
        return
    if run.barrier:
        met = run.prepared[1] > 0 and run.prepared[0] == run.prepared[1] and run.released
        if met:
            message = (
                f"dbench says '{BARRIER}', but its semaphore works: number 0 is a valid one, and "
                f"{run.prepared[0]} of {run.prepared[1]} clients waited for the start together"
            )
            run.note("barrier-message", message, run.barrier)
        else:
            message = f"dbench says '{BARRIER}', and nothing shows that its clients began together"
            run.note("unsynchronised", message, run.barrier)
    if 0 < run.prepared[0] < run.prepared[1]:
        text = f"{run.prepared[1]} clients were asked for, and {run.prepared[0]} were ready"
        run.note("less", text)
    if run.warm_up:
        message = (
            f"dbench left out its first {run.warm_up} s or more as warm-up; what was done then is "
            "in no number"
        )
        run.note("warm-up", message)
    elif run.warm_up == 0:
        run.note("warm-up", "dbench had no warm-up: the start is inside the measured time")
    if run.end and run.ticks and not agrees(rate, run.ticks[-1].rate, 0.006):
        message = f"the throughput of {rate:g} MB/s is not the last line's {run.ticks[-1].rate:g}"
        run.note("contradiction", message)
    if failure and run.end is None and run.ticks:
        second = run.ticks[-1].second
        run.note("recovered", f"cut output: the mean rate of the first {second} s is kept")


def _phase(run: Reading, rate: float, stop: int | None, source: str) -> tuple[Phase, ...]:
    """The phase `mixed`; none if nothing was measured."""
    seconds = stop or (run.ticks[-1].second if run.ticks else 0)
    if not seconds or not rate or is_older(run.version, OLDEST):
        return ()
    if rate * MEGABYTE * seconds >= LARGEST:
        raise ParseError(source, 0, f"{rate:g} MB/s for {seconds} s is no measurement")
    latencies = [tick.latency for tick in run.ticks if tick.latency is not None]
    worst = float(run.end[6]) / 1000 if run.end and run.end[6] else max(latencies, default=None)
    facts: dict[str, Json] = {
        "window": WINDOW,
        "seconds_uncertainty": 0.5,
        "throughput_seconds": run.ticks[-1].second if run.ticks else 0,
        "bytes_are": "throughput x seconds",
        "operations": {
            name: {"count": count, "mean_seconds": mean, "max_seconds": largest}
            for name, (count, mean, largest) in run.operations.items()
        },
    }
    if worst is not None:
        facts["latency_maximum"] = worst
    if run.warm_up is not None:
        facts["warm_up_seconds"] = run.warm_up
        # the alarm that ends the warm-up prints nothing
        warmed_up = run.warm[-1].second if run.warm else 0
        facts["warm_up_seconds_seen"] = (
            max(warmed_up + 1, run.warm_up) if run.warm_up > 0 else warmed_up
        )
    if run.client_bytes:
        facts["client_bytes"] = [run.client_bytes[client] for client in sorted(run.client_bytes)]
    if run.end and run.end[2]:
        facts["synced"] = True
    series = _intervals(run.ticks)
    if series is not None:
        facts["interval_uncertainty_bytes"] = series.blur
    phase = totals(
        "mixed",
        seconds,
        round(rate * MEGABYTE * seconds),
        sum(_counts(run).values()) if stop and run.operations else None,
        run.error_count,
        interval=0.0 if series is None else float(series.width),
        interval_bytes=None if series is None else series.bytes,
        interval_latency_max=None if series is None else series.latency,
        errors_by_errno=run.errnos,
        facts=facts,
    )
    return (phase,)


@dataclass(frozen=True)
class Series:
    """What was moved in each interval of `width` seconds, and the largest latency in it."""

    width: int
    bytes: Integers  # [interval]
    blur: float  # bytes by which one of them may be wrong
    latency: Floats | None  # [interval], seconds; None where no latencies are printed


def _intervals(ticks: list[Tick]) -> Series | None:
    """The series with the shortest intervals that are not too blurred; None if there is none.

    Line k tells the mean rate r_k of k seconds, rounded to 0.01 MB/s: the seconds from j to k
    moved k r_k - j r_j, uncertain by 0.005 (k + j) MB.  Seconds beyond the last whole interval
    are left out.
    """
    seconds = len(ticks)
    if seconds < 2 or [tick.second for tick in ticks] != list(range(1, seconds + 1)):
        return None
    whole = np.array([0.0, *(tick.rate * tick.second for tick in ticks)]) * MEGABYTE
    latency = np.array([np.nan if tick.latency is None else tick.latency for tick in ticks])
    for width in range(1, seconds // 2 + 1):
        edges = np.arange(0, seconds + 1, width)
        moved = np.diff(whole[edges])
        blur = 0.005 * float(edges[-1] + edges[-2]) * MEGABYTE
        if moved.min() >= 0 and blur <= SERIES_BLUR * moved.mean():
            largest = latency[: edges[-1]].reshape(-1, width).max(axis=1)
            largest_latencies = None if np.isnan(largest).any() else largest
            return Series(width, np.rint(moved).astype(np.int64), blur, largest_latencies)
    return None


def recognises(text: str) -> bool:
    """Whether a text is dbench's, by what it prints first."""
    return any(line.search(text) for line in RECOGNISED)


FORMATS: tuple[Format, ...] = (Format("dbench", recognises, parse),)
