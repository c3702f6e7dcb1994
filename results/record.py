"""The record of one run: what every engine's output becomes before it is stored.

Times are seconds; inside a phase, zero is the phase's agreed start on the common clock.
A worker ("rank") is an MPI rank, a fio job or a database connection; arrays over workers
have one element where an engine gives only totals.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.evidence import Evidence, Rank
from fsmatrix.results.evidence.stored import Json, JsonObject, Level

# Cases and their ids: one combination of levels, hashed from its canonical JSON.
#
# The canonical JSON holds only what differs from a released default, so adding an option
# with a default changes no id.  It never holds paths, hosts, devices, credentials or engine
# versions.  `work_id` leaves the target out: it pairs runs of the same work across targets.


ID_LENGTH = 16
DEFAULT_CACHE = "cold"
DEFAULT_DEVICE_STATE = "as_found"


@dataclass(frozen=True)
class Geometry:
    """Client nodes x processes per node x threads per process."""

    nodes: int = 1
    processes_per_node: int = 1
    threads: int = 1

    @property
    def processes(self) -> int:
        """Ranks of the run: nodes x processes per node."""
        return self.nodes * self.processes_per_node


@dataclass(frozen=True)
class Case:
    """One combination of levels.  `options` and `level` hold non-default values only."""

    target: str
    workload: str
    options: Mapping[str, Json] = field(default_factory=dict)
    geometry: Geometry = Geometry()
    cache: str = DEFAULT_CACHE
    device_state: str = DEFAULT_DEVICE_STATE
    level: Level = field(default_factory=dict)

    def work(self) -> dict[str, Json]:
        """What is done, without where: the content of `work_id`."""
        geometry = {
            name: value
            for name, value in vars(self.geometry).items()
            if value != getattr(Geometry, name)
        }
        work: dict[str, Json] = {"workload": self.workload}
        if self.options:
            work["options"] = dict(self.options)
        if geometry:
            work["geometry"] = geometry
        if self.cache != DEFAULT_CACHE:
            work["cache"] = self.cache
        return work

    def whole(self) -> dict[str, Json]:
        """Work and target: the content of `case_id` and of the canonical JSON."""
        whole = self.work() | {"target": self.target}
        if self.level:
            whole["level"] = dict(self.level)
        if self.device_state != DEFAULT_DEVICE_STATE:
            whole["device_state"] = self.device_state
        return whole

    @property
    def canonical(self) -> str:
        """Canonical JSON of the case."""
        return canonical_json(self.whole())

    @property
    def case_id(self) -> str:
        """16 hexadecimal digits of SHA-256 of the canonical JSON."""
        return digest(self.whole())

    @property
    def work_id(self) -> str:
        """As `case_id`, of the work alone."""
        return digest(self.work())

    @classmethod
    def from_canonical(cls, text: str) -> Case:
        """The case whose canonical JSON is `text`; ValueError if it is none."""
        data = json.loads(text)
        if not isinstance(data, dict) or "workload" not in data or "target" not in data:
            raise ValueError(f"not the canonical JSON of a case: {text[:80]!r}")
        return cls(
            target=data["target"],
            workload=data["workload"],
            options=data.get("options", {}),
            geometry=Geometry(**data.get("geometry", {})),
            cache=data.get("cache", DEFAULT_CACHE),
            device_state=data.get("device_state", DEFAULT_DEVICE_STATE),
            level=data.get("level", {}),
        )


def canonical_json(value: Any) -> str:
    """Sorted keys, no blanks, ASCII, whole floats as integers: equal values, equal text."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """The id of a JSON-able value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Status = Literal["ok", "failed", "timeout"]
Severity = Literal["info", "warning", "invalid"]
FSYNC = "fsync"  # kind of operation: fsync, fdatasync and their likes
OPERATIONS_UNKNOWN = "operations_unknown"  # fact of a phase: true where `operations` say nothing
TOTAL = "/total"  # ends a kind whose latencies count from submission, where others' do not
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "invalid")


