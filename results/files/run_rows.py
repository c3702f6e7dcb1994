"""A run record as rows of the campaign file: one per phase, one if there is no phase.

How much of network, devices and client CPUs a phase used follows from the run's evidence.  A
phase's fact `observed` is a mapping from names of variables to numbers: what its workload saw, for
which other engines have no number, and what it takes the place of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence.evidence import Counters, CpuShares, counter_differences
from fsmatrix.results.evidence.replay import replayed
from fsmatrix.results.evidence.stored import inside, positive
from fsmatrix.results.evidence.workloads import analysed, capacity, open_loop
from fsmatrix.results.files.schema import to_json
from fsmatrix.results.record import (
    FSYNC,
    SEVERITIES,
    TOTAL,
    Case,
    Finding,
    Integers,
    Phase,
    RunRecord,
    bandwidth,
    first_finisher_rate,
    iops,
    operations,
    window,
    window_of,
)

# variable [run] of the campaign file -> (unit, meaning)
USAGE_COLUMNS = {
    "network_rate": ("B s-1", "bytes over the clients' network in the busier direction / window"),
    "device_rate": ("B s-1", "bytes that the storage devices moved / window"),
    "device_busy": ("1", "busy time of the storage devices / (window x devices)"),
    "cpu_busy": ("1", "busy share of all CPUs of the busiest client"),
    "cpu_user": ("1", "user part of its cpu_busy"),
    "cpu_system": ("1", "the rest of its cpu_busy: kernel and interrupts"),
    "cpu_iowait": ("1", "share of its CPU time without work, while I/O was awaited"),
    "cpu_idle": ("1", "share of its CPU time without work otherwise; the rest was stolen"),
}
WIDER = 1.2  # looks so much further apart than the window is long count other work
CPU_TIMES = ("busy", "idle", "iowait", "steal")
CPU_TICK = 0.02  # seconds: two ticks of /proc/stat, of which looks may be off

OBSERVED = "observed"
# variable [run] of the campaign file -> (unit, meaning)
OBSERVED_COLUMNS = {
    "transaction_rate": ("s-1", "transactions of all types per second"),
    "new_order_rate": ("s-1", "new orders per second that were kept; x 60: NOPM, no tpmC"),
    "device_iops": ("s-1", "requests to the target's devices per second"),
    "read_iops": ("s-1", "read requests to the device per second"),
    "write_iops": ("s-1", "write requests to the device per second"),
    "device_latency": ("s", "mean time of a request to the device, queue included"),
    "read_latency": ("s", "the same of reads"),
    "write_latency": ("s", "the same of writes"),
}
OBSERVABLE = frozenset({*OBSERVED_COLUMNS, *USAGE_COLUMNS})

NAN = float("nan")
TEXT_LIMIT = 500  # characters of one string in the campaign file
DATA_KINDS = ("read", "write")
SYNCED = ("write", "mixed", "replay")  # phases whose fsyncs have a row of their own
METADATA_PHASES = frozenset(
    {
        "open",
        "create",
        "stat",
        "remove",
        "unlink",
        "mkdir",
        "rmdir",
        "rename",
        "truncate",
        "readdir",
    }
)
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
SERVICE = "/service"  # ends the kinds of service times of an open loop
RUN_TEXTS = (
    "run_id",
    "case_id",
    "work_id",
    "attachment",
    "session",
    "job",
    "status",
    "engine",
    "engine_version",
    "error",
    "started",
)


@dataclass(frozen=True)
class Usage:
    """Of one run and phase; NaN where nobody counted."""

    network_rate: float = math.nan
    device_rate: float = math.nan
    device_busy: float = math.nan
    cpu_busy: float = math.nan
    cpu_user: float = math.nan
    cpu_system: float = math.nan
    cpu_iowait: float = math.nan
    cpu_idle: float = math.nan


def usage_of(record: RunRecord, phase: Phase) -> Usage:
    """Counters' differences over the window, and CPU shares, as the run stored them.

    The looks stand around the step: where they are more than WIDER times as far apart as the window
    is long (start of a program, layout of files), they tell nothing about it.  A test bed's server
    devices count before the client's; an image's backing disk counts before its loop device.
    CPU shares are of all time of /proc/stat (proc(5)), stolen time included, of one client.
    """
    seconds = window(phase)
    kernels = record.evidence.counters.get(phase.name, ())
    if _apart(record, kernels) > WIDER * seconds:
        return Usage()
    moved = counter_differences(kernels)
    usage = _cpu(record.evidence.cpu.get(phase.name, {}), kernels)
    if seconds > 0:
        network = [moved[n] for n in ("network_received_bytes", "network_sent_bytes") if n in moved]
        if network:
            usage["network_rate"] = max(network) / seconds
        usage |= _devices(record, moved, seconds)
    return Usage(**usage)


def _cpu(shares: Mapping[str, CpuShares], kernels: Iterable[Counters]) -> dict[str, float]:
    """Shares of the busiest client; `shares` by host, counters for what they do not tell apart."""
    busy = {host: share.busy for host, share in shares.items() if share.busy is not None}
    busiest = max(busy, key=lambda host: busy[host], default=None)
    if busiest is None:
        return {}
    share = shares[busiest]
    parts = {"cpu_busy": share.busy, "cpu_iowait": share.iowait, "cpu_idle": share.idle}
    usage = {name: float(value) for name, value in parts.items() if value is not None}
    moved = counter_differences(kernel for kernel in kernels if kernel.host == busiest)
    whole = sum(moved.get(f"cpu_{name}", 0.0) for name in CPU_TIMES)
    if "cpu_user" in moved and whole > 0:
        usage["cpu_user"] = moved["cpu_user"] / whole
        usage["cpu_system"] = max(usage["cpu_busy"] - usage["cpu_user"], 0.0)
    return usage


def _apart(record: RunRecord, kernels: Iterable[Counters]) -> float:
    """Seconds between the looks, by the CPU times of the conductor's machine; 0 if unknown."""
    machine = inside(record.environment, "machine")
    cpus = positive(machine.get("cpus"))
    longest = 0.0
    for kernel in kernels:
        moved = counter_differences([kernel])
        if cpus and kernel.host == machine.get("host") and "cpu_idle" in moved:
            passed = sum(moved.get(f"cpu_{name}", 0.0) for name in CPU_TIMES)
            longest = max(longest, passed / cpus - CPU_TICK)
    return longest


