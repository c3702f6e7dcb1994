"""From fio's jobs to one phase, of one node or several, and their windows and series from logs.

Of one node: arrays over workers, histograms added, facts.

Of several nodes, on each of which fio ran the same job: bytes and operations add up, histograms add
bin by bin, windows and series are aligned by their Unix time.  Percentiles are never averaged.

Logs tell the windows of jobs on the Unix clock, and the series of bytes.  They are asked for with
`--log_avg_msec=N --log_unix_epoch=1 --per_job_logs=1`:

- `--write_lat_log` (for fio before 3.36, which has no job_start): fio closes each job's clat log
  when its loop has ended, so that the last time stamp is the job's end to the millisecond;
  its begin is that minus the runtime.  (Tried against job_start of 3.42: -1 to 0 ms off.  The
  first stamps of bandwidth logs are up to 100 ms late: the thread that writes them wakes late.)
- `--write_bw_log`: one line per N ms with the mean rate in KiB/s, without the last, open interval.
  The series is therefore approximate; it is fitted so that its sum is the job's bytes exactly.

A line: time in ms, value, direction (0 read, 1 write, 2 trim), ...
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Stored, inside, read
from fsmatrix.results.formats.fio.job import (
    DIRECTIONS,
    TURNS,
    Direction,
    Job,
    Means,
    is_set,
    kb_base,
    rw_of,
    seconds_of,
    size_of,
)
from fsmatrix.results.formats.parsed import Note, Parsed
from fsmatrix.results.record import TOTAL, Floats, Integers, Latency, Phase

START_UNCERTAINTY = 0.002  # job_start and runtime are whole milliseconds
SYNCED_SHARE = 0.9  # as audits ask of counters: fsync=32 leaves the last writes to the kernel
SYNCING = ("end_fsync", "sync", "fsync", "fdatasync", "fsync_on_close", "sync_file_range")
UNCACHED = frozenset({"rados", "dfs", "sg", "io_uring_cmd"})  # engines without a page cache
LATENCIES_DIFFER = (
    "the latencies of {} are not added up: some count from submission (lat), some do not (clat), "
    "or have no histogram"
)
WINDOW = "begin of the job's loop (open included) to its last completion; close left out"

LEAST_OVERLAP = 0.95
Nodes = Sequence[tuple[str, Parsed]]

LOG_UNCERTAINTY = 0.002  # end and runtime are whole milliseconds, and fio reads the clock twice
MOST_INTERVALS = 100_000
_NAME = re.compile(r"(?:^|.*/)[^/]*_(bw|clat)\.(\d{1,6})\.log")
_ROW = re.compile(r"^(\d{1,15}), *(\d{1,15}), *([0-2])\b", re.M)


@dataclass(frozen=True)
class Worker(Stored):
    """The job that a worker is."""

    job: str
    number: int
    host: str  # of fio's client/server mode, or of the node; may be empty


@dataclass(frozen=True)
class Moved(Stored):
    """What was moved in one direction."""

    bytes: int
    operations: int


@dataclass(frozen=True, kw_only=True)
class PhaseFacts(Stored):
    """The facts of a phase of fio."""

    window: str = WINDOW
    window_source: str  # what the windows were taken from
    synced: bool  # the data, but for a tenth or less, inside the window
    sync_requested: str  # the option that asked for it, or for a part of it; may be empty
    direct: bool  # past the page cache
    workers: tuple[Worker, ...]
    latency: Mapping[str, Mapping[str, Means]]  # kind -> clat, slat, lat
    directions: Mapping[str, Moved] | None = None  # of a mixed phase or trims, by kind
    # of a mixed phase; where fio adds both up, the shares that its options ask for
    read_bytes: int | None = None
    write_bytes: int | None = None
    shares_estimated: bool | None = None  # whether these two are only about so, by rwmixread
    overlap: float | None = None  # of the nodes' windows, 0..1


def phase_of(name: str, jobs: Sequence[Job], began: float) -> Phase:
    """`began`: Unix time of zero; 0 = the jobs' windows are not on one clock."""
    first = min(job.delay or 0.0 for job in jobs)
    start = np.array([job.start - began if began else (job.delay or 0.0) - first for job in jobs])
    every = [direction for job in jobs for direction in job.directions]
    kinds = list(dict.fromkeys(direction.kind for direction in every))
    directions = {
        kind: Moved(
            sum(d.bytes for d in every if d.kind == kind),
            sum(d.operations for d in every if d.kind == kind),
        )
        for kind in kinds
    }
    timed = [*every, *(job.syncs for job in jobs if job.syncs)]
    read, written, exact = _shares(jobs) if name == "mixed" else (None, None, True)
    facts = PhaseFacts(
        window_source="job_start" if began else "runtime",
        synced=all(_synced(job) for job in jobs),
        sync_requested=next((text for job in jobs if (text := _sync_requested(job))), ""),
        direct=all(past_cache(job) for job in jobs),
        workers=tuple(Worker(job.name, job.number, job.host) for job in jobs),
        latency={k: _means([d for d in timed if d.kind == k]) for k in _kinds(timed)},
        directions=directions if kinds not in ([name], ["mixed"]) or "trim" in kinds else None,
        read_bytes=read,
        write_bytes=written,
        shares_estimated=None if exact else True,
    )
    errors = [max(job.ignored_errors, int(job.error != 0)) for job in jobs]
    by_errno = Counter(
        errno.errorcode.get(number, str(number))
        for job in jobs
        if (number := job.error or job.first_error)
    )
    return Phase(
        name=name,
        start=start,
        end=start + np.array([job.seconds for job in jobs]),
        bytes=_whole([sum(d.bytes for d in job.moved) for job in jobs]),
        operations=_whole([sum(d.operations for d in job.moved or job.directions) for job in jobs]),
        errors=_whole(errors),
        latency=complete(_added(timed), kinds),
        began=began,
        clock_uncertainty=START_UNCERTAINTY if began else 0.0,
        errors_by_errno=dict(by_errno),
        facts=facts.document(),
    )