@dataclass(frozen=True)
class Latency:
    """Latencies of one kind of operation over all workers (histogram.py's bins).

    `service`: time from call to completion.  Under an open loop `counts` are from the
    intended issue time, and the service times stand in a kind of their own ("read/service").
    Of fio they are from submitted to completed (clat); where it tells only those from the begin
    of the submission (lat) their kind is another one ("read/total").
    """

    counts: Integers  # [bin], histogram.BINS long
    total: float  # sum of all latencies, seconds
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Phase:
    """A timed part of a run.  Arrays over workers have shape [rank]."""

    name: str  # write, read, mixed, create, stat, remove, ...
    start: Floats  # first operation (open included) began
    end: Floats  # last operation (close included) ended
    bytes: Integers
    operations: Integers  # completed data operations; metadata operations in metadata phases;
    # 0 and a fact OPERATIONS_UNKNOWN where an output does not tell them
    errors: Integers
    io_start: Floats | None = None  # first data operation began (the window as fio opens it)
    io_end: Floats | None = None  # last data operation ended
    overhead: Floats | None = None  # seconds spent filling and verifying buffers
    latency: Mapping[str, Latency] = field(default_factory=dict)  # by kind of operation
    interval: float = 0.0  # width of one interval of the series, seconds; 0 = no series
    interval_bytes: Integers | None = None  # [interval], all workers
    interval_operations: Integers | None = None
    began: float = 0.0  # Unix time of the agreed start
    clock_uncertainty: float = 0.0  # largest uncertainty of a worker's clock offset, seconds
    errors_by_errno: Mapping[str, int] = field(default_factory=dict)  # "ENOSPC" -> count
    facts: JsonObject = field(default_factory=dict)  # stonewall, wear-out, ...
    interval_latency_max: Floats | None = None  # [interval], seconds; NaN: not told
    iterations: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # iterations.COLUMNS
    summary: Mapping[str, float] = field(default_factory=dict)  # engine's own: iterations.SUMMARY
    # latencies over time: operations of all workers that completed in an interval, by sort of
    # operation (read, write, other) -> [interval, histogram.COARSE]
    timeline: Mapping[str, Integers] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """What an audit found: the measurement is not what it seems."""

    audit: str
    version: int
    severity: Severity
    message: str
    advice: str = ""
    phase: str = ""
    evidence: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Monitor:
    """Series sampled during the run, one row per kernel, or per storage node."""

    hosts: tuple[str, ...]
    time: Floats  # [sample], Unix time
    series: Mapping[str, Floats] = field(default_factory=dict)  # metric -> [host, sample]
    units: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether a host has a sample at a time, shape [host, sample]: a value of any series."""
        found = np.zeros((len(self.hosts), len(self.time)), dtype=np.bool_)
        for values in self.series.values():
            found |= ~np.isnan(values)
        return found

    def total(self, begins: tuple[str, ...]) -> Floats:
        """The sum of all series whose names begin so, [host, sample]; NaN where none is known."""
        summed = np.full((len(self.hosts), len(self.time)), np.nan)
        for name, values in self.series.items():
            if name.startswith(begins):
                there = ~np.isnan(values)
                summed[there] = np.where(np.isnan(summed), 0.0, summed)[there] + values[there]
        return summed


@dataclass(frozen=True)
class RunRecord:
    """One execution of a case; written as one HDF5 file."""

    case: str  # canonical JSON
    case_id: str
    work_id: str
    repetition: int
    attempt: int
    block: int
    attachment: str  # unique id of the mounting/provisioning of a target level
    session: str
    status: Status
    engine: str  # player-c, player-python, ior, fio, ...
    engine_version: str
    started: str  # UTC, ISO 8601
    duration: float = 0.0  # seconds of wall time, all steps together
    job: str = ""
    error: str = ""  # why it failed, one sentence
    failure: JsonObject = field(default_factory=dict)  # rank, host, errno, file, offset
    argv: tuple[tuple[str, ...], ...] = ()  # of each program, as started: with its launcher
    coordinates: JsonObject = field(default_factory=dict)  # factor -> level, defaults too
    environment: JsonObject = field(default_factory=dict)  # provenance
    companions: tuple[str, ...] = ()
    ranks: tuple[Rank, ...] = ()
    phases: tuple[Phase, ...] = ()
    monitor: Monitor | None = None
    nodes: Monitor | None = None  # of the storage nodes: series as in evidence.nodes.METRICS
    evidence: Evidence = field(default_factory=Evidence)
    findings: tuple[Finding, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)  # engines' outputs by name, as printed

    @property
    def run_id(self) -> str:
        """(case_id, repetition, attempt) as text; the name of the run's file."""
        return f"{self.case_id}-r{self.repetition:04d}-a{self.attempt}"


# Metrics of a phase, computed from what was measured and nothing else.


def window(phase: Phase) -> float:
    """Seconds from the earliest start to the latest end over all workers."""
    if phase.start.size == 0:
        return 0.0
    return float(np.max(phase.end) - np.min(phase.start))


def bandwidth(phase: Phase) -> float:
    """Bytes per second: sum of bytes / window; NaN for an empty window."""
    seconds = window(phase)
    return float(phase.bytes.sum()) / seconds if seconds > 0 else float("nan")


def operations(phase: Phase) -> float:
    """Completed operations of all workers; NaN where they are not known."""
    unknown = phase.facts.get(OPERATIONS_UNKNOWN)
    return float("nan") if unknown else float(phase.operations.sum())


def iops(phase: Phase) -> float:
    """Operations per second: sum of operations / window; NaN where one of them is not known."""
    seconds = window(phase)
    return operations(phase) / seconds if seconds > 0 else float("nan")


def window_of(phase: Phase) -> float:
    """Seconds from the first to the last data operation of all workers; NaN if unknown."""
    if phase.io_start is None or phase.io_end is None or phase.io_start.size == 0:
        return float("nan")
    return float(np.max(phase.io_end) - np.min(phase.io_start))


def first_finisher_rate(phase: Phase) -> float:
    """Bytes per second until the first worker finished: what all had moved by then.

    Bytes moved by then come from the interval series, linear within an interval.  With one
    worker it is the bandwidth; NaN without a series that reaches until then, and NaN if no bytes
    were moved.
    """
    if phase.start.size == 0 or not phase.bytes.any():
        return float("nan")
    if phase.start.size == 1:
        return bandwidth(phase)
    if phase.interval_bytes is None or not phase.interval > 0 or phase.interval_bytes.size == 0:
        return float("nan")
    first = float(np.min(phase.end))
    seconds = first - float(np.min(phase.start))
    edges = np.arange(phase.interval_bytes.size + 1) * phase.interval
    if first > edges[-1] * (1 + 1e-9):
        return float("nan")
    moved = np.interp(first, edges, np.append(0, np.cumsum(phase.interval_bytes)))
    return float(moved) / seconds if seconds > 0 else float("nan")
