"""How much of network, devices and client CPUs a phase used, from a run's evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fsmatrix.results.metrics import window
from fsmatrix.results.record import Phase, RunRecord

# variable [run] of the campaign file -> (unit, meaning)
COLUMNS = {
    "network_rate": ("B s-1", "bytes over the clients' network in the busier direction / window"),
    "device_rate": ("B s-1", "bytes that the storage devices moved / window"),
    "device_busy": ("1", "busy time of the storage devices / (window x devices)"),
    "cpu_busy": ("1", "busy share of all CPUs of the busiest client"),
}
WIDER = 1.2  # looks so much further apart than the window is long count other work
CPU_TIMES = ("busy", "idle", "iowait", "steal")
CPU_TICK = 0.02  # seconds: two ticks of /proc/stat, of which looks may be off


@dataclass(frozen=True)
class Usage:
    """Of one run and phase; NaN where nobody counted."""

    network_rate: float = math.nan
    device_rate: float = math.nan
    device_busy: float = math.nan
    cpu_busy: float = math.nan


def of_phase(record: RunRecord, phase: Phase) -> Usage:
    """Counters' differences over the window, and CPU shares, as the run stored them.

    The looks stand around the step: where they are more than WIDER times as far apart as the window
    is long (start of a program, layout of files), they tell nothing about it.  A bed's server
    devices count before the client's; an image's backing disk counts before its loop device.
    """
    seconds = window(phase)
    kernels = record.evidence.get("counters", {}).get(phase.name) or []
    if _apart(record, kernels) > WIDER * seconds:
        return Usage()
    moved = _moved(kernels)
    shares = record.evidence.get("cpu", {}).get(phase.name) or {}
    busy = [float(cpu["busy"]) for cpu in shares.values() if "busy" in cpu]
    usage: dict[str, float] = {"cpu_busy": max(busy)} if busy else {}
    if seconds > 0:
        network = [moved[n] for n in ("network_received_bytes", "network_sent_bytes") if n in moved]
        if network:
            usage["network_rate"] = max(network) / seconds
        usage |= _devices(record, moved, seconds)
    return Usage(**usage)


def _moved(kernels: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """How far each counter went, summed over kernels."""
    total: dict[str, float] = {}
    for kernel in kernels:
        before, after = kernel["before"], kernel["after"]
        for name in before.keys() & after.keys():
            total[name] = total.get(name, 0.0) + float(after[name]) - float(before[name])
    return total


def _apart(record: RunRecord, kernels: Iterable[Mapping[str, Any]]) -> float:
    """Seconds between the looks, by the CPU times of the conductor's machine; 0 if unknown."""
    machine = record.environment.get("machine", {})
    cpus = machine.get("cpus", 0)
    longest = 0.0
    for kernel in kernels:
        moved = _moved([kernel])
        if cpus and kernel.get("host") == machine.get("host") and "cpu_idle" in moved:
            passed = sum(moved.get(f"cpu_{name}", 0.0) for name in CPU_TIMES)
            longest = max(longest, passed / cpus - CPU_TICK)
    return longest


def _devices(record: RunRecord, moved: Mapping[str, float], seconds: float) -> dict[str, float]:
    told = record.environment.get("target")
    target: Mapping[str, Any] = told if isinstance(told, Mapping) else {}  # imported: a name
    osds = target.get("ceph", {}).get("osds", {}).get("number", 0)
    local = len(target.get("devices", []))
    for prefix, count in (("server_device", osds), ("backing", 0), ("device", local)):
        read, written = (moved.get(f"{prefix}_{way}_bytes") for way in ("read", "written"))
        if read is None or written is None:
            continue
        found = {"device_rate": (read + written) / seconds}
        if count and f"{prefix}_busy_seconds" in moved:
            found["device_busy"] = moved[f"{prefix}_busy_seconds"] / (seconds * count)
        return found
    return {}