# -- when the jobs began, where fio does not say it (job_start: 3.36 on, no group_reporting) -------
def in_turn(jobs: Sequence[Job]) -> list[Job]:
    """The jobs of a document, in its order, with their `delay` by startdelay and wait_for."""
    ends: dict[str, float] = {}
    placed = []
    for job in jobs:
        delay = seconds_of(job.options.get("startdelay", "0"))
        if delay is not None and (other := job.options.get("wait_for")):
            delay = ends[other] + delay if other in ends else None
        placed.append(replace(job, delay=delay))
        if delay is not None:
            ends[job.name] = max(ends.get(job.name, 0.0), delay + job.seconds)
    return placed


def unknown_turns(jobs: Sequence[Job]) -> str:
    """Why it is not known which jobs of a group worked at the same time; "" if it is."""
    for job in jobs:
        if told := [f"{name}={job.turns[name]}" for name in TURNS if name in job.turns]:
            return (
                f"its jobs did not begin together ({', '.join(told)}), and group_reporting lost "
                "when each of them worked: run fio without group_reporting"
            )
        if job.delay is None and len(jobs) > 1:
            told = [f"{name}={job.options[name]}" for name in TURNS if name in job.options]
            return f"when job {job.name} began is not known ({', '.join(told)})"
    return ""


