"""One job of fio's JSON: its numbers, checked one against the other.

Units of fio 3: bytes, milliseconds (runtime, job_start), nanoseconds (latencies).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import JsonObject, Stored, inside
from fsmatrix.results.formats.parsed import agrees
from fsmatrix.results.record import FSYNC, Latency

LARGEST = 1 << 62
MIXTURES = frozenset({"rw", "readwrite", "randrw"})
# rw of jobs of one direction, which is that of what unified_rw_reporting=mixed adds up
_ONE_WAY = {"read": "read", "randread": "read", "write": "write", "randwrite": "write",
            "trim": "trim", "randtrim": "trim"}  # fmt: skip
TURNS = ("startdelay", "wait_for")  # options by which jobs begin one after the other
RANGES = "sync_file_range"  # begins or waits for write-back, and makes nothing durable
DIRECTIONS = ("read", "write", "trim", "mixed")
_SIZE = re.compile(r"(\d+)([kmgtp]?)(i?)b?", re.IGNORECASE)
_TIME = re.compile(r"(\d+)(us|usec|ms|msec|s|sec|m|min|h|hour|d|day)?", re.IGNORECASE)
_SECONDS = {"u": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class DamagedError(Exception):
    """A job lacks what it needs, or has a number that cannot be."""


@dataclass(frozen=True)
class Means(Stored):
    """Latencies of one kind of operation, seconds."""

    mean: float
    min: float
    max: float
    N: int | None = None  # operations, as fio calls it


@dataclass(frozen=True)
class Direction:
    """What a job moved in one direction."""

    kind: str  # read, write, trim; mixed where fio was told to unify them; of syncs fsync
    bytes: int  # of a trim: those that were given up, not moved
    operations: int
    seconds: float  # runtime, in whole milliseconds
    short: int
    dropped: int
    latency: Latency | None
    means: Mapping[str, Means]  # of clat, slat, lat
    problems: tuple[str, ...] = ()  # contradictions inside
    total: bool = False  # latency is fio's lat, from submission, as fsync's always; else clat


@dataclass(frozen=True)
class Job:
    """One job (a worker), or a group of them merged by group_reporting."""

    name: str
    number: int  # fio's thread number, from 1: that of its log files
    group: int
    error: int
    ignored_errors: int  # total_err of continue_on_error
    first_error: int
    start: float  # Unix time of job_start, seconds; 0 = not told
    directions: tuple[Direction, ...]  # of its work, that did something
    options: Mapping[str, str] = field(default_factory=dict)  # global ones and its own
    remarks: tuple[tuple[str, str], ...] = ()  # keys and texts of notes on what it did beside
    host: str = ""  # of fio's client/server mode
    syncs: Direction | None = None  # its fsync, fdatasync, sync_file_range, without end_fsync
    syncs_told: bool = False  # the output counts its fsyncs: none of them is none
    steady: bool | None = None  # whether it attained its steady state; None: it has none
    delay: float | None = 0.0  # seconds after the first job, by its options; None: not known
    # why it is a sum of several jobs; where their options differ, `options` are the global ones
    # alone, and `turns` what the last job says of its begin
    several: str = ""
    turns: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """read, write, trim or mixed; empty: nothing was moved."""
        kinds = [direction.kind for direction in self.directions]
        return kinds[0] if len(kinds) == 1 else "mixed" if kinds else ""

    @property
    def moved(self) -> tuple[Direction, ...]:
        """Its directions that move bytes: a trim gives them up."""
        return tuple(d for d in self.directions if d.kind != "trim")

    @property
    def covered(self) -> int:
        """Bytes of its files that it worked on: moved, or of a job that only trims given up."""
        return sum(d.bytes for d in self.moved or self.directions)

    @property
    def seconds(self) -> float:
        """The longest of its directions' runtimes."""
        return max((direction.seconds for direction in self.directions), default=0.0)


