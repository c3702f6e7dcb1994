"""From fio's jobs to one phase: arrays over workers, histograms added, facts."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.formats.fio.job import Direction, Job, Means, is_set
from fsmatrix.results.record import Integers, Latency, Phase

START_UNCERTAINTY = 0.002  # job_start and runtime are whole milliseconds
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
    synced: bool
    workers: tuple[Worker, ...]
    latency: Mapping[str, Mapping[str, Means]]  # kind -> clat, slat, lat
    directions: Mapping[str, Moved] | None = None  # of a mixed phase, by kind
    overlap: float | None = None  # of the nodes' windows, 0..1


def phase_of(name: str, jobs: Sequence[Job], began: float) -> Phase:
    """`began`: Unix time of zero; 0 = the jobs' windows are not on one clock."""
    start = np.array([job.start - began if began else 0.0 for job in jobs])
    every = [direction for job in jobs for direction in job.directions]
    kinds = list(dict.fromkeys(direction.kind for direction in every))
    directions = {
        kind: Moved(
            sum(d.bytes for d in every if d.kind == kind),
            sum(d.operations for d in every if d.kind == kind),
        )
        for kind in kinds
    }
    facts = PhaseFacts(
        window_source="job_start" if began else "runtime",
        synced=all(_synced(job) for job in jobs),
        workers=tuple(Worker(job.name, job.number, job.host) for job in jobs),
        latency={kind: _means([d for d in every if d.kind == kind]) for kind in kinds},
        directions=directions if name == "mixed" and kinds != ["mixed"] else None,
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
        bytes=_whole([sum(d.bytes for d in job.directions) for job in jobs]),
        operations=_whole([sum(d.operations for d in job.directions) for job in jobs]),
        errors=_whole(errors),
        latency={kind: latency for kind in kinds if (latency := _added(every, kind)) is not None},
        began=began,
        clock_uncertainty=START_UNCERTAINTY if began else 0.0,
        errors_by_errno=dict(by_errno),
        facts=facts.document(),
    )


def _whole(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _synced(job: Job) -> bool:
    """Whether the data was synced inside the window."""
    if is_set(job.options, "end_fsync"):
        return True
    return any(job.options.get(name) == "1" for name in ("fsync", "fdatasync"))


def _added(every: Sequence[Direction], kind: str) -> Latency | None:
    """Histograms of all jobs, bin by bin; None if one of them has none."""
    latencies = [direction.latency for direction in every if direction.kind == kind]
    whole = [latency for latency in latencies if latency is not None]
    if len(whole) != len(latencies):
        return None
    return Latency(
        counts=np.sum([latency.counts for latency in whole], axis=0, dtype=np.int64),
        total=sum(latency.total for latency in whole),
        minimum=min(latency.minimum for latency in whole),
        maximum=max(latency.maximum for latency in whole),
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