# -- what they moved -------------------------------------------------------------------------
def _whole(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _kinds(directions: Sequence[Direction]) -> list[str]:
    return list(dict.fromkeys(direction.kind for direction in directions))


def _shares(jobs: Sequence[Job]) -> tuple[int, int, bool]:
    """Bytes read and written, and whether exactly; of a sum of both, as its options divide it."""
    read = written = 0
    exact = True
    for job in jobs:
        sums = [_written_of(d, job.options) for d in job.moved if d.kind == "mixed"]
        of_sums = sum(bytes_ for bytes_, _ in sums)
        exact = exact and all(sure for _, sure in sums)
        read += sum(d.bytes for d in job.moved if d.kind in ("read", "mixed")) - of_sums
        written += sum(d.bytes for d in job.moved if d.kind == "write") + of_sums
    return read, written, exact


def _written_of(both: Direction, options: Mapping[str, str]) -> tuple[int, bool]:
    """Bytes written of a sum of reads and writes, and whether exactly.

    Two sizes of blocks tell it exactly; else rwmixread, a share of the operations, does about.
    """
    if "trim" in rw_of(options):
        return both.bytes, True
    first, comma, second = (options.get("bs") or options.get("blocksize") or "").partition(",")
    sizes = [size_of(text, kb_base(options)) for text in (first, second.partition(",")[0])]
    of_read, of_write = sizes[0] or 1, (sizes[1] if comma and second else sizes[0]) or 1
    share = 1 - _read_share(options)
    if of_read != of_write and None not in sizes:
        writes, rest = divmod(both.bytes - both.operations * of_read, of_write - of_read)
        if rest == 0 and 0 <= writes <= both.operations:
            return writes * of_write, True
    weight = share * of_write
    return round(both.bytes * weight / (weight + (1 - share) * of_read)), False


def _read_share(options: Mapping[str, str]) -> float:
    """Of a mixture's operations, 0..1; half where nothing is asked for."""
    asked, writes = options.get("rwmixread", ""), options.get("rwmixwrite", "")
    if not asked.isdecimal() and writes.isdecimal():
        return 1 - min(int(writes[:4]), 100) / 100
    return min(int(asked[:4]), 100) / 100 if asked.isdecimal() else 0.5


def past_cache(job: Job) -> bool:
    """Whether its data does not pass the page cache."""
    options = job.options
    direct = is_set(options, "direct") or is_set(options, "atomic")
    return direct or options.get("buffered") == "0" or options.get("ioengine") in UNCACHED


def _synced(job: Job) -> bool:
    """Whether the data, but for a tenth or less, was synced inside the window."""
    if is_set(job.options, "end_fsync") or is_set(job.options, "sync"):
        return True
    written = sum(d.operations for d in job.moved if d.kind != "read")
    asked = [job.options.get(name, "0")[:18] for name in ("fsync", "fdatasync")]
    every = min((int(n) for n in asked if n.isdecimal() and int(n)), default=0)
    done = job.syncs.operations if job.syncs else 0
    syncs = done if done or job.syncs_told or not every else written // every
    return every > 0 and syncs * every >= SYNCED_SHARE * written


def _sync_requested(job: Job) -> str:
    given = (name for name in SYNCING if is_set(job.options, name))
    return next((f"{name}={job.options[name]}" for name in given), "")


def _added(every: Sequence[Direction]) -> dict[str, Latency]:
    """Histograms of all jobs by kind, bin by bin.

    Without kinds of which a job has none, or of which jobs count from other moments.
    """
    latencies = {}
    for kind in _kinds(every):
        parts = [direction for direction in every if direction.kind == kind]
        whole = [part.latency for part in parts if part.latency is not None]
        if len(whole) == len(parts) and len({part.total for part in parts}) == 1:
            latencies[kind + TOTAL * parts[0].total] = summed(whole)
    return latencies


def complete(latencies: Mapping[str, Latency], kinds: Iterable[str]) -> dict[str, Latency]:
    """Histograms of all of these kinds, or of none: a mean over the rest would be the rest's.

    Kinds beside them, such as fsync, stay.
    """
    there = {kind: kind.partition("/")[0] for kind in latencies}
    whole = set(kinds) <= set(there.values())
    return {kind: latencies[kind] for kind in there if whole or there[kind] not in set(kinds)}


def summed(parts: Sequence[Latency]) -> Latency:
    """One histogram of several of the same kind."""
    return Latency(
        counts=np.sum([part.counts for part in parts], axis=0, dtype=np.int64),
        total=sum(part.total for part in parts),
        minimum=min(part.minimum for part in parts),
        maximum=max(part.maximum for part in parts),
    )


def _means(directions: Sequence[Direction]) -> dict[str, Means]:
    """By clat, slat and lat."""
    means = {}
    for name in ("clat", "slat", "lat"):
        given = [d.means[name] for d in directions if name in d.means]
        if len(given) == len(directions) and all(part.N is not None for part in given):
            means[name] = mean_of(given)
    return means


def mean_of(parts: Sequence[Means]) -> Means:
    """Of parts that tell their numbers; the mean weighs by them."""
    count = sum(part.N or 0 for part in parts)
    return Means(
        sum(part.mean * (part.N or 0) for part in parts) / count,
        min(part.min for part in parts),
        max(part.max for part in parts),
        count,
    )


def shifted(parsed: Parsed, seconds: float, uncertainty: float) -> Parsed:
    """The same run with its clock put forward; `uncertainty` is added to the windows' own."""
    return replace(
        parsed,
        phases=tuple(
            replace(
                phase,
                began=phase.began + seconds,
                clock_uncertainty=phase.clock_uncertainty + uncertainty,
            )
            if phase.began
            else phase
            for phase in parsed.phases
        ),
    )


def merge_nodes(nodes: Nodes) -> Parsed:
    """One run from (host, its run), at least one; the failure of a node is the run's."""
    notes = [
        replace(note, message=f"{host}: {note.message}" if len(nodes) > 1 else note.message)
        for host, parsed in nodes
        for note in parsed.notes
    ]
    versions = sorted({parsed.version for _, parsed in nodes})
    if len(versions) > 1:
        notes.append(Note("versions-differ", f"the nodes run fio {' and '.join(versions)}"))
    failures = [
        f"{host}: {parsed.failure}" if len(nodes) > 1 else parsed.failure
        for host, parsed in nodes
        if parsed.failure
    ]
    phases = []
    names = list(dict.fromkeys(p.name for _, parsed in nodes for p in parsed.phases))
    for name in names:
        parts = [(host, p) for host, run in nodes for p in run.phases if p.name == name]
        missing = [host for host, run in nodes if all(p.name != name for p in run.phases)]
        if missing:
            failures.append(f"no {name} on {', '.join(missing)}")
        phases.append(_phase_of_nodes(parts, notes))
    processes = [parsed.processes for _, parsed in nodes]
    first = nodes[0][1]
    return replace(
        first,
        version=" and ".join(versions),
        phases=tuple(phases),
        nodes=len(nodes),
        processes=None if None in processes else sum(n for n in processes if n is not None),
        started=min((parsed.started for _, parsed in nodes if parsed.started), default=""),
        failure="; ".join(failures),
        notes=tuple(dict.fromkeys(notes)),
        facts={**first.facts, "hosts": [host for host, _ in nodes]},
    )


def overlap(parts: Sequence[Phase]) -> float:
    """(earliest end - latest start) / (latest end - earliest start) of nodes, 0..1."""
    starts = [p.began + float(p.start.min()) for p in parts]
    ends = [p.began + float(p.end.max()) for p in parts]
    whole = max(ends) - min(starts)
    return max(min(ends) - max(starts), 0.0) / whole if whole > 0 else 1.0


def _phase_of_nodes(parts: Sequence[tuple[str, Phase]], notes: list[Note]) -> Phase:
    phases = [phase for _, phase in parts]
    first = phases[0]
    began = min(phase.began for phase in phases)  # 0: at least one is on no clock
    facts = _facts(parts)
    if len(phases) > 1 and began:
        facts = replace(facts, overlap=(share := overlap(phases)))
        if share < LEAST_OVERLAP:
            text = f"the windows of the nodes overlap by {share:.0%} only"
            notes.append(Note("nodes-overlap", text, phase=first.name))
    elif len(phases) > 1:
        facts = replace(facts, window_source="runtime")
        text = "the nodes' windows are on no common clock: their overlap is unknown"
        notes.append(Note("nodes-unaligned", text, phase=first.name))
    move = [phase.began - began if began else 0.0 for phase in phases]
    width, series = _series_of_nodes(phases, move) if began else (0.0, None)
    errors: dict[str, int] = {}
    for phase in phases:
        for name, count in phase.errors_by_errno.items():
            errors[name] = errors.get(name, 0) + count
    return Phase(
        name=first.name,
        start=_joined([p.start + m for p, m in zip(phases, move, strict=True)]),
        end=_joined([p.end + m for p, m in zip(phases, move, strict=True)]),
        bytes=np.concatenate([phase.bytes for phase in phases]),
        operations=np.concatenate([phase.operations for phase in phases]),
        errors=np.concatenate([phase.errors for phase in phases]),
        latency=_latencies(phases, notes),
        interval=width,
        interval_bytes=series,
        began=began,
        clock_uncertainty=max(phase.clock_uncertainty for phase in phases) if began else 0.0,
        errors_by_errno=errors,
        facts=facts.document(),
    )


def _facts(parts: Sequence[tuple[str, Phase]]) -> PhaseFacts:
    every = [(host, read(PhaseFacts, phase.facts, "facts")) for host, phase in parts]
    first = every[0][1]
    return replace(
        first,
        workers=tuple(
            replace(worker, host=worker.host or host)
            for host, facts in every
            for worker in facts.workers
        ),
        synced=all(facts.synced for _, facts in every),
        direct=all(facts.direct for _, facts in every),
        read_bytes=_sum([facts.read_bytes for _, facts in every]),
        write_bytes=_sum([facts.write_bytes for _, facts in every]),
        shares_estimated=any(facts.shares_estimated for _, facts in every) or None,
        latency=_means_of_nodes([facts.latency for _, facts in every]),
        directions=None
        if first.directions is None
        else _directions([facts.directions or {} for _, facts in every]),
    )


def _sum(parts: Sequence[int | None]) -> int | None:
    told = [part for part in parts if part is not None]
    return sum(told) if told else None


def _joined(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate(arrays)


def _latencies(phases: Sequence[Phase], notes: list[Note]) -> dict[str, Latency]:
    """Sums of histograms; without kinds of which a node has operations but no such bins."""
    latencies = {}
    for kind in dict.fromkeys(kind for phase in phases for kind in phase.latency):
        plain = kind.partition("/")[0]
        did = [p for p in phases if kind in p.latency or plain in inside(p.facts, "latency")]
        if all(kind in phase.latency for phase in did):
            latencies[kind] = summed([phase.latency[kind] for phase in did])
        else:
            notes.append(Note("left-out", LATENCIES_DIFFER.format(plain), phase=phases[0].name))
    did_any = {kind for phase in phases for kind in inside(phase.facts, "latency")}
    return complete(latencies, did_any & {*DIRECTIONS})


def _means_of_nodes(
    nodes: Sequence[Mapping[str, Mapping[str, Means]]],
) -> dict[str, dict[str, Means]]:
    """Means weighed by their number of operations; only what every node tells of a kind it did."""
    means: dict[str, dict[str, Means]] = {}
    for kind in dict.fromkeys(kind for node in nodes for kind in node):
        did = [node[kind] for node in nodes if kind in node]
        means[kind] = {}
        for name in ("clat", "slat", "lat"):
            given = [values[name] for values in did if name in values]
            if not given or len(given) != len(did):
                continue
            means[kind][name] = mean_of(given)
    return means


def _directions(nodes: Sequence[Mapping[str, Moved]]) -> dict[str, Moved]:
    directions: dict[str, Moved] = {}
    for node in nodes:
        for kind, moved in node.items():
            sums = directions.get(kind, Moved(0, 0))
            directions[kind] = Moved(sums.bytes + moved.bytes, sums.operations + moved.operations)
    return directions


def _series_of_nodes(
    phases: Sequence[Phase], move: Sequence[float]
) -> tuple[float, Integers | None]:
    """Series on one grid from the common zero; none unless every node has one."""
    if any(phase.interval_bytes is None or phase.interval <= 0 for phase in phases):
        return 0.0, None
    width = max(phase.interval for phase in phases)
    length = max(float(p.end.max()) + m for p, m in zip(phases, move, strict=True))
    edges = np.arange(int(np.ceil(length / width)) + 2) * width
    total = np.zeros(len(edges))
    for phase, ahead in zip(phases, move, strict=True):
        assert phase.interval_bytes is not None
        times = np.arange(len(phase.interval_bytes) + 1) * phase.interval + ahead
        times[-1] = min(times[-1], max(float(phase.end.max()) + ahead, times[-2]))
        total += np.interp(edges, times, np.append(0, np.cumsum(phase.interval_bytes)))
    series: Integers = np.diff(np.round(total)).astype(np.int64)
    last = int(np.flatnonzero(series)[-1]) + 1 if series.any() else 1
    return width, series[:last]


@dataclass(frozen=True)
class JobLog:
    """What one log says; `rows` [entry, (ms, value, direction)]."""

    rows: npt.NDArray[np.int64]

    @property
    def last(self) -> float:
        """Time of the last entry, seconds."""
        return float(self.rows[:, 0].max()) / 1e3


def read_logs(files: Mapping[str, str]) -> dict[tuple[str, int], JobLog]:
    """("bw" or "clat", number of the job) -> log, of all files that are such logs.

    Lines that are damaged are left out.
    """
    logs = {}
    for name, text in files.items():
        if (match := _NAME.fullmatch(name)) and (rows := _ROW.findall(text)):
            table = np.array(rows, dtype=np.int64).reshape(-1, 3)
            logs[match[1], int(match[2])] = JobLog(table)
    return logs


def with_logs(parsed: Parsed, files: Mapping[str, str]) -> Parsed:
    """The same run with windows (where job_start did not give them) and interval series."""
    logs = read_logs(files)
    notes: list[Note] = []
    phases = []
    for phase in parsed.phases:
        placed = phase if phase.began else _placed(phase, logs, notes)
        phases.append(_with_series(placed, logs))
    return replace(parsed, phases=tuple(phases), notes=(*parsed.notes, *notes))


def _numbers(phase: Phase) -> list[int]:
    return [worker.number for worker in read(PhaseFacts, phase.facts, "facts").workers]


def _placed(phase: Phase, logs: Mapping[tuple[str, int], JobLog], notes: list[Note]) -> Phase:
    """Windows on the Unix clock, if every worker's clat log tells its end."""
    numbers = _numbers(phase)
    if any(("clat", number) not in logs for number in numbers):
        notes.append(Note("no-window", "fio's logs do not tell when its jobs ran", 0, phase.name))
        return phase
    ends = np.array([logs["clat", number].last for number in numbers])
    starts = ends - (phase.end - phase.start)
    began = float(starts.min())
    return replace(
        phase,
        start=starts - began,
        end=ends - began,
        began=began,
        clock_uncertainty=LOG_UNCERTAINTY,
        facts={**phase.facts, "window_source": "end of the clat log minus runtime"},
    )


def _with_series(phase: Phase, logs: Mapping[tuple[str, int], JobLog]) -> Phase:
    """Bytes per interval, all workers; none without a bandwidth log of every worker."""
    numbers = _numbers(phase)
    if not phase.began or any(("bw", number) not in logs for number in numbers):
        return phase
    tables = [logs["bw", number].rows for number in numbers]
    width = _period(tables)
    length = float(phase.end.max())
    if not 0 < length / width <= MOST_INTERVALS:
        return phase
    edges = np.arange(int(np.ceil(length / width)) + 1) * width
    total = np.zeros(len(edges))
    for worker, rows in enumerate(tables):
        start, end = float(phase.start[worker]), float(phase.end[worker])
        times, moved = _moved(rows, phase.began, start, end, int(phase.bytes[worker]), width)
        total += np.interp(edges, times, moved)
    return replace(
        phase,
        interval=width,
        interval_bytes=np.diff(np.round(total)).astype(np.int64),
        facts={**phase.facts, "interval_source": "mean rates of the bandwidth logs, fitted"},
    )


def _period(tables: list[Integers]) -> float:
    """log_avg_msec as the entries show it, seconds; 0.1 where there are too few of them."""
    steps = np.concatenate([np.diff(np.unique(rows[:, 0])) for rows in tables])
    steps = steps[steps > 1]
    return float(np.round(np.median(steps), -1) or 10) / 1e3 if steps.size else 0.1


def _moved(
    rows: Integers, began: float, start: float, end: float, total: int, width: float
) -> tuple[Floats, Floats]:
    """Times (relative to `began`, rising) and the bytes moved until each of them."""
    times = np.unique(rows[:, 0])
    rate = np.zeros(len(times))
    np.add.at(rate, np.searchsorted(times, rows[:, 0]), rows[:, 1].astype(np.float64) * 1024)
    relative = times / 1e3 - began
    inside = (relative > start) & (relative < end)
    relative, rate = relative[inside], rate[inside]
    gaps = np.minimum(np.diff(relative, prepend=start), 2 * width)
    bytes_ = np.cumsum(rate * gaps)
    if bytes_.size and bytes_[-1] > total:
        bytes_ *= total / bytes_[-1]
    return np.concatenate(([start], relative, [end])), np.concatenate(([0.0], bytes_, [total]))
