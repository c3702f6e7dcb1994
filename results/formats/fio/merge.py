"""One run from the outputs of several nodes, on each of which fio ran the same job.

Bytes and operations add up, histograms add bin by bin, windows and series are aligned by their
Unix time.  Percentiles are never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fsmatrix.results.evidence.stored import read
from fsmatrix.results.evidence.values import inside
from fsmatrix.results.formats.base import Note, Parsed
from fsmatrix.results.formats.fio.job import DIRECTIONS, Means
from fsmatrix.results.formats.fio.phase import (
    LATENCIES_DIFFER,
    Moved,
    PhaseFacts,
    complete,
    mean_of,
    summed,
)
from fsmatrix.results.record import Floats, Integers, Latency, Phase

LEAST_OVERLAP = 0.95
Nodes = Sequence[tuple[str, Parsed]]


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


def merge(nodes: Nodes) -> Parsed:
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
        phases.append(_phase(parts, notes))
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


def _phase(parts: Sequence[tuple[str, Phase]], notes: list[Note]) -> Phase:
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
    width, series = _series(phases, move) if began else (0.0, None)
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
        latency=_means([facts.latency for _, facts in every]),
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


def _means(nodes: Sequence[Mapping[str, Mapping[str, Means]]]) -> dict[str, dict[str, Means]]:
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


def _series(phases: Sequence[Phase], move: Sequence[float]) -> tuple[float, Integers | None]:
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
