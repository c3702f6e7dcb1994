"""What the steps of a `tpcc` run answered, as phases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fsmatrix.backends.system.cgroups.memory import MemoryUse
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Stored, read
from fsmatrix.results.formats.base import Note, ParseError
from fsmatrix.results.record import Floats, Latency, Monitor, Phase
from fsmatrix.suite.oltp.answers import Answer, Times, Worked
from fsmatrix.suite.oltp.clients import CANCELLED, NEW_ORDER
from fsmatrix.suite.oltp.task import RESULT, SQLITE
from fsmatrix.suite.workloads.base import Output

TRANSACTIONS = "transactions"
SHARE = 2 / 3  # of the measured time, its middle: where devices and CPUs are looked at
OBSERVED = "observed"  # the fact that campaign files take as columns (campaign/observed.py)
# settings of SQLite and of PostgreSQL by which a commit returns before its log is on the device
RETURNS_BEFORE = {"synchronous": "normal", "synchronous_commit": "off"}
MIB = 1 << 20
A = TypeVar("A", bound=Answer)
CPU_TIMES = ("busy", "idle", "iowait", "steal")
REQUESTS = (
    *("device_reads", "device_writes", "device_read_seconds", "device_write_seconds"),
    *("device_read_bytes", "device_written_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Measured(Stored):
    """The facts of the phase `transactions` that are read again here."""

    local_window: tuple[float, float]  # Unix times of the client
    observed: Mapping[str, float]


def answer(kind: type[A], output: Output) -> A:
    """What a step answered; ParseError if it did not."""
    try:
        return read(kind, json.loads(output.files.get(RESULT, "")), RESULT)
    except ValueError as error:
        where = f"{output.step} on {output.host}"
        raise ParseError(where, 0, f"no {RESULT} of this version: {error}") from error


def engine_note(engine: str, settings: Mapping[str, str]) -> Note:
    """What is to be known of the engine beside the numbers."""
    size = int(settings.get("block_size", 0))
    if engine != SQLITE:
        return Note("block-size", f"PostgreSQL's block has {size} bytes, fixed when it was built")
    mode, sync = settings.get("journal_mode"), settings.get("synchronous")
    return Note(
        "embedded-database",
        f"SQLite with pages of {size} bytes, journal_mode {mode}, synchronous {sync}: no server, a "
        "process and a cache for each user",
    )


def memory_note(use: MemoryUse) -> Note:
    """What a limit of memory did."""
    peak = f"{use.peak / MIB:.4g}" if use.peak is not None else "unknown"
    return Note(
        "memory-limit",
        f"the database had {use.limit / MIB:.4g} MiB of memory, page cache included (cgroup "
        f"v{use.version}): peak {peak} MiB, limit reached {use.reached} times, "
        f"{use.oom_kills} processes killed",
    )


def transactions(result: Worked, output: Output, rate: float) -> Phase:
    """The phase `transactions`: one worker for each user."""
    begin, end = result.window
    seconds = end - begin
    done = np.array(result.of_users, dtype=np.int64)
    errors = np.zeros(done.size, np.int64)
    errors[0] = sum(result.failures.values()) + result.skipped
    latency = {name: _latency(times) for name, times in result.latency.items()}
    latency |= {f"{n}/service": _latency(times) for n, times in result.service.items()}
    counts = {name: times.count for name, times in result.latency.items()}
    return Phase(
        TRANSACTIONS,
        start=np.zeros(done.size),
        end=np.full(done.size, seconds),
        bytes=np.zeros(done.size, np.int64),
        operations=done,
        errors=errors,
        latency=latency,
        interval=1.0,
        interval_operations=np.array(result.each_second, dtype=np.int64),
        began=begin + output.clock_correction,
        clock_uncertainty=output.clock_uncertainty,
        facts={
            "synced": not RETURNS_BEFORE.items() & result.settings.items(),
            "window_seconds": seconds,
            "transactions": counts,
            "failures": result.failures,
            "skipped": result.skipped,
            "retries": result.retries,
            "retried": result.retried,
            "rolled_back": counts.get(CANCELLED, 0),
            "outside_window": result.outside,
            "rate": rate,
            "wal_bytes": result.wal_bytes,
            "local_window": [begin, end],
            OBSERVED: {
                "transaction_rate": float(done.sum()) / seconds,
                "new_order_rate": counts.get(NEW_ORDER, 0) / seconds,
            },
        },
    )


def _latency(times: Times) -> Latency:
    return Latency(
        counts=histogram.dense(times.histogram),
        total=float(times.total),
        minimum=float(times.minimum),
        maximum=float(times.maximum),
    )


def observed(phase: Phase, monitor: Monitor | None) -> dict[str, float]:
    """CPU shares and the devices' requests in the middle of the measured time.

    From the samplers' series of the one client: what counted between two samples is shared out
    evenly.  Without what nobody counted.
    """
    if monitor is None or not monitor.hosts:
        return {}
    begin, end = read(Measured, phase.facts, "facts").local_window
    cut = (end - begin) * (1 - SHARE) / 2
    first, last = begin + cut, end - cut
    went = {
        name: _between(monitor.time, series[0], first, last)
        for name, series in monitor.series.items()
    }
    return _cpu(went) | _requests(went, last - first)


def _cpu(went: Mapping[str, float]) -> dict[str, float]:
    whole = sum(went.get(f"cpu_{name}", np.nan) for name in CPU_TIMES)
    if not (np.isfinite(whole) and whole > 0):
        return {}
    busy, user = went["cpu_busy"] / whole, went.get("cpu_user", np.nan) / whole
    return {
        "cpu_busy": busy,
        "cpu_user": user,
        "cpu_system": max(busy - user, 0.0),
        "cpu_iowait": went["cpu_iowait"] / whole,
        "cpu_idle": went["cpu_idle"] / whole,
    }


def _requests(went: Mapping[str, float], seconds: float) -> dict[str, float]:
    if not all(np.isfinite(went.get(name, np.nan)) for name in REQUESTS):
        return {}
    reads, writes = went["device_reads"], went["device_writes"]
    moved = went["device_read_bytes"] + went["device_written_bytes"]
    times = {
        "device_latency": (
            went["device_read_seconds"] + went["device_write_seconds"],
            reads + writes,
        ),
        "read_latency": (went["device_read_seconds"], reads),
        "write_latency": (went["device_write_seconds"], writes),
    }
    return {
        "device_iops": (reads + writes) / seconds,
        "read_iops": reads / seconds,
        "write_iops": writes / seconds,
        "device_rate": moved / seconds,
        **{name: waited / count for name, (waited, count) in times.items() if count > 0},
    }


def _between(time: Floats, values: Floats, first: float, last: float) -> float:
    """How far a counter went between two moments; NaN if it was not looked at then."""
    finite = np.isfinite(time) & np.isfinite(values)
    times, looks = time[finite], values[finite]
    if times.size < 2 or first < times[0] or last > times[-1]:
        return float("nan")
    ends = np.interp([first, last], times, looks)
    return float(ends[1] - ends[0])
