"""From what the steps of a run gave to its record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results import histogram
from fsmatrix.results.record import Floats, Latency, Monitor, Phase
from fsmatrix.suite.session.wire import Arrays
from fsmatrix.suite.workloads.base import Output, Step

TICK = 0.01  # seconds of /proc/stat (USER_HZ, 100 everywhere)
SECONDS = re.compile(r"^cpu_|_seconds$")
UNITS = {
    "device_read_bytes": "byte",
    "device_written_bytes": "byte",
    "backing_read_bytes": "byte",
    "backing_written_bytes": "byte",
    "network_received_bytes": "byte",
    "network_sent_bytes": "byte",
    "server_device_read_bytes": "byte",
    "server_device_written_bytes": "byte",
}


@dataclass
class RunBuilder:
    """Everything that a run's steps gave, collected as the run goes on."""

    evidence: dict[str, Any] = field(default_factory=dict)
    kernels: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by timed step
    ranks: tuple[Mapping[str, Any], ...] = ()
    argv: list[tuple[str, ...]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # what programs printed and wrote
    steps: int = 0  # that gave outputs so far

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that the session made itself."""
        return tuple(one.phase for one in self.outputs if one.phase is not None)

    def next_step(self) -> int:
        """Index of the next step that gives outputs."""
        self.steps += 1
        return self.steps - 1

    def seen(self, step: Step, kernels: list[dict[str, Any]]) -> None:
        """Counters, CPU shares and foreign load of a timed step, by sampled kernel.

        What several steps of one name show adds up.  A program that gives several phases
        moves the bytes of each in one direction: its counters count for each of them.
        """
        every = self.kernels.setdefault(step.name, [])
        every += kernels
        looks = [
            {"host": k["host"], "before": k["kernel"]["before"], "after": k["kernel"]["after"]}
            for k in every
        ]
        for phase in step.phases or (step.name,):
            self.put("counters", phase, looks)
            self.put("cpu", phase, _shares(every))
        loads = [foreign_load(k) for k in kernels if "user" in k]
        if "load" in self.evidence:
            loads.append(self.evidence["load"])
        if loads:
            self.evidence["load"] = max(loads, key=lambda load: load["foreign"] - load["noise"])

    def spent(self, what: str, seconds: float) -> None:
        """Add to evidence["seconds"]: where the run's wall time went."""
        times = self.evidence.setdefault("seconds", {})
        times[what] = times.get(what, 0.0) + seconds

    def put(self, group: str, phase: str, value: Any) -> None:
        """evidence[group][phase] = value"""
        self.evidence.setdefault(group, {})[phase] = value


def _shares(kernels: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """CPU shares by host, weighted by time where a host was looked at several times."""
    shares: dict[str, dict[str, float]] = {}
    for host in dict.fromkeys(kernel["host"] for kernel in kernels):
        looks = [kernel["kernel"] for kernel in kernels if kernel["host"] == host]
        whole = sum(look["cpu_seconds"] for look in looks)
        shares[host] = {
            name: sum(look["cpu"][name] * look["cpu_seconds"] for look in looks) / whole
            if whole
            else 0.0
            for name in looks[0]["cpu"]
        }
    return shares


def stream_phase(name: str, message: Mapping[str, Any], arrays: Arrays) -> Phase:
    """The phase of an op-stream step from the session's merged answer."""
    counts = arrays["counts"]
    latency = {}
    for kind in np.flatnonzero(counts.sum(axis=1)):
        latency[Kind(int(kind) % len(Kind)).name.lower() + _suffix(int(kind))] = Latency(
            counts=counts[kind],
            total=float(arrays["total"][kind]),
            minimum=float(arrays["minimum"][kind]),
            maximum=float(arrays["maximum"][kind]),
        )
    assert counts.shape[1] == histogram.BINS
    return Phase(
        name=name,
        start=arrays["start"],
        end=arrays["end"],
        bytes=arrays["bytes"],
        operations=arrays["operations"],
        errors=arrays["errors"],
        io_start=arrays["io_start"],
        io_end=arrays["io_end"],
        overhead=arrays["overhead"],
        latency=latency,
        interval=float(message["interval"]),
        interval_bytes=arrays["interval_bytes"],
        interval_operations=arrays["interval_operations"],
        began=float(message["began"]),
        clock_uncertainty=float(message["clock_uncertainty"]),
        errors_by_errno=message["errors_by_errno"],
        facts=message["facts"],
    )


def _suffix(kind: int) -> str:
    """Service times of an open loop stand behind the kinds, in the same order."""
    return "/service" if kind >= len(Kind) else ""


def foreign_load(kernel: Mapping[str, Any]) -> dict[str, float]:
    """Share of a kernel's CPUs that went to user time of processes that are not the run's.

    The kernel's own work for the run (loop devices, write-back) is system time: not counted.
    Nor are processes that work for the storage: a FUSE client, servers of a test bed.  `noise`:
    what that share may be wrong by.  /proc/stat charges a whole tick to whoever the tick finds,
    so that n ticks of user time stand for n +- sqrt(n); three times that.
    """
    seen = kernel["kernel"]
    foreign = max(seen["user_seconds"] - kernel["user"] - seen["storage_user_seconds"], 0.0)
    whole = seen["cpu_seconds"]
    if not whole:
        return {"foreign": 0.0, "noise": 0.0}
    noise = 3 * math.sqrt(max(seen["user_seconds"], TICK) * TICK)
    return {"foreign": float(foreign / whole), "noise": float(noise / whole)}


def monitor(phases: Mapping[str, Sequence[Mapping[str, Any]]]) -> Monitor | None:
    """Series of all sampled kernels over all timed phases; shorter ones padded with NaN."""
    merged: dict[str, dict[str, list[float]]] = {}
    for kernels in phases.values():
        for entry in kernels:
            samples = merged.setdefault(entry["host"], {})
            for name, values in entry["samples"].items():
                samples.setdefault(name, []).extend(values)
    if not merged:
        return None
    longest = max(len(samples["time"]) for samples in merged.values())

    def row(samples: Mapping[str, Sequence[float]], name: str) -> Floats:
        series = np.full(longest, np.nan)
        values = samples.get(name, ())
        series[: len(values)] = values
        return series

    names = sorted({name for samples in merged.values() for name in samples} - {"time"})
    first = max(merged.values(), key=lambda samples: len(samples["time"]))
    return Monitor(
        hosts=tuple(merged),
        time=row(first, "time"),
        series={name: np.stack([row(one, name) for one in merged.values()]) for name in names},
        units={name: UNITS.get(name, "s" if SECONDS.search(name) else "1") for name in names},
    )


def failure_text(failure: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: who met what error, doing what, where."""
    text = (
        f"rank {failure['rank']} on {ranks[failure['rank']]['host']}: {failure['errno']} in "
        f"{failure['kind']} of {failure['file']} at offset {failure['offset']}"
    )
    if "wrong_offset" in failure:
        text += (
            f": byte {failure['wrong_offset']} is {failure['found']}, "
            f"written was {failure['expected']}"
        )
    return text
