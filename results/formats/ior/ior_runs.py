"""From what was read of an IOR output to runs: rows with their windows, phases, notes, failures.

IOR computes bandwidth = bytes moved / (last close - first open) (ReduceIterResults), and
prints both numbers rounded.  The window is computed from both: it is the middle of where the
interval bytes / bandwidth and the interval of the printed time overlap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.ior.ior_tests import (
    KIB,
    MIB,
    Number,
    Output,
    Row,
    Settings,
    Test,
    count_of,
    whole,
)
from fsmatrix.results.formats.ior.ior_tests import settings as settings_of_argv
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError, agrees, totals
from fsmatrix.results.record import Phase
from fsmatrix.results.units import plural

LARGEST = (1 << 63) - 1
ROUNDED = 6  # bytes: half of 0.01 KiB
COLUMN = {"transfer_size": "transfer_size", "block_size": "block"}  # KiB

# Why an IOR failed, from what it and its launcher said.
LONGEST_REASON = 300
MOST_LINES = 20_000  # from each end of a long text
_ERRNO = re.compile(
    r"(?:write|read|pwrite|pread|fsync|open64|open|close|fdatasync)\w*\(.{0,200}?failed[:.]? *"
    r"(?:Error: *)?(?P<text>(?:No space left on device|Disk quota exceeded|Input/output error|"
    r"Read-only file system|Permission denied|No such file or directory|Stale file handle|"
    r"Transport endpoint is not connected|Connection timed out|Too many open files|"
    r"Invalid argument|File too large|Cannot allocate memory)[^,(]*)"
)
_DAOS = re.compile(r"ERROR \(aiori-DFS\.c:\d+\): \d+: (-?\d+): (.+)")
_ERROR = re.compile(r"(?:ior )?ERROR(?: \([^)]{0,80}\))?: (.{1,300})")
_PLACE = re.compile(r",? *\((?:[\w.-]+\.c:\d+)\)\.?\s*$")
_WRONG = re.compile(r"(?:[Ii]ncorrect|wrong) data on (\w+)[:(\s]+(\d+) errors found")
_ASSERT = re.compile(r"(\S+\.c):(\d+): (\w+): Assertion `([^']{1,100})' failed")
_SIGNAL = re.compile(r"exited on signal (\d+)(?: \(([\w ]+)\))?|Signal: ([\w ]+) \((\d+)\)")
_ARGUMENT = re.compile(r"Error invalid argument: (\S+)")
_LOADER = re.compile(r"error while loading shared libraries: ([^\n]{1,200})")


@dataclass(frozen=True)
class Iteration:
    """One access of one iteration."""

    row: Row
    bytes: int
    exact: bool  # else bytes are known only as well as rate x time
    window: float  # seconds, open to close
    contradiction: str
    fewest: bool = False  # bytes are the fewest that rounded numbers allow


# -- settings --------------------------------------------------------------------------------
def merge_rows(test: Test, argv: Sequence[str]) -> None:
    """Complete the settings: what IOR printed, then its summary, then the command line."""
    settings = test.settings
    for name in test.conflicts:
        settings.pop(name, None)
    asked = settings_of_argv(argv) if argv else {}
    if asked.get("script"):
        asked = {}
    summary = next(iter(test.summary.values()), {}) if "summary" not in test.conflicts else {}
    for name in ("tasks", "tasks_per_node", "iterations", "segments"):
        settings.setdefault(name, whole(summary.get(name, "")))
    for name in ("transfer_size", "block_size"):
        printed = settings.pop(f"{name}_printed", None)
        column = {_whole_bytes(row.numbers[COLUMN[name]], row.coarse) for row in test.rows}
        settings.setdefault(
            name,
            _exact(
                printed if isinstance(printed, Number) else None,
                whole(summary.get(name, "")),
                count_of(asked, name),
                column.pop() if len(column) == 1 else None,
            ),
        )
    if "api" in summary:
        settings.setdefault("api", summary["api"])
    for name, value in asked.items():
        if name not in ("transfer_size", "block_size"):
            settings.setdefault(name, value)
    if "read_file" in settings:
        settings.setdefault("read", settings["read_file"] or bool(settings.get("check_read")))
    if "read" in settings and "write" in settings:
        both = settings["read"] and settings["write"]
        settings["operations"] = "both" if both else "read" if settings["read"] else "write"
    tasks, each = settings.get("tasks"), settings.get("tasks_per_node")
    if tasks is None and len(tasks_of_rows := {row.tasks for row in test.rows}) == 1:
        settings["tasks"] = tasks_of_rows.pop()
    if tasks and tasks == each:
        settings.setdefault("nodes", 1)
    for name in [name for name, value in settings.items() if value is None]:
        del settings[name]


def _exact(printed: Number | None, *candidates: int | None) -> int | None:
    """A size: one that was printed whole, or the first candidate that is printed so."""
    if printed is not None and printed.half == 0:
        return int(printed.value)
    for value in candidates:
        if value and (printed is None or printed.holds(value)):
            return value
    return None


def _whole_bytes(column: Number, coarse: bool) -> int | None:
    """Bytes of a column in KiB, if it is printed that finely, or rounded to a plain "4.0"."""
    exact = column.half * KIB < 0.5 or (coarse and column.value.is_integer())
    return round(column.value * KIB) if exact else None


def expected(test: Test) -> int | None:
    """Bytes of one access of one iteration when nothing cuts it short."""
    settings = test.settings
    counts = [count_of(settings, name) or 0 for name in ("block_size", "segments", "tasks")]
    if not all(counts):
        return None
    bytes_ = math.prod(counts)
    printed = settings.get("aggregate_printed")
    if bytes_ > LARGEST or (isinstance(printed, Number) and not printed.holds(bytes_)):
        return None
    return bytes_


# -- one iteration ---------------------------------------------------------------------------
def _spans(row: Row, bytes_: int) -> tuple[Number, Number]:
    """The window (seconds) as the rate tells it, and as it was printed."""
    rate, total = row.within("bandwidth"), row.within("total")
    low = bytes_ / MIB / rate.high
    high = bytes_ / MIB / rate.low if rate.low > 0 else math.inf
    half = (high - low) / 2
    by_rate = Number(low + half if math.isfinite(half) else total.value, half)
    return by_rate, total


def iteration(row: Row, bytes_: int, exact: bool = True) -> Iteration:
    """Bytes and window of a row; a contradiction if its numbers do not fit together."""
    by_rate, total = _spans(row, bytes_)
    low, high = max(by_rate.low, total.low), min(by_rate.high, total.high)
    if low > high * (1 + 1e-9):
        which = "" if row.iteration is None else f", iteration {row.iteration}"
        text = (
            f"{row.access}{which}: {bytes_} bytes at "
            f"{row.numbers['bandwidth'].value:g} MiB/s need {by_rate.value:.6g} s, "
            f"the printed time is {row.numbers['total'].value:g} s"
        )
        return Iteration(row, bytes_, exact, by_rate.value, text)
    return Iteration(row, bytes_, exact, (low + high) / 2, "")


def counted(row: Row, test: Test, inline: bool) -> Iteration | None:
    """A row with its bytes; None if nobody knows them.

    A stonewalled row without its message has them by rate and time, but not about so where other
    rows have messages (`inline`): then it was lost, and else it stands in another text.
    """
    asked = expected(test)
    if row.moved is not None:
        return iteration(row, row.moved)
    stonewalled = bool(test.settings.get("stonewall"))
    if asked is not None:
        counts = iteration(row, asked)
        if not stonewalled or not counts.contradiction:
            return counts
    amount = _derived(row, test, stonewalled or asked is not None)
    return None if inline and amount is not None and not amount.exact else amount


def transfer_size(row: Row, settings: Settings) -> int:
    """Bytes of one transfer: the row has KiB with two digits, the options have it exactly."""
    printed = round(row.numbers["transfer_size"].value * KIB)
    declared = count_of(settings, "transfer_size") or 0
    return declared if abs(declared - printed) <= ROUNDED else printed


def _derived(row: Row, test: Test, any_amount: bool) -> Iteration | None:
    """Bytes from rate x time: a multiple of what all tasks move at once, if only one fits."""
    low, high = _amounts(row)
    if not (row.coarse or low > 0) or not low <= high <= LARGEST:
        return None
    block, transfer = round(row.numbers["block"].value * KIB), transfer_size(row, test.settings)
    tasks = count_of(test.settings, "tasks") or 0
    unit = transfer if any_amount else block * tasks
    if unit <= 0:
        return None
    first, last = math.ceil(low / unit), math.floor(high / unit)
    if first == last > 0:
        return iteration(row, first * unit)
    if row.coarse and not any_amount:
        return _fewest(row, test, unit)
    if not any_amount or last < first or low <= 0:
        return None
    middle = max(round((low + high) / 2 / transfer), 1) * transfer
    return iteration(row, middle, exact=False)


def _amounts(row: Row) -> tuple[float, float]:
    """Fewest and most bytes that its rate and its time allow."""
    rate, total = row.within("bandwidth"), row.within("total")
    return max(rate.low, 0) * max(total.low, 0) * MIB, rate.high * total.high * MIB


def _fewest(row: Row, test: Test, unit: int) -> Iteration | None:
    """The least multiple of `unit` bytes that all rows of a test, which move as much, allow."""
    amounts = [_amounts(other) for other in test.rows if other.moved is None]
    first = max(1, *(math.ceil(low / unit) for low, _ in amounts))
    last = min(math.floor(high / unit) for _, high in amounts)
    if first > last:
        return None
    return replace(iteration(row, first * unit, exact=first == last), fewest=True)


def failure_of(text: str) -> str:
    """The most telling reason in stdout and stderr together; empty if there is none.

    A reason of the operating system comes first, then IOR's first ERROR line (later ones
    follow from it), wrong data, a failed assertion, a signal.
    """
    lines = text.split("\n")
    if len(lines) > 2 * MOST_LINES:
        lines = lines[:MOST_LINES] + lines[-MOST_LINES:]
    reasons: dict[str, str] = {}
    for line in lines:
        if len(line) <= 4096:
            _look(line, reasons)
    for kind in ("errno", "daos", "loader", "error", "argument", "wrong", "assert", "signal"):
        if kind in reasons:
            return reasons[kind][:LONGEST_REASON]
    return ""


def _look(line: str, errors: dict[str, str]) -> None:
    """Keep the first reason of each kind."""
    if "failed" in line:
        if match := _ERRNO.search(line):
            reason = match["text"].strip().rstrip(".")
            errors.setdefault("errno", reason[:1].lower() + reason[1:])
        elif match := _ASSERT.search(line):
            place = f"{match[1]}:{match[2]}"
            errors.setdefault(
                "assert", f"IOR stopped itself in {match[3]} ({place}): not {match[4]}"
            )
    if "rror" in line or "ERROR" in line:
        if match := _DAOS.search(line):
            errors.setdefault("daos", f"{match[2].strip()} (DAOS error {match[1]})")
        elif match := _ERROR.match(line):
            errors.setdefault("error", f"IOR: {_PLACE.sub('', match[1]).strip()}")
        elif match := _ARGUMENT.search(line):
            errors.setdefault("argument", f"IOR does not know the argument {match[1]}")
        elif match := _LOADER.search(line):
            errors.setdefault("loader", f"IOR cannot start: {match[1].strip()}")
    if match := _WRONG.search(line):
        errors.setdefault("wrong", f"IOR found wrong data on {match[1]}: {match[2]} errors")
    if "ignal" in line and (match := _SIGNAL.search(line)):
        number, name = match[1] or match[4], match[2] or match[3] or ""
        errors.setdefault("signal", f"IOR was ended by signal {number} ({name.strip()})")


LONGEST = 1e9  # seconds; more is no measurement
PHASES = ("write", "read")
UNCACHED = ("DFS", "RADOS")  # libraries that keep no data on the client
# settings that are options of the workload `ior`, under the same name
OPTIONS = (
    "api", "transfer_size", "block_size", "segments", "file_per_process", "reorder_tasks",
    "reorder_random", "random_offset", "fsync", "fsync_per_write", "stonewall",
    "stonewall_wear_out", "iterations", "collective", "direct", "check_write", "check_read",
    "operations", "other_options",
)  # fmt: skip
LATENCY = (
    "IOR's column Latency is no minimum and no mean over all: {what}. It is kept of each iteration "
    "as latency_rank0 and used nowhere"
)


def result(output: Output, test: Test, inline: bool, source: str) -> Parsed:
    """One run.  `inline`: messages on the bytes that were moved stand in this text too."""
    argv = tuple(output.head.get("Command line", "").split())
    merge_rows(test, argv)
    settings = test.settings
    notes = [*output.before.notes, *test.notes]
    phases, problems = [], [*output.before.errors, *test.errors]
    for name in PHASES:
        rows = [row for row in test.rows if row.access == name]
        if rows:
            phase, phase_notes = _phase(name, rows, test, inline, source)
            phases.append(phase)
            notes += phase_notes
    failure = _failure(output, test, problems)
    notes += _remarks(output, test)
    facts: dict[str, Json] = {
        "machine": output.head.get("Machine"),
        "finished": output.head.get("Finished"),
        "remove_seconds": test.removals or None,
        "banners": output.banners if output.banners > 1 else None,
        "test": count_of(settings, "test"),
        "tasks_per_node": count_of(settings, "tasks_per_node"),
        "checks": _checks(test) or None,
        "keep": bool(settings.get("keep")),
        **test.facts,
    }
    return Parsed(
        engine="ior",
        version=output.version,
        phases=tuple(phases),
        argv=argv,
        options={
            name: value for name in OPTIONS if isinstance(value := settings.get(name), str | int)
        },
        nodes=count_of(settings, "nodes"),
        processes=count_of(settings, "tasks"),
        started=str(test.facts.get("started") or output.head.get("Began", "")),
        failure=failure,
        notes=tuple(notes),
        facts={key: value for key, value in facts.items() if value},
    )


# -- one phase -------------------------------------------------------------------------------
def _phase(
    name: str, rows: Sequence[Row], test: Test, inline: bool, source: str
) -> tuple[Phase, list[Note]]:
    """All iterations of an access: sums of bytes, operations and windows."""
    notes: list[Note] = []
    kept: list[Iteration] = []
    for index, row in enumerate(rows):
        timed_row = counted(row, test, inline)
        if timed_row is None or not 0 < timed_row.window <= LONGEST:
            test.damaged += 1
            text = f"{name}, iteration {index}: the bytes that were moved are not known"
            notes.append(Note("recovered", text, row.line, name))
            continue
        asked = 0 if test.settings.get("stonewall") else expected(test) or 0
        if row.moved is not None and row.moved < asked:
            text = f"{asked} bytes were asked for, and {row.moved} moved"
            notes.append(Note("less", text, row.line, name))
        stated = row.numbers["total"].value
        if timed_row.contradiction and not agrees(stated, timed_row.window):
            test.damaged += 1
            notes.append(Note("contradiction", timed_row.contradiction, row.line, name))
            continue
        if not timed_row.exact:
            text = (
                f"iteration {index}: its bytes are rate x time, rounded to transfers (IOR tells "
                "them in a message that is not here)"
            )
            if timed_row.fewest:
                text = f"iteration {index}: its bytes are the fewest that its rounded numbers allow"
            notes.append(Note("derived-amount", text, row.line, name))
        kept.append(timed_row)
    zero = [part.row for part in kept if part.row.coarse and not part.row.numbers["total"].value]
    if zero:
        below = 2 * max(row.numbers["total"].half for row in zero)
        text = f"times are printed as 0, which is below {below:g} s: they are bytes / rate"
        notes.append(Note("derived-amount", text, zero[0].line, name))
    if not kept and not test.errors:
        notes.append(Note("recovered", f"no iteration of {name} can be used", 0, name))
    return nested(name, kept, test.settings, source), notes


def nested(name: str, kept: Sequence[Iteration], settings: Settings, source: str) -> Phase:
    """A phase of iterations; they are parts of it, not independent repetitions."""
    bytes_ = sum(part.bytes for part in kept)
    if bytes_ > LARGEST:
        raise ParseError(source, kept[0].row.line, f"{name}: an impossible number of bytes")
    numbers = [part.row.iteration for part in kept]
    if None in numbers:  # JSON has none
        numbers = list(range(len(kept)))
    rows = [{**printed(p, settings), "number": n or 0} for p, n in zip(kept, numbers, strict=True)]
    facts: dict[str, Json] = {"window": "open to close"}
    if stonewall := count_of(settings, "stonewall"):
        facts["stonewall_seconds"] = float(stonewall)
        facts["wear_out"] = bool(settings.get("stonewall_wear_out"))
    if name == "write" and "fsync" in settings:
        facts["synced"] = bool(settings["fsync"] or settings.get("fsync_per_write"))
    if name == "read" and settings.get("check_read"):
        facts["verified_inside"] = True
    facts["direct"] = bool(settings.get("direct")) or settings.get("api") in UNCACHED
    told = all(transfer_size(part.row, settings) > 0 for part in kept)
    return totals(
        name,
        sum(part.window for part in kept),
        bytes_,
        sum(operations(part, settings) for part in kept) if told else None,
        sum(part.row.wrong for part in kept),
        facts=facts,
        iterations=iterations.columns(rows),
        summary=iterations.summary(rows, "bandwidth"),  # bw_values of ior-output.c
    )


def operations(part: Iteration, settings: Settings) -> int:
    """Transfers of an iteration: bytes / transfer size."""
    size = transfer_size(part.row, settings)
    return part.bytes // size if size > 0 else 0


def printed(part: Iteration, settings: Settings) -> dict[str, float]:
    """An iteration as column -> value (iterations.COLUMNS), in SI units."""
    row = part.row
    values: dict[str, float] = {
        "bytes": part.bytes,
        "operations": operations(part, settings),
        "seconds": part.window,
        "bandwidth": row.numbers["bandwidth"].value * MIB,
        "block": row.numbers["block"].value * KIB,
        "transfer_size": transfer_size(row, settings),
        **row.stonewall,
    }
    same = {"open": "open", "transfer": "transfer", "close": "close", "iops": "iops"}
    for printed_as, name in {**same, "latency": "latency_rank0"}.items():
        if printed_as in row.numbers:
            values[name] = row.numbers[printed_as].value
    if not part.exact:
        values["bytes_exact"] = 0
    return values


# -- what is said about it -------------------------------------------------------------------
def _failure(output: Output, test: Test, problems: Sequence[str]) -> str:
    if problems:
        return failure_of("\n".join([*problems, *(f"WARNING: {n.message}" for n in test.notes)]))
    reasons = []
    settings = test.settings
    if output.finished is False and test is output.test:
        reasons.append("the output is cut: its end is missing")
    wanted = count_of(settings, "iterations")
    for name in PHASES:
        asked = settings.get(name, name in test.summary)
        have = sum(row.access == name for row in test.rows)
        fewer = bool(asked) and not settings.get("limited")  # -T may end the test before
        if wanted and (have > wanted or (fewer and have < wanted)):
            reasons.append(f"{name} has {have} of {wanted} iterations")
    if test.damaged:
        are = "is" if test.damaged == 1 else "are"
        reasons.append(f"{plural(test.damaged, 'result')} {are} damaged")
    if test.conflicts:
        reasons.append(f"contradictory values of {', '.join(sorted(test.conflicts))}")
    if not reasons and not test.rows:
        reasons.append("it holds no result")
    if not reasons:
        return ""
    reason = failure_of("\n".join(note.message for note in test.notes if note.key == "warning"))
    return "; ".join([reason, *reasons] if reason else reasons)


def _checks(test: Test) -> list[dict[str, Json]]:
    """Rows of the checks that IOR before 3.0 printed."""
    return [
        {
            "access": row.access,
            "iteration": row.iteration,
            "seconds": row.numbers["total"].value,
            "bandwidth_mib": row.numbers["bandwidth"].value,
        }
        for row in test.rows
        if row.access not in PHASES
    ]


def _remarks(output: Output, test: Test) -> list[Note]:
    """Notes for the audits: traps of IOR's own."""
    settings, notes = test.settings, []
    reads = any(row.access == "read" for row in test.rows)
    moved = settings.get("reorder_tasks") or settings.get("reorder_random")
    cached = settings.get("api") not in UNCACHED and not settings.get("direct")
    if reads and moved and cached and settings.get("nodes") == 1:
        option = "-C (reorderTasks)" if settings.get("reorder_tasks") else "-Z (reorderTasksRandom)"
        text = (
            f"{option} on a single client node moves no read to another node: what was read had "
            f"been written on the same node (1 node, {settings.get('tasks')} tasks, "
            f"api {settings.get('api')})"
        )
        notes.append(Note("reorder-shifts-nothing", text, 0, "read"))
    if reads and settings.get("check_read"):
        text = "-R (checkRead) compares what it reads inside the window"
        notes.append(Note("verify-in-window", text, 0, "read"))
    for name in PHASES:
        have, wanted = sum(row.access == name for row in test.rows), settings.get("iterations")
        if settings.get("limited") and isinstance(wanted, int) and 0 < have < wanted:
            text = f"-T ended it after {have} of {wanted} iterations"
            notes.append(Note("limited", text, 0, name))
    if output.banners > 1 and settings.get("tasks") == 1:
        text = f"{output.banners} IORs of one task each began at the same time on one file"
        notes.append(Note("simultaneous", text))
    if any("latency" in row.numbers for row in test.rows):
        notes.append(Note("minimum-latency", LATENCY.format(what=latency_is(output.version))))
    return notes


def latency_is(version: str) -> str:
    """What the column Latency holds (ReduceIterResults of 3.3.0, 4.0.0 and 4.1)."""
    if re.match(r"(3\.3|4\.0)\b", version):
        return (
            "it is rank 0's transfer time / (block size / transfer size), so also wrong by the "
            "factor of segments and under stonewalling; the minimum over ranks that IOR computes "
            "is not what it prints"
        )
    if version.startswith("4."):
        return (
            "it is rank 0's transfer time / its transfers; the minimum over ranks that IOR "
            "computes is not what it prints"
        )
    return "it is rank 0's alone; the minimum over ranks that IOR computes is not what it prints"
