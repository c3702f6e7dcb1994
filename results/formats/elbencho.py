"""elbencho's CSV of results (`--csvfile`, columns: docs/csv-docs.md of elbencho 2 and 3).

One line is one phase.  Lines of one start of elbencho have the same command and settings and
form one run; a phase that is there again is another iteration of it if the command says
`--iterations`, otherwise another run.  The window is that of the last finisher; what was done
when the first finished is in the facts.  Printed are whole milliseconds, whole MiB and whole
rates, all rounded down: the window is the middle of what all of them allow.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import PurePosixPath
from string import digits

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.mdtest import joined
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    aged,
    agrees,
    is_older,
    totals,
)
from fsmatrix.results.record import Phase

# One line of elbencho's table: its counts, and the window that they allow.


MIB = 1 << 20
DATA = frozenset({"write", "read", "mixed"})
SETTINGS: dict[str, str] = {  # column -> option
    "path type": "path_type",
    "paths": "paths",
    "hosts": "hosts",
    "threads": "threads",
    "dirs": "dirs",
    "files": "files",
    "file size": "size",
    "block size": "block",
    "direct IO": "direct",
    "random": "rand",
    "IO depth": "iodepth",
    "truncate": "trunc",
}
WHOLE = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Line:
    """One line of the table: column -> cell."""

    number: int
    cells: Mapping[str, str]

    def whole(self, column: str) -> int:
        """A count; 0 where the cell is empty.  ValueError for anything else."""
        cell = self.cells.get(column, "")
        if not cell:
            return 0
        if not WHOLE.fullmatch(cell):
            raise ValueError(f"{column} is {cell[:30]!r}, no whole number")
        return int(cell)

    @property
    def settings(self) -> tuple[str, ...]:
        """What all lines of one start have in common."""
        names = ("label", *SETTINGS, "random aligned", "shared paths", "version", "command")
        return tuple(self.cells.get(name, "") for name in names)


@dataclass(frozen=True)
class Count:
    """What was done by one kind of operation (all; or the reads of a mixture)."""

    bytes: int
    exact: bool
    entries: int
    block: int
    rates: tuple[tuple[int, int], ...]  # (amount, amount per second rounded down)
    iops: int

    def operations(self, name: str, seconds: float) -> int:
        """Blocks of data phases, files or directories of the others."""
        if name not in DATA:
            return self.entries
        exact = self.bytes // self.block if self.block and self.bytes % self.block == 0 else 0
        counted = self.iops * seconds
        if exact and abs(exact - counted) <= seconds + 0.02 * exact + 1:
            return exact
        return round(counted)


def count_of(line: Line, kind: str) -> Count:
    mib = line.whole(f"{kind}MiB [last]")
    entries = line.whole(f"{kind}entries [last]")
    size, block = line.whole("file size"), line.whole("block size")
    iops = line.whole(f"{kind}IOPS [last]")
    files = entries if line.cells.get("path type") == "dir" else line.whole("paths")
    whole = size * files
    exact = not kind and bool(mib) and whole // MIB == mib
    rates = [(entries, line.whole(f"{kind}entries/s [last]"))] if entries else []
    bytes_ = whole if exact else mib * MIB
    if exact and block and whole % block == 0:
        rates.append((whole // block, iops))
    return Count(bytes_, exact or not iops, entries, block, tuple(rates), iops)


def window_of(line: Line, counts: Sequence[Count]) -> tuple[float, float]:
    """The shortest and the longest window that the printed numbers allow, in seconds.

    Rates count whole microseconds, so a rate of 0 says nothing.  ValueError where the
    numbers contradict each other.
    """
    milliseconds = line.whole("time ms [last]")
    low, high = milliseconds / 1000, (milliseconds + 1) / 1000
    for count in counts:
        for amount, rate in count.rates:
            if rate:
                low, high = max(low, amount / (rate + 1)), min(high, amount / rate)
    if low > high and not agrees(low, high):
        raise ValueError(
            f"its time, {milliseconds} ms, contradicts its rates: {low:.6f} to {high:.6f} s"
        )
    return low, max(low, high)


# What elbencho's command line says beyond the columns of its CSV (elbencho --help-all).


_SECRETS = ("--s3key", "--s3secret", "--s3sessiontoken", "--svcpwfile")
_MIXED = re.compile(r"(RWMIX|MIX-T)(\d{1,5})", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})([kmgtpe]?)", re.ASCII | re.IGNORECASE)
# options whose values are files that no work is done on
_FILES = frozenset({
    "--configfile", "-c", "--csvfile", "--hostsfile", "--jsonfile", "--livecsv", "--livejson",
    "--opslog", "--resfile", "--s3objprefix", "--svcpwfile", "--treefile",
})  # fmt: skip
_FLAGS = (
    "backward", "dirsharing", "infloop", "mmap", "nofdsharing", "norandalign", "readinline",
    "statinline", "strided", "verifydirect",
)  # fmt: skip
_VALUES = {  # name -> what it is where it is not given
    "blockvarpct": 100, "fadv": "", "flock": "", "madv": "", "randalgo": "", "randamount": 0,
    "timelimit": 0, "verify": 0,
}  # fmt: skip
# operation without its number -> what limits hold for it
_LIMITED = {
    "READ": ("read",), "WRITE": ("write",), "RWMIX": ("write",), "MIX-T": ("read", "write"),
}  # fmt: skip
# words -> the phase, or what it is called as a mixture; the last two on directories only
_ASKED = {
    ("-w", "--write"): ("write", "mixed"),
    ("-r", "--read"): ("read",),
    ("-F", "--delfiles"): ("remove",),
    ("--stat",): ("stat",),
}


def argv_of(command: str) -> tuple[str, ...]:
    """elbencho quotes each argument, and has made a blank of each comma; spreadsheets quote all."""
    if command.startswith('"""'):
        command = command.strip()[1:-1].replace('""', '"')
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return tuple(command.split())


