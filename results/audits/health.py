"""Audits of the storage system's health while it was measured, and of I/O that stood still.

What a storage system says of itself has three weights.  It serves no I/O, of some clients at
least (BLOCKED): the run is invalid, unless its own latencies show that none of its operations
waited.  It is impaired (a daemon is down, data moves): the number may mean something else, and
it is invalid if the run's own operations stood still meanwhile.  What says nothing about speed
or data never gets here (`backends/ceph/state/health.py`, HARMLESS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fsmatrix.results.audits.base import Audit, Remark, window
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.record import Phase, RunRecord

# checks of Ceph by which it says that operations wait or cannot be done: slow operations have
# waited for 30 s and more (osd_op_complaint_time, mds_op_complaint_time)
BLOCKED = re.compile(
    r"\b(SLOW_OPS|REQUEST_SLOW|REQUEST_STUCK|MDS_SLOW_REQUEST|MDS_SLOW_METADATA_IO"
    r"|PG_AVAILABILITY|OSD_FULL|POOL_FULL|FS_DEGRADED|MDS_ALL_DOWN|FS_WITH_FAILED_MDS)\b"
)
STUDIED = frozenset({"degraded", "recovering"})  # of the attribute `health` of a target
STALL = 1.0  # seconds: far above an operation of a system that works, below any failover
STALL_SHARE = 0.1  # of the window: below, the rate is wrong by less than other audits allow
STALL_TIMES = 100  # the mean latency: a long operation among as long ones is no stall
WAITING = frozenset({"fsync", "close"})  # kinds that wait for what others left in memory


def longest(phase: Phase, *, waiting: bool) -> float | None:
    """Seconds of the longest operation, with those of WAITING if asked; None if not recorded.

    Service times of an open loop count, times from the intended issue do not.
    """
    chosen = [
        kind
        for kind in phase.latency
        if f"{kind}/service" not in phase.latency
        and (waiting or kind.partition("/")[0] not in WAITING)
    ]
    maxima = [phase.latency[kind].maximum for kind in chosen if phase.latency[kind].counts.any()]
    return max(maxima, default=None)


def stalled(phase: Phase, *, waiting: bool) -> bool | None:
    """Whether one operation took a second, and a tenth of the window; None if not recorded."""
    worst = longest(phase, waiting=waiting)
    return None if worst is None else worst >= max(STALL, STALL_SHARE * window(phase))


def storage_unhealthy(record: RunRecord) -> Iterator[Remark]:
    """The storage system said that something was wrong with it."""
    studied = record.coordinates.get("health") in STUDIED
    phases = {phase.name: phase for phase in record.phases}
    for name, sentences in record.evidence.health.items():
        if not sentences:
            continue
        why = _why_invalid(phases.get(name), sentences)
        message = "; ".join(sentences) + (f": {why}" if why else "")
        evidence: dict[str, Json] = {"health": list(sentences), "blocked": bool(why)}
        if studied:
            yield "info", name, f"{message} (declared: it is what is studied)", evidence
        else:
            yield "invalid" if why else "warning", name, message, evidence


def _why_invalid(phase: Phase | None, sentences: Sequence[str]) -> str:
    if any("HEALTH_ERR" in sentence for sentence in sentences):
        return "the system reports an error state"
    blocked = any(BLOCKED.search(sentence) for sentence in sentences)
    if phase is None:  # the run has no number of it
        return "operations were blocked" if blocked else ""
    waited = stalled(phase, waiting=blocked)
    if waited:
        took, seconds = longest(phase, waiting=blocked), window(phase)
        return f"an operation of this run took {took:.3g} s of a window of {seconds:.3g} s"
    if blocked and waited is None:
        return "operations were blocked, and it is not known whether this run's were among them"
    return ""


def io_stalled(record: RunRecord) -> Iterator[Remark]:
    """One operation took a large part of the window, whatever the storage says of itself."""
    for phase in record.phases:
        worst = longest(phase, waiting=False)
        if worst is None or not stalled(phase, waiting=False):
            continue
        kinds = [latency for kind, latency in phase.latency.items() if kind not in WAITING]
        count = sum(int(latency.counts.sum()) for latency in kinds)
        rest = (sum(latency.total for latency in kinds) - worst) / max(count - 1, 1)
        if count > 1 and worst >= STALL_TIMES * rest:
            seconds = window(phase)
            message = (
                f"one operation took {worst:.3g} s, {worst / seconds:.0%} of the window of "
                f"{seconds:.3g} s; the others took {rest:.2g} s on average: I/O stood still"
            )
            yield "warning", phase.name, message, {"longest": worst, "mean_of_others": rest}


AUDITS = (
    Audit(
        "storage-unhealthy",
        2,
        "run",
        storage_unhealthy,
        "wait until the system has recovered and is healthy, then run again; if you study a "
        "degraded system, declare attributes: {health: degraded} (or recovering)",
    ),
    Audit(
        "io-stalled",
        1,
        "phase",
        io_stalled,
        "look for a daemon, path or device that hung then; the rate mostly shows the hang",
    ),
)
