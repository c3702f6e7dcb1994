"""One job of fio's JSON: its numbers, checked one against the other.

Units of fio 3: bytes, milliseconds (runtime, job_start), nanoseconds (latencies).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.values import JsonObject, inside
from fsmatrix.results.record import Latency

LARGEST = 1 << 62
_WRITES = {"write", "randwrite"}
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

    kind: str  # read, write, trim; mixed where fio was told to unify them
    bytes: int
    operations: int
    seconds: float  # runtime, in whole milliseconds
    short: int
    dropped: int
    latency: Latency | None
    means: Mapping[str, Means]  # of clat, slat, lat
    problems: tuple[str, ...] = ()  # contradictions inside


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
    directions: tuple[Direction, ...]  # that moved something
    options: Mapping[str, str] = field(default_factory=dict)  # global ones and its own
    left_out: str = ""  # a direction that is no part of the work: reads that verify writes
    host: str = ""  # of fio's client/server mode

    @property
    def kind(self) -> str:
        """read, write, trim or mixed; empty: nothing was moved."""
        kinds = [direction.kind for direction in self.directions]
        return kinds[0] if len(kinds) == 1 else "mixed" if kinds else ""

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
    if len(sections) > 1:
        sections.pop("mixed", None)  # unified_rw_reporting=both
    directions = [_direction(kind, part) for kind, part in sections.items()]
    options = {**common, **inside(data, "job options")}
    asked = str(options.get("rw") or options.get("readwrite") or "").partition(":")[0]
    moved = tuple(d for d in directions if d.operations or d.bytes)
    verifies = asked in _WRITES and str(options.get("verify", "0")) not in {"0", "null"}
    work = tuple(d for d in moved if d.kind == "write") if verifies else moved
    return Job(
        name=str(data.get("jobname", "")),
        number=number,
        group=_count(data, "groupid"),
        error=_count(data, "error"),
        ignored_errors=_count(data, "total_err", 0),
        first_error=_count(data, "first_error", 0),
        start=_count(data, "job_start", 0) / 1000.0,
        directions=work,
        left_out="" if len(work) == len(moved) else "reads",
        options={str(key): str(value) for key, value in options.items()},
        host=str(data.get("hostname", "")),
    )


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
    """Whether a boolean option is given and not 0."""
    return options.get(name, "0") not in {"0", "false", "no"}


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
    if runtime and isinstance(iops, float) and abs(iops - 1000 * operations / runtime) > 1e-3:
        problems.append(f"iops is {iops}, but total_ios/runtime {1000 * operations / runtime:.6f}")
    kilo = data.get("io_kbytes")
    if isinstance(kilo, int) and kilo != moved >> 10:
        problems.append(f"io_kbytes is {kilo}, but io_bytes {moved}")
    if moved and not operations:
        problems.append(f"{moved} bytes in no operation")
    if operations and not runtime:
        problems.append("operations, but no runtime: a rate cannot be known")
    means = {name: mean for name in ("clat", "slat", "lat") if (mean := _means(data, name))}
    latency = None
    for name in ("clat", "lat"):
        if isinstance(bins := inside(data, f"{name}_ns").get("bins"), Mapping):
            latency = _latency(bins, means.get(name), problems)
            break
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
    )


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
