"""What was sampled of a kernel while a step ran, as ranks send it to the conductor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.results.evidence.stored import Stored


@dataclass(frozen=True, kw_only=True)
class KernelUse(Stored):
    """Counters just before and just after, and what happened to the CPUs in between."""

    before: Mapping[str, float]  # the backend's counters and those of the CPUs
    after: Mapping[str, float]
    cpu: Mapping[str, float]  # shares of all CPUs: busy, idle, iowait, steal
    cpu_seconds: float  # of all CPUs together
    user_seconds: float  # of all processes
    storage_user_seconds: float  # of processes that work for the storage


@dataclass(frozen=True)
class SampledKernel:
    """One kernel during one timed step."""

    host: str
    use: KernelUse
    samples: Mapping[str, Sequence[float]]  # "time" (Unix) and every counter, all as long
    user: float | None  # seconds of the run's own ranks; None: a program that is not theirs

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> SampledKernel:
        """From what the kernel's leader sent."""
        return cls(
            answer["host"], KernelUse(**answer["kernel"]), answer["samples"], answer.get("user")
        )