def job_of(data: JsonObject, number: int, common: JsonObject) -> Job:
    """Read one job object; DamagedError."""
    sections = {kind: part for kind in DIRECTIONS if isinstance(part := data.get(kind), Mapping)}
    if any("clat" in part and "clat_ns" not in part for part in sections.values()):
        raise DamagedError("fio 2.x: its latencies and rates have other units; needs 3.0 or newer")
    if not sections:
        raise DamagedError("it has no section read, write or mixed")
    own = {str(key): str(value) for key, value in inside(data, "job options").items()}
    options = {str(key): str(value) for key, value in common.items()}
    name, last = str(data.get("jobname", "")), own.get("name", "")
    several = f"jobs {name} to {last} are one, merged by group_reporting" * (last not in ("", name))
    turns = {key: own[key] for key in TURNS if several and key in own}
    options |= {} if several else own
    if len(sections) > 1:
        sections.pop("mixed", None)  # unified_rw_reporting=both
    directions = [_direction(kind, part) for kind, part in sections.items()]
    did = tuple(d for d in directions if d.operations or d.bytes)
    work, remarks = _work(did, options)
    steady = inside(data, "steadystate").get("attained")
    return Job(
        name=name,
        number=number,
        group=_count(data, "groupid"),
        error=_count(data, "error"),
        ignored_errors=_count(data, "total_err", 0),
        first_error=_count(data, "first_error", 0),
        start=_count(data, "job_start", 0) / 1000.0,
        directions=work,
        options=options,
        remarks=remarks,
        host=str(data.get("hostname", "")),
        syncs=_syncs(inside(data, "sync"), options),
        syncs_told="total_ios" in inside(data, "sync") and not is_set(options, "fdatasync"),
        steady=None if steady is None else bool(steady),
        several=several or _added_up(data, directions, options),
        turns=turns,
    )


def _added_up(data: JsonObject, directions: Sequence[Direction], options: Mapping[str, str]) -> str:
    """Why it is a sum of jobs of one kind: fio adds their times up; "" if it is not."""
    longest = max(direction.seconds for direction in directions)
    spent = data.get("job_runtime")
    beside = is_set(options, "verify") or is_set(options, "ramp_time")  # in that time too
    if beside or not longest or not isinstance(spent, int) or spent / 1000 < 1.5 * longest + 0.1:
        return ""
    return f"{spent / 1000:g} s of jobs in {longest:g} s: several jobs, merged by group_reporting"


# -- the work --------------------------------------------------------------------------------
def rw_of(options: Mapping[str, str]) -> str:
    """fio's rw, without a modifier; empty: not told."""
    return (options.get("rw") or options.get("readwrite") or "").partition(":")[0]


def _work(
    did: Sequence[Direction], options: Mapping[str, str]
) -> tuple[tuple[Direction, ...], tuple[tuple[str, str], ...]]:
    """The directions of a job's work, without what it did to verify; and remarks on that.

    After a pass fio reads back what was written (do_verify), in a time that only the runtime of
    reads holds; with verify_backlog also on the way, in that of writes.
    """
    rw = rw_of(options)
    unified = [d.kind for d in did] == ["mixed"]
    if unified and rw in _ONE_WAY:
        did = [replace(did[0], kind=_ONE_WAY[rw])]
    remarks = []
    if unified and "trim" in rw and rw not in _ONE_WAY:
        text = "unified_rw_reporting=mixed adds what was trimmed to what was moved"
        remarks.append(("not-apart", text))
    if options.get("verify", "0") in {"0", "none"}:
        return tuple(did), tuple(remarks)
    if rw and "trim" not in rw and (trims := [d for d in did if d.kind == "trim"]):
        did = [d for d in did if d.kind != "trim"]
        text = f"{trims[0].operations} trims of what was to be verified lie inside the window"
        remarks.append(("verify-in-window", text))
    others = [d for d in did if d.kind != "read"]
    reads = [d for d in did if d.kind == "read"]
    if reads and not others:
        remarks.append(("verify-in-window", "it verified its reads inside the window"))
        return tuple(did), tuple(remarks)
    if options.get("do_verify") == "0" and not is_set(options, "verify_backlog"):
        return tuple(did), tuple(remarks)
    if unified:
        text = "unified_rw_reporting=mixed adds the reads of its verification to its work"
        return tuple(did), (*remarks, ("not-apart", text))
    if not reads:
        return tuple(did), tuple(remarks)
    if rw not in MIXTURES and not any(d.seconds for d in others):
        text = "verify_only: nothing was written, its reads verified what was there"
        return tuple(reads), (*remarks, ("verify-in-window", text))
    if is_set(options, "verify_backlog"):
        text = f"verify_backlog={options['verify_backlog']}: it read back inside the window"
        remarks.append(("verify-in-window", text))
    work = _reads_of_work(reads[0], others, options) if rw in MIXTURES else ()
    if work == (reads[0],):
        return tuple(did), tuple(remarks)
    if work is None:
        text = "the reads of its work and those of its verification cannot be told apart"
        return tuple(did), (*remarks, ("not-apart", text))
    of_work = sum(d.operations for d in work)
    text = f"{reads[0].operations - of_work} of its reads verified the writes and are left out"
    text += ", and so are all latencies: those of the reads are of both" * bool(work)
    return (*work, *others), (*remarks, ("verify-reads", text))


