"""elbencho's CSV of results (`--csvfile`, columns: docs/csv-docs.md of elbencho 2 and 3).

One line is one phase.  Lines of one start of elbencho have the same command and settings and
form one run; a phase that is there again is another iteration of it if the command says
`--iterations`, otherwise another run.  The window is that of the last finisher; what was done
when the first finished is in the facts.  Printed are whole milliseconds, whole MiB and whole
rates, all rounded down: the window is the middle of what all of them allow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.formats.base import (
    Format,
    Note,
    Parsed,
    ParseError,
    aged,
    is_older,
    totals,
)
from fsmatrix.results.formats.elbencho.command import (
    argv_of,
    is_mixture,
    iterations,
    missing,
    place_of,
    value_of,
    without_secrets,
    work_options,
)
from fsmatrix.results.formats.elbencho.line import (
    MIB,
    SETTINGS,
    WHOLE,
    Count,
    Line,
    count_of,
    window_of,
)
from fsmatrix.results.formats.mdtest import joined
from fsmatrix.results.record import Phase

OLDEST = "2.0"  # version
FIRST_COLUMNS = "ISO date,label,path type,paths,hosts,threads,"
NEEDED = (
    "path type",
    "paths",
    "file size",
    "block size",
    "operation",
    "time ms [last]",
    "MiB [last]",
    "IOPS [last]",
    "entries [last]",
    "command",
)
NAMES: dict[str, str] = {
    "WRITE": "write",
    "READ": "read",
    "MKDIRS": "mkdir",
    "RMDIRS": "rmdir",
    "RMFILES": "remove",
    "STAT": "stat",
    "STATDIRS": "stat-directories",
}
ON_FILES = frozenset({"write", "read", "stat", "remove"})
LIMITS = ("--infloop", "--randamount", "--treefile", "--start")  # of the work
SKIPPED = frozenset({"SYNC", "DROPCACHE"})  # no work of their own
WINDOW = "from the common start to the last thread's end; a file is opened and closed inside"
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d{4})?", re.ASCII)
MOST_NOTES = 40
UNCACHED = frozenset({"bucket"})  # path types without a page cache
# words of its command -> the phase in whose window they verify, or read what was written
VERIFYING = {"--verify": "read", "--verifydirect": "write", "--readinline": "write"}
# other outputs -> what is recognised of them
OTHERS = {
    "printed results": re.compile(r"^[ \t>|]*OPERATION +RESULT TYPE +FIRST DONE +LAST DONE", re.M),
    "progress (--livecsv)": re.compile(r"^ISO Date,Label,Phase,RuntimeMS,", re.M),
    "CSV with another separator than the comma": re.compile(r"^ISO date[;\t]label[;\t]", re.M),
    "JSON": re.compile(r'"io_depth".{1,2000}"elapsed_time_ms"', re.S),
}


def recognises(text: str) -> bool:
    """Whether one of its lines is elbencho's heading."""
    return text.startswith(FIRST_COLUMNS) or f"\n{FIRST_COLUMNS}" in text


def parse(text: str, source: str) -> list[Parsed]:
    """One run for each start of elbencho; ParseError if no line can be understood."""
    if not recognises(text):
        raise ParseError(source, 0, "not elbencho's CSV: its heading is missing")
    damage: list[Note] = []
    lines = list(_lines(text, damage))
    runs = [aged(_run(group), OLDEST) for group in _groups(lines)]
    if not runs:
        why = damage[0].message if damage else "it has no line of results"
        if version := re.search(r",(\d[\w.-]{0,20}),\"", text):
            old = f"elbencho {version[1]}: needs elbencho 2.0 or newer; "
            why = old * is_older(version[1], OLDEST) + why
        raise ParseError(source, damage[0].line if damage else 0, why)
    if damage:
        first = runs[0]
        runs[0] = Parsed(**{**vars(first), "notes": (*damage[:MOST_NOTES], *first.notes)})
    return runs