def _devices(record: RunRecord, moved: Mapping[str, float], seconds: float) -> dict[str, float]:
    target = inside(record.environment, "target")  # imported: a name alone
    osds = positive(inside(target, "ceph", "osds").get("number"))
    devices = target.get("devices")
    local = len(devices) if isinstance(devices, list) else 0
    for prefix, count in (("server_device", osds), ("backing", 0), ("device", local)):
        read, written = (moved.get(f"{prefix}_{way}_bytes") for way in ("read", "written"))
        if read is None or written is None:
            continue
        usage = {"device_rate": (read + written) / seconds}
        if count and f"{prefix}_busy_seconds" in moved:
            usage["device_busy"] = moved[f"{prefix}_busy_seconds"] / (seconds * count)
        return usage
    return {}


def observed_of(phase: Phase) -> dict[str, float]:
    """Columns that the phase's workload filled: finite numbers, not negative."""
    facts = phase.facts.get(OBSERVED)
    if not isinstance(facts, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in facts.items()
        if name in OBSERVABLE
        and isinstance(value, int | float)
        and math.isfinite(value)
        and value >= 0
    }


@dataclass(frozen=True)
class Row:
    """One row of the campaign file along `run`: a phase of a run."""

    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    phase: Phase | None
    findings: Sequence[Finding]


def rows_of(record: RunRecord) -> list[Row]:
    """The rows of one run, in the order of its phases."""
    texts = {name: getattr(record, name)[:TEXT_LIMIT] for name in RUN_TEXTS}
    texts["hosts"] = " ".join(dict.fromkeys(rank.host for rank in record.ranks))
    numbers = {
        "repetition": record.repetition,
        "attempt": record.attempt,
        "block": record.block,
        "duration": record.duration,
    }
    names = {phase.name for phase in record.phases}
    rows = []
    for name, phase in _timed(record) or [("", None)]:
        findings = [f for f in record.findings if f.phase == name or f.phase not in names]
        kinds = latency_kinds(phase) if phase else ()
        rows.append(
            Row(
                numbers={**numbers, **(_numbers(record, phase, kinds) if phase else {})},
                texts={
                    **texts,
                    "phase": phase.name if phase else "",
                    "worst_finding": worst(findings),
                    "latency_of": "+".join(kinds),
                    "replay": _replay(phase),
                    "lhcb": _lhcb(phase),
                },
                phase=phase,
                findings=findings,
            )
        )
    return rows


def _timed(record: RunRecord) -> list[tuple[str, Phase | None]]:
    """Phases in their order, the fsyncs of one behind it; each with its phase's own name."""
    timed: list[tuple[str, Phase | None]] = []
    for phase in record.phases:
        timed.append((phase.name, phase))
        if FSYNC in phase.latency and phase.name in SYNCED and _often(record, phase):
            timed.append((phase.name, _syncs(phase)))
    return timed


def _often(record: RunRecord, phase: Phase) -> bool:
    """Whether fsyncs are a part of the work, not only the end of it or of a pass (the player's)."""
    if phase.name == "replay" or not record.engine.startswith("player"):
        return True
    return Case.from_canonical(record.case).options.get("fsync") == "per-write"


def _syncs(phase: Phase) -> Phase:
    """The fsyncs of a phase as a phase of one worker: no bytes, its window."""
    latency = phase.latency[FSYNC]
    none = np.zeros(1, dtype=np.int64)
    return Phase(
        name=f"{phase.name}-{FSYNC}",
        start=np.array([np.nanmin(phase.start)]),
        end=np.array([np.nanmax(phase.end)]),
        bytes=none,
        operations=none + int(latency.counts.sum()),
        errors=none,
        latency={FSYNC: latency},
        began=phase.began,
        clock_uncertainty=phase.clock_uncertainty,
    )


