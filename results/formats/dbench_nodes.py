"""dbench on several client nodes: one run from the outputs of all of them.

dbench prints no time of day.  Where a node's window lies on the common clock is bounded by
what is known: the program began at b and ended at e, looked l times for clients that were
not ready (0.1 s each), warmed up for at least w s, stopped its clients after s s and printed
its last line in second c of its own clock, rounded.  So the window began not before
b + l/10 + w and not after min(e - s, e - c + 0.5).  The middle is taken, half the distance
is its uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.results.evidence.stored import Json, Stored, read
from fsmatrix.results.formats.parsed import Note, Parsed, shared_facts
from fsmatrix.results.record import Floats, Integers, Phase

LEAST_OVERLAP = 0.95


@dataclass(frozen=True)
class Operation(Stored):
    """One kind of operation over all clients."""

    count: int
    mean_seconds: float
    max_seconds: float


@dataclass(frozen=True, kw_only=True)
class PhaseFacts(Stored):
    """Of the facts of a phase, what the nodes' are put together from."""

    operations: Mapping[str, Operation]
    latency_maximum: float | None = None  # seconds
    warm_up_seconds_seen: float = 0.0
    interval_uncertainty_bytes: float = 0.0
    overlap: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RunFacts(Stored):
    """Of the facts of a run, those that bound when its window began, seconds."""

    launch_seconds: float = 0.0
    last_second: float | None = None


@dataclass(frozen=True)
class NodeRun:
    """dbench on one client node; Unix times of its process on the common clock."""

    host: str
    parsed: Parsed
    began: float
    ended: float


def merge(nodes: Sequence[NodeRun]) -> Parsed:
    """Bytes and operations add up, [node]; the window is the union of the nodes' windows.

    If a node gives no phase, there is none: a sum over some nodes is no result.
    """
    failures = [f"{n.host}: {n.parsed.failure}" for n in nodes if n.parsed.failure]
    first = nodes[0].parsed
    notes = [
        replace(note, message=f"{n.host}: {note.message}") for n in nodes for note in n.parsed.notes
    ]
    phases: tuple[Phase, ...] = ()
    if all(node.parsed.phases for node in nodes):
        phase = _merged(nodes) if len(nodes) > 1 else _placed(nodes[0])
        phases = (phase,)
        overlap = _facts(phase).overlap
        if overlap < LEAST_OVERLAP:
            message = (
                f"the nodes measured together for {overlap:.0%} of the time from the first start "
                f"to the last end (each start is known within {phase.clock_uncertainty:.2f} s)"
            )
            notes.append(Note("nodes-overlap", message, phase="mixed"))
    versions = sorted({node.parsed.version for node in nodes})
    if len(versions) > 1:
        failures.append(f"different versions of dbench: {', '.join(versions)}")
    processes = [node.parsed.processes for node in nodes]
    return replace(
        first,
        version=versions[0],
        phases=phases,
        nodes=len(nodes),
        processes=None if None in processes else sum(p or 0 for p in processes),
        failure="; ".join(failures) if len(nodes) > 1 else first.failure,
        notes=tuple(notes) if len(nodes) > 1 else first.notes,
    )


def start_of(node: NodeRun) -> tuple[float, float]:
    """Unix time at which the window of a node began, and its uncertainty, seconds."""
    phase, facts = node.parsed.phases[0], read(RunFacts, node.parsed.facts, "facts")
    seconds = float(phase.end[0])
    last = seconds if facts.last_second is None else facts.last_second
    earliest = node.began + facts.launch_seconds + _facts(phase).warm_up_seconds_seen
    latest = min(node.ended - seconds, node.ended - last + 0.5)
    return (earliest + latest) / 2, abs(latest - earliest) / 2


def _facts(phase: Phase) -> PhaseFacts:
    return read(PhaseFacts, phase.facts, "facts")


def _placed(node: NodeRun) -> Phase:
    """The phase of a single node: its window is its own, only the time of day is estimated."""
    phase = node.parsed.phases[0]
    began, uncertainty = start_of(node)
    return replace(
        phase, began=began, facts={**phase.facts, "began_uncertainty_seconds": uncertainty}
    )


def _merged(nodes: Sequence[NodeRun]) -> Phase:
    phases = [node.parsed.phases[0] for node in nodes]
    starts, uncertainties = np.array([start_of(node) for node in nodes]).T
    zero = float(starts.min())
    start = starts - zero
    end = start + np.array([phase.end[0] for phase in phases])
    every = [_facts(phase) for phase in phases]
    facts: dict[str, Json] = {
        **shared_facts(phases),
        "operations": _operations([of.operations for of in every]),
        "overlap": max(0.0, float(end.min() - start.max())) / float(end.max() - start.min()),
    }
    facts.pop("client_bytes", None)
    if worst := [of.latency_maximum for of in every if of.latency_maximum is not None]:
        facts["latency_maximum"] = max(worst)
    series = _series(phases, start)
    if series is None:
        facts.pop("interval_uncertainty_bytes", None)
    else:
        facts["interval_uncertainty_bytes"] = sum(of.interval_uncertainty_bytes for of in every)
    errnos: dict[str, int] = {}
    for phase in phases:
        for name, count in phase.errors_by_errno.items():
            errnos[name] = errnos.get(name, 0) + count
    return replace(
        phases[0],
        start=start,
        end=end,
        bytes=np.concatenate([phase.bytes for phase in phases]),
        operations=np.concatenate([phase.operations for phase in phases]),
        errors=np.concatenate([phase.errors for phase in phases]),
        interval=0.0 if series is None else phases[0].interval,
        interval_bytes=None if series is None else series[0],
        interval_latency_max=None if series is None else series[1],
        began=zero,
        clock_uncertainty=float(uncertainties.max()),
        errors_by_errno=errnos,
        facts=facts,
    )


def _operations(tables: Sequence[Mapping[str, Operation]]) -> dict[str, Json]:
    """Counts add up, means are weighted by them, the largest latency is the largest of all."""
    names = dict.fromkeys(name for table in tables for name in table)
    merged: dict[str, Json] = {}
    for name in names:
        rows = [table[name] for table in tables if name in table]
        count = sum(row.count for row in rows)
        total = sum(row.count * row.mean_seconds for row in rows)
        mean, largest = total / count if count else 0.0, max(row.max_seconds for row in rows)
        merged[name] = Operation(count, mean, largest).document()
    return merged


def _series(phases: Sequence[Phase], start: Floats) -> tuple[Integers, Floats | None] | None:
    """Sums and largest latencies of the nodes' intervals, as many as all have.

    None if the nodes' intervals differ or lie too far apart.
    """
    width = phases[0].interval
    series = [phase.interval_bytes for phase in phases if phase.interval_bytes is not None]
    if len(series) < len(phases) or np.ptp(start) > width / 2:
        return None
    if any(phase.interval != width for phase in phases):
        return None
    length = min(len(column) for column in series)
    summed: Integers = np.sum([column[:length] for column in series], axis=0, dtype=np.int64)
    latency = [p.interval_latency_max for p in phases if p.interval_latency_max is not None]
    if len(latency) < len(phases):
        return summed, None
    largest: Floats = np.maximum.reduce([column[:length] for column in latency], dtype=np.float64)
    return summed, largest