def _reads_of_work(
    reads: Direction, others: Sequence[Direction], options: Mapping[str, str]
) -> tuple[Direction, ...] | None:
    """Reads of a mixture without those that read back each of its writes once.

    Together they are as many bytes as the work was asked to move, or it is not known which is
    which (None).  Latencies are then those of both, and are left out.  A job whose work took
    all its runtime has verified nothing after it.
    """
    asked, limit = amount_of(options), seconds_of(runtime_of(options))
    block = size_of(options.get("bs") or options.get("blocksize") or "4k", kb_base(options))
    written = next((d for d in others if d.kind == "write" and d.seconds), None)
    if written is None:
        return None
    seconds = written.seconds
    if limit and limit <= seconds == reads.seconds and not is_set(options, "verify_backlog"):
        return (reads,)
    operations, moved = reads.operations - written.operations, reads.bytes - written.bytes
    if not asked or not block or min(operations, moved) < 0:
        return None
    jobs = options.get("numjobs", "1")[:9]  # of which this may be the sum
    every = {1, int(jobs) if jobs.isdecimal() else 1}
    if reads.bytes not in {count * (asked - asked % block) for count in every}:
        return None
    part = replace(
        reads, bytes=moved, operations=operations, seconds=seconds, latency=None, means={}
    )
    return (part,) if operations else ()


def runtime_of(options: Mapping[str, str]) -> str:
    """Its time limit as it is told; empty: none."""
    return options.get("runtime") or options.get("timeout") or ""


def amount_of(options: Mapping[str, str]) -> int | None:
    """Bytes that a job is to move in its passes, or trim; None if that is not told plainly."""
    told = next((options[name] for name in ("io_size", "io_limit", "size") if name in options), "")
    size, loops = size_of(told, kb_base(options)), options.get("loops", "1")
    return None if size is None or not loops.isdecimal() else size * int(loops[:9])


def kb_base(options: Mapping[str, str]) -> str:
    """The base of its sizes, for `size_of`."""
    return options.get("kb_base", "")


# -- options ---------------------------------------------------------------------------------
def size_of(text: str, base: str = "") -> int | None:
    """Bytes of a size as fio reads it: 4k = 4096, but 4KiB = 4000 unless kb_base=1000.

    None: not a plain size (a percentage, a range), or too large.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    decimal = bool(match[3]) != (base == "1000")
    power = " kmgtp".index(match[2].lower()) if match[2] else 0
    size = int(match[1][:20]) * (1000 if decimal else 1024) ** power
    return size if size < LARGEST and len(match[1]) <= 20 else None


def seconds_of(text: str) -> float | None:
    """Seconds of a time as fio reads it: bare numbers are seconds.  None: not understood."""
    match = _TIME.fullmatch(text.strip())
    if match is None or len(match[1]) > 15:
        return None
    unit = (match[2] or "s").lower()
    key = "ms" if unit.startswith("ms") else unit[0]
    return int(match[1]) * _SECONDS[key]


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is given and not 0."""
    return options.get(name, "0") not in {"0", "false", "no", "none"}


# -- parts -----------------------------------------------------------------------------------
def _count(data: JsonObject, key: str, missing: int | None = None) -> int:
    value = data.get(key, missing)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DamagedError(f"{key} is missing or no whole number")
    if not 0 <= value < LARGEST:
        raise DamagedError(f"{key} is {str(value)[:30]}")
    return value