def _replay(phase: Phase | None) -> str:
    seen = replayed(phase.facts) if phase else None
    return to_json(seen.document()) if seen else ""


def _lhcb(phase: Phase | None) -> str:
    seen = analysed(phase.facts) if phase else None
    return to_json(seen.document()) if seen else ""


def levels_of(record: RunRecord) -> dict[str, str | int | float | None]:
    """Factor -> level; `target` and `workload` always (from the case, if not given)."""
    levels = dict(record.coordinates)
    if "target" not in levels or "workload" not in levels:
        case = Case.from_canonical(record.case)
        levels = {"target": case.target, "workload": case.workload, **levels}
    return {name: plain_level(level) for name, level in levels.items()}


def plain_level(level: Any) -> str | int | float | None:
    """A level as a number or a string; None stays None (no level)."""
    if level is None or isinstance(level, str):
        return level
    if isinstance(level, bool | np.bool_):
        return "true" if level else "false"
    if isinstance(level, int | np.integer):
        number = int(level)
        return number if abs(number) < 2**63 else str(number)
    if isinstance(level, float | np.floating):
        return float(level)
    return to_json(level)


def worst(findings: Sequence[Finding]) -> str:
    """The worst severity; an empty string without findings."""
    ranks = [SEVERITIES.index(finding.severity) for finding in findings]
    return SEVERITIES[max(ranks)] if ranks else ""


def latency_kinds(phase: Phase) -> tuple[str, ...]:
    """The kinds of operation that the latency columns of this phase pool, sorted.

    Kinds that count from another moment are never pooled with others, and only taken alone: in an
    open loop those that count from when they were due.  None of one that is saturated.
    """
    loop = open_loop(phase.facts)
    if loop is not None and loop.saturated:
        return ()
    kinds = sorted(
        kind
        for kind in phase.latency
        if "/" not in kind
        and (kind != FSYNC or phase.name not in SYNCED)
        and (loop is None or kind + SERVICE in phase.latency)
    )
    if phase.name.split("-")[0] in METADATA_PHASES:
        return tuple(kinds)
    own = (phase.name,) if phase.name in kinds else DATA_KINDS
    others = [kind for kind in phase.latency if kind.endswith(TOTAL)]
    return tuple(kind for kind in kinds if kind in own) or tuple(sorted(others)) or tuple(kinds)


def _numbers(record: RunRecord, phase: Phase, kinds: Sequence[str]) -> dict[str, float]:
    io_window = window_of(phase)
    loop, searched = open_loop(phase.facts), capacity(phase.facts)
    ceiling = record.evidence.ceilings.get(phase.name)
    total = float(phase.bytes.sum())
    return {
        "began": phase.began,
        "bandwidth": bandwidth(phase),
        "iops": iops(phase),
        "window": window(phase),
        "io_window": io_window,
        "io_bandwidth": total / io_window if io_window > 0 else NAN,
        "first_finisher_rate": first_finisher_rate(phase),
        "bytes": total,
        "operations": operations(phase),
        "errors": float(phase.errors.sum()),
        "workers": len(phase.start),
        "clock_uncertainty": phase.clock_uncertainty,
        "interval_width": phase.interval,
        **{iterations.OWN + name: value for name, value in phase.summary.items()},
        **used(record, phase),
        **observed_of(phase),
        **_latencies(phase, kinds, "latency"),
        **_latencies(phase, [kind for kind in phase.latency if kind.endswith(SERVICE)], "service"),
        **(loop.columns() if loop is not None else {}),
        **({"capacity": searched.rate} if searched and searched.rate else {}),
        **({"client_ceiling": ceiling.rate} if ceiling and ceiling.rate else {}),
    }


def latencies(phase: Phase) -> dict[str, float]:
    """The columns `latency_...` of a phase (seconds): mean, extremes, percentiles; empty: none."""
    return _latencies(phase, latency_kinds(phase), "latency")


def used(record: RunRecord, phase: Phase) -> dict[str, float]:
    """Shares and rates of network, devices and CPUs; without those that nobody counted."""
    shares = asdict(usage_of(record, phase))
    return {name: value for name, value in shares.items() if value == value}


def _latencies(phase: Phase, kinds: Sequence[str], name: str) -> dict[str, float]:
    """Mean, extremes and percentiles (seconds) of the pooled kinds; empty without any.

    `name`: begins those of the columns.
    """
    pooled = [phase.latency[kind] for kind in kinds]
    counts: Integers = sum(
        (latency.counts for latency in pooled), np.zeros(histogram.BINS, np.int64)
    )
    operations = int(counts.sum())
    if operations == 0:
        return {}
    values = {part: histogram.percentile(counts, q) for part, q in PERCENTILES.items()}
    used = [latency for latency in pooled if latency.counts.any()]
    values["mean"] = sum(latency.total for latency in used) / operations
    values["min"] = min(latency.minimum for latency in used)
    values["max"] = max(latency.maximum for latency in used)
    return {f"{name}_{part}": value for part, value in values.items()}
