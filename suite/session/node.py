"""What a node leader does for its kernel: backend calls, cache states, counters, sampling.

Backends are imported here, when first needed and by leaders only: ranks stay small.
"""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fsmatrix.results.evidence.stored import Json, JsonObject, text
from fsmatrix.suite.session.messages import Call, KernelUse, SampledKernel

if TYPE_CHECKING:
    from fsmatrix.backends.access import Access
    from fsmatrix.backends.base import Backend

SAMPLE_SECONDS = 0.1


def backend_of(access: JsonObject) -> tuple[type[Backend], Access]:
    """The backend's class and the access of an access's JSON."""
    from fsmatrix.backends.base import BACKENDS

    backend = BACKENDS.load(text(access, "backend"))
    return backend, backend.access_type.from_json(access)


def call(command: Call) -> Json:
    """Call one node-side method of a backend; its answer as JSON-able data."""
    from fsmatrix.backends.journal.journal import Journal

    backend, where = backend_of(command.access)
    function = command.function
    if function in ("mount", "unmount"):
        getattr(backend, function)(
            where, Journal(Path(command.journal) / f"{platform.node()}.jsonl")
        )
        return None
    if function in (
        "cache", "settle", "counters", "health", "guard", "make_run", "remove_run",
    ):  # fmt: skip
        answer = getattr(backend, function)(where, **command.arguments)
        plain: Json = dataclasses.asdict(answer) if dataclasses.is_dataclass(answer) else answer  # type: ignore[arg-type]
        return plain
    raise ValueError(f"no node-side method {function!r}")


def cpu_times() -> dict[str, float]:
    """Seconds of this kernel's CPUs so far (/proc/stat); `user` is a part of `busy`."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(x) / 100 for x in fields[:8])
    return {
        "cpu_busy": user + nice + system + irq + softirq,
        "cpu_idle": idle,
        "cpu_iowait": iowait,
        "cpu_steal": steal,
        "cpu_user": user + nice,
    }


def user_time(pid: int) -> float:
    """User time of a process, seconds (proc(5) stat, field 14); 0 if it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(text.rpartition(")")[2].split()[11]) / os.sysconf("SC_CLK_TCK")


class Sampler:
    """Samples one kernel while a step runs; what it saw before, after and between."""

    def __init__(self, access: JsonObject) -> None:
        self._backend, self._access = backend_of(access)
        self._workers = self._backend.workers(self._access)
        self._stop = threading.Event()
        self._rows: list[tuple[float, dict[str, float]]] = []
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def _look(self) -> dict[str, float]:
        counters: dict[str, float] = dict(self._backend.counters(self._access))
        if self._workers:
            counters["storage_user_seconds"] = sum(map(user_time, self._workers))
        return counters | cpu_times()

    def _sample(self) -> None:
        self._rows.append((time.time(), self._look()))

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def start(self) -> None:
        """Take the first sample now, the next ones in a thread."""
        self._sample()
        self._thread.start()

    def stop(self) -> SampledKernel:
        """Before and after, and the series: "time" and every counter."""
        self._stop.set()
        self._thread.join()
        self._sample()
        times, looks = zip(*self._rows, strict=True)
        names = sorted(set().union(*looks))
        samples: dict[str, tuple[float, ...]] = {"time": times}
        samples |= {name: tuple(look.get(name, math.nan) for look in looks) for name in names}
        before, after = looks[0], looks[-1]
        cpu = {
            name: after[f"cpu_{name}"] - before[f"cpu_{name}"]
            for name in ("busy", "idle", "iowait", "steal")
        }
        whole = sum(cpu.values())
        shares = {name: value / whole if whole else 0.0 for name, value in cpu.items()}
        storage = [look.get("storage_user_seconds", 0.0) for look in (before, after)]
        use = KernelUse(
            before=before,
            after=after,
            cpu=shares,
            cpu_seconds=whole,
            user_seconds=after["cpu_user"] - before["cpu_user"],
            storage_user_seconds=max(0.0, storage[1] - storage[0]),
        )
        return SampledKernel(host=platform.node(), use=use, samples=samples)