def _lines(text: str, damage: list[Note]) -> Iterator[Line]:
    """Lines of results under the heading; what is odd goes to `damage`."""
    columns: list[str] | None = None
    texts = text.split("\n")
    seen: set[str] = set()
    for number, line in enumerate(texts, 1):
        line = line.rstrip("\r")
        if line.startswith(FIRST_COLUMNS):
            columns = line.rstrip().split(",")
            missing = [name for name in NEEDED if name not in columns]
            if missing or "\ufffd" in line:
                what = f"without {', '.join(missing)}, as before elbencho {OLDEST}"
                what = what if missing else "that is damaged"
                note = Note("recovered", f"a heading {what}", number)
                damage.append(note)
                columns = None
        elif columns is not None and line.strip():
            problem = "it is there twice" if line in seen else ""
            cells = line.split(",")  # elbencho has made blanks of all other commas
            if not _DATE.fullmatch(cells[0]):
                problem = "it does not begin with a date"
            elif len(cells) != len(columns):
                problem = f"it has {len(cells)} columns, not {len(columns)}"
            elif any("\ufffd" in cell for cell in (*cells[:1], *cells[2:-1])):
                problem = "it has characters that are no text"
            elif number == len(texts) and not line.endswith('" '):
                problem = "it is cut"
            if problem:
                damage.append(Note("recovered", f"a line is left out: {problem}", number))
            else:
                seen.add(line)
                yield Line(number, dict(zip(columns, cells, strict=True)))


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines of one start of elbencho."""
    group: list[Line] = []
    seen: Counter[str] = Counter()
    most = 1  # times that one phase may be there
    for line in lines:
        operation = line.cells["operation"]
        if group and (line.settings != group[0].settings or seen[operation] >= most):
            yield group
            group, seen = [], Counter()
        if not group:
            most = iterations(argv_of(line.cells["command"]))
        group.append(line)
        seen[operation] += 1
    if group:
        yield group


def _run(lines: Sequence[Line]) -> Parsed:
    first = lines[0]
    notes: list[Note] = []
    parts: dict[str, list[Phase]] = {}
    failure = ""
    for line in lines:
        try:
            phase = _phase(line, notes)
        except ValueError as error:
            name = line.cells["operation"][:40]
            notes.append(Note("left-out", f"{name} is left out: {error}", line.number))
            failure = f"a phase cannot be used: {name}: {error}"
            continue
        if phase is not None:
            parts.setdefault(phase.name, []).append(phase)
    argv = argv_of(first.cells["command"])
    on_directories = first.cells["path type"] == "dir"
    names = [_name(line.cells["operation"]) for line in lines]
    for text in missing(argv, names, on_directories):
        notes.append(Note("less", text, first.number))
    for option, inside in VERIFYING.items():
        value = value_of(argv, option)
        if inside in parts and value is not None and value not in ("0", "false"):
            text = f"{option}: what is checked or read back takes time inside the window"
            notes.append(Note("verify-in-window", text, first.number, inside))
    work = work_options(argv, [line.cells["operation"].partition("+")[0] for line in lines])
    if limit := work.get("rate_limit"):
        text = f"each thread was held back: to {limit} bytes per second"
        notes.append(Note("rate-limited", text, first.number))
    hosts, threads = (_number(first, name) for name in ("hosts", "threads"))
    told = {"label": first.cells.get("label"), "directory": place_of(argv, on_directories)}
    if not parts and not failure:
        failure = "it has no phase in which something was done"
    return Parsed(
        engine="elbencho",
        version=first.cells.get("version", ""),
        phases=tuple(joined(phases) for phases in parts.values()),
        argv=tuple(without_secrets(argv)),
        options=_options(first) | work,
        nodes=hosts,
        processes=hosts * threads if hosts and threads else None,
        started=first.cells["ISO date"],
        failure=failure if not parts else "",
        notes=tuple(notes[:MOST_NOTES]),
        facts={name: value for name, value in told.items() if value},
    )


def _number(line: Line, column: str) -> int | None:
    cell = line.cells.get(column, "")
    return int(cell) if WHOLE.fullmatch(cell) else None


def _options(line: Line) -> dict[str, Json]:
    options: dict[str, Json] = {}
    for column, name in SETTINGS.items():
        cell = line.cells.get(column, "")
        if WHOLE.fullmatch(cell):
            flag = name in ("direct", "rand", "trunc")
            options[name] = bool(int(cell)) if flag else int(cell)
        elif cell:
            options[name] = cell
    return options


def _name(operation: str) -> str:
    """The phase of an operation; "WRITE+s": files are looked at when written."""
    plain = operation.partition("+")[0]
    return "mixed" if is_mixture(plain) else NAMES.get(plain, plain.lower())


def _phase(line: Line, notes: list[Note]) -> Phase | None:
    """None for what is no work; ValueError for what cannot be."""
    operation = line.cells["operation"]
    if operation in SKIPPED:
        return None
    name = _name(operation)
    if not re.fullmatch(r"[a-z][a-z_-]{1,30}", name):
        raise ValueError(f"{operation[:40]!r} is no phase")
    kinds = ("", "rwmix read ") if name == "mixed" else ("",)
    counts = [count_of(line, kind) for kind in kinds]
    low, high = window_of(line, counts)
    if not high > 0:
        raise ValueError("its time is 0")
    if high - low > 0.02 * high:
        text = f"the window is between {low:.6f} and {high:.6f} s: rates are good to 1 % at best"
        notes.append(Note("coarse-time", text, line.number, name))
    seconds = (low + high) / 2
    bytes_ = sum(count.bytes for count in counts)
    if any(not count.exact for count in counts):
        text = "elbencho prints whole MiB: bytes are rounded down"
        notes.append(Note("rounded-bytes", text, line.number, name))
    operations = sum(count.operations(name, seconds) for count in counts)
    told = operations if operations or not bytes_ else None
    notes += _less(line, name, counts)
    facts = _facts(line, counts, kinds) | (_syncs(line) if name in ("write", "mixed") else {})
    return totals(name, seconds, bytes_, told, facts=facts)


def _less(line: Line, name: str, counts: Sequence[Count]) -> Iterator[Note]:
    """Fewer files, or bytes of sequential work, than the settings ask for.

    That is also of a time limit: elbencho leaves out all phases after one that met it.
    """
    words = line.cells["command"]
    if name not in ON_FILES or any(word in words for word in LIMITS):
        return
    if line.cells["path type"] == "dir":
        columns = ("hosts", "threads", "dirs", "files")
        asked, done = prod(line.whole(each) or 1 for each in columns), counts[0].entries
        unit = "files"
    else:
        asked = line.whole("file size") * line.whole("paths") // MIB
        done, unit = line.whole("MiB [last]"), "MiB"
    if line.cells.get("random") != "1" and done < asked and line.whole("file size"):
        limit = " in the time limit" if "--timelimit" in words else ""
        text = f"{asked} {unit} were asked for, and {done} done{limit}"
        yield Note("less", text, line.number, name)


def _facts(line: Line, counts: Sequence[Count], kinds: Sequence[str]) -> dict[str, Json]:
    """What was done when the first thread finished, and latencies in seconds."""
    direct = line.cells.get("direct IO") == "1" or line.cells.get("path type") in UNCACHED
    facts: dict[str, Json] = {
        "window": WINDOW,
        "first_done_seconds": _first(line),
        "direct": direct,
    }
    if counts[0].entries:
        facts["entries"] = sum(count.entries for count in counts)
    for column, name, unit in (
        ("MiB/s [first]", "first_done_bytes_per_second", MIB),
        ("IOPS [first]", "first_done_operations_per_second", 1),
        ("entries/s [first]", "first_done_entries_per_second", 1),
    ):
        values = [line.whole(kind + column) for kind in kinds]
        if any(values):
            facts[name] = sum(values) * unit
    if len(kinds) > 1:
        facts["write_bytes"], facts["read_bytes"] = (count.bytes for count in counts)
    for what, name in (("Ent lat us", "entry_latency"), ("IO lat us", "latency")):
        for kind, mark in zip(kinds, ("", "_read"), strict=False):
            cells = [line.whole(f"{kind}{what} [{part}]") for part in ("min", "avg", "max")]
            if any(cells):
                values_ = (value / 1e6 for value in cells)
                facts[name + mark] = dict(zip(("minimum", "mean", "maximum"), values_, strict=True))
    return facts


def _syncs(line: Line) -> dict[str, Json]:
    """Whether data was synced: by nothing inside a phase, by --sync after it.

    Nothing is known of what a configuration file asks for.
    """
    argv = argv_of(line.cells["command"])
    if value_of(argv, "-c", "--configfile") is not None:
        return {}
    asked = value_of(argv, "--sync") is not None
    return {"synced": False} | ({"sync_requested": "--sync"} if asked else {})


def _first(line: Line) -> float:
    return line.whole("time ms [first]") / 1000


def is_other(text: str) -> bool:
    """Whether elbencho wrote or printed it, or another program saved it, not as its CSV."""
    return not recognises(text) and any(form.search(text) for form in OTHERS.values())


def refuse_other(text: str, source: str) -> list[Parsed]:
    """ParseError with what to do instead."""
    what = next((name for name, form in OTHERS.items() if form.search(text)), "output")
    raise ParseError(source, 0, f"this is elbencho's {what}: import what --csvfile writes")


FORMATS: tuple[Format, ...] = (Format("elbencho-csv", recognises, parse),)
OTHER_FORMATS: tuple[Format, ...] = (Format("elbencho text", is_other, refuse_other),)
