"""How much of network, devices and client CPUs a phase used, from a run's evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fsmatrix.results.evidence.evidence import Counters, CpuShares, counter_differences
from fsmatrix.results.evidence.values import inside, positive
from fsmatrix.results.record import Phase, RunRecord, window

# variable [run] of the campaign file -> (unit, meaning)
COLUMNS = {
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


def of_phase(record: RunRecord, phase: Phase) -> Usage:
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