def without_secrets(argv: Sequence[str]) -> Iterator[str]:
    """elbencho itself leaves out the S3 secret only, and only in one of its spellings."""
    hidden = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith(_SECRETS)
        yield "***" if hidden else f"{name}=***" if secret and equals else word
        hidden = secret and not equals


def value_of(argv: Sequence[str], *names: str) -> str | None:
    """What stands behind an option, also behind a flag; None where it is not given."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else following
    return None


def place_of(argv: Sequence[str], on_directories: bool) -> str:
    """Directories and devices of its paths, or the endpoints of S3; "" if none is a whole path.

    Several are joined by ":", as fio has them.
    """
    words = pairwise(argv)
    paths = [path for name, path in words if path.startswith("/") and name not in _FILES]
    as_written = [on_directories or path.startswith("/dev/") for path in paths]
    places = [
        path if whole else str(PurePosixPath(path).parent)
        for path, whole in zip(paths, as_written, strict=True)
    ]
    return value_of(argv, "--s3endpoints") or ":".join(dict.fromkeys(places))


def iterations(argv: Sequence[str]) -> int:
    """Of `-i N`, `--iterations N` or `--iterations=N`; 1 without."""
    value = value_of(argv, "-i", "--iterations") or ""
    return max(1, int(value)) if WHOLE.fullmatch(value) else 1


def is_mixture(operation: str) -> bool:
    """Whether a phase reads and writes: RWMIX30 (percent of reads), MIX-T2 (threads that read)."""
    return _MIXED.fullmatch(operation) is not None


def work_options(argv: Sequence[str], operations: Collection[str]) -> dict[str, Json]:
    """What makes runs of equal columns different work; `operations` as the CSV names them.

    `rwmixread`: percent; `rate_limit`: bytes per second of each thread.
    """
    found: dict[str, Json] = {n: True for n in _FLAGS if value_of(argv, f"--{n}") is not None}
    given = {name: _size(value_of(argv, f"--{name}") or "") for name in _VALUES}
    found |= {name: value for name, value in given.items() if value not in ("", _VALUES[name])}
    for mixed in filter(None, map(_MIXED.fullmatch, operations)):
        found["rwmixread" if mixed[1] == "RWMIX" else "rwmixthr"] = int(mixed[2])
    if share := value_of(argv, "--rwmixthrpct"):
        found["rwmixread"] = _size(share)
    if limit := _rate_limit(argv, operations):
        found["rate_limit"] = limit
    return found


def _rate_limit(argv: Sequence[str], operations: Collection[str]) -> int | str:
    """One number where all data has the same limit, otherwise with the names; 0: no limit.

    That of writing holds for reads too in a mixture by percent, not in one by threads.
    """
    kinds = {kind for each in operations for kind in _LIMITED.get(each.rstrip(digits), ())}
    limits = {kind: _size(value_of(argv, f"--limit{kind}") or "0") for kind in kinds}
    if len(set(limits.values())) == 1:
        return next(iter(limits.values()))
    return ",".join(f"{kind}={limits[kind]}" for kind in sorted(limits) if limits[kind])


def _size(value: str) -> int | str:
    """A number with elbencho's units, which are powers of 1024; otherwise as it is written."""
    match = _SIZE.fullmatch(value)
    if match is None:
        return value[:100]
    return int(match[1]) << 10 * " kmgtpe".index(match[2].lower() or " ")


def missing(argv: Sequence[str], names: Sequence[str], on_directories: bool) -> Iterator[str]:
    """Phases that were asked for and are not there, or not as often: a sentence on each."""
    often = iterations(argv)
    for words, phases in _ASKED.items():
        asked = any(word in argv for word in words) and "--netbench" not in argv
        if asked and (on_directories or phases[0] in ("write", "read")):
            there = sum(name in phases for name in names)
            if there < often:
                times = (
                    f" {often} times, and is there for {there} of them"
                    if there
                    else ", and is not there"
                )
                yield f"{phases[0]} was asked for{times}"


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