def _direction(kind: str, data: JsonObject) -> Direction:
    moved, operations = _count(data, "io_bytes"), _count(data, "total_ios")
    runtime = _count(data, "runtime")
    problems = []
    rate = data.get("bw_bytes")
    if runtime and isinstance(rate, int) and abs(rate - 1000 * moved // runtime) > 1:
        problems.append(f"bw_bytes is {rate}, but io_bytes/runtime {1000 * moved // runtime}")
    iops = data.get("iops")
    if runtime and isinstance(iops, float) and not agrees(iops, 1000 * operations / runtime, 1e-3):
        problems.append(f"iops is {iops}, but total_ios/runtime {1000 * operations / runtime:.6f}")
    kilo = data.get("io_kbytes")
    if isinstance(kilo, int) and kilo != moved >> 10:
        problems.append(f"io_kbytes is {kilo}, but io_bytes {moved}")
    if moved and not operations:
        problems.append(f"{moved} bytes in no operation")
    if operations and not runtime:
        problems.append("operations, but no runtime: a rate cannot be known")
    means = {name: mean for name in ("clat", "slat", "lat") if (mean := _means(data, name))}
    bins = {n: b for n in ("clat", "lat") if (b := inside(data, f"{n}_ns").get("bins"))}
    told = next(iter(bins), "clat")
    given = bins.get(told)
    latency = _latency(given, means.get(told), problems) if isinstance(given, Mapping) else None
    return Direction(
        kind,
        moved,
        operations,
        runtime / 1000.0,
        _count(data, "short_ios", 0),
        _count(data, "drop_ios", 0),
        latency,
        means,
        tuple(f"{kind}: {problem}" for problem in problems),
        told == "lat",
    )


def _syncs(data: JsonObject, options: Mapping[str, str]) -> Direction | None:
    """fsync and its likes; None if there was none.  (fio's total_ios counts no fdatasync.)"""
    means, problems = _means(data, "lat"), list[str]()
    bins = inside(data, "lat_ns").get("bins")
    latency = _latency(bins, means, problems) if means and isinstance(bins, Mapping) else None
    told = (means.N or 0) if means else 0
    counted = int(latency.counts.sum()) if latency else 0
    operations = max(_count(data, "total_ios", 0), told, counted)
    if not operations:
        return None
    every = {"lat": means} if means else {}
    synced = is_set(options, "fsync") or is_set(options, "fdatasync")
    kind = RANGES if is_set(options, RANGES) and not synced else FSYNC
    return Direction(kind, 0, operations, 0.0, 0, 0, latency, every, tuple(problems))


def _means(data: JsonObject, name: str) -> Means | None:
    """None where there is nothing, or nonsense."""
    section = inside(data, f"{name}_ns")
    values = {key: section.get(key) for key in ("min", "mean", "max")}
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values.values()):
        return None
    low, mean, high = (float(str(v)) if _fits(v) else math.nan for v in values.values())
    count = section.get("N")  # from fio 3.? on
    given = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < LARGEST
    if not 0 <= low <= mean <= high or (count is not None and not given):
        return None
    if count == 0 or high == 0.0:
        return None
    return Means(mean / 1e9, low / 1e9, high / 1e9, count if isinstance(count, int) else None)


def _fits(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e18


def _latency(bins: JsonObject, means: Means | None, problems: list[str]) -> Latency | None:
    """Histogram from json+ bins: their keys are the middles of our own bins, to the nanosecond.

    fio's stat.c prints plat_idx_to_val(index); anything else is a contradiction, and no histogram.
    """
    if means is None:
        problems.append("latency bins without their mean")
        return None
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    for key, value in bins.items():
        index = _INDEX.get(key)
        if index is None or type(value) is not int or not 0 <= value < 1 << 50:
            problems.append(f"latency bin {key[:20]!r}: {str(value)[:20]} is not one of fio's")
            return None
        counts[index] = value
    total = int(counts.sum())
    if means.N is not None and total != means.N:
        problems.append(f"latency bins hold {total} operations, N is {means.N:.0f}")
        return None
    return Latency(counts, means.mean * total, means.min, means.max)


_MIDDLES = histogram.lower_edges() + (histogram.upper_edges() - histogram.lower_edges()) // 2
_INDEX = {str(middle): index for index, middle in enumerate(_MIDDLES.tolist())}
