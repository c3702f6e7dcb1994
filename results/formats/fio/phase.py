"""From fio's jobs to one phase: arrays over workers, histograms added, facts."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.formats.fio.job import (
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
from fsmatrix.results.record import TOTAL, Integers, Latency, Phase

START_UNCERTAINTY = 0.002  # job_start and runtime are whole milliseconds
SYNCED_SHARE = 0.9  # as audits ask of counters: fsync=32 leaves the last writes to the kernel
SYNCING = ("end_fsync", "sync", "fsync", "fdatasync", "fsync_on_close", "sync_file_range")
UNCACHED = frozenset({"rados", "dfs", "sg", "io_uring_cmd"})  # engines without a page cache
LATENCIES_DIFFER = (
    "the latencies of {} are not added up: some count from submission (lat), some do not (clat), "
    "or have no histogram"
)
WINDOW = "begin of the job's loop (open included) to its last completion; close left out"


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
