"""What the steps on a client node answer, as the JSON that the workload finds in its folder.

Bytes are bytes, times seconds or Unix times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsmatrix.backends.system.cgroups import MemoryUse
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.oltp import consistency


@dataclass(frozen=True, kw_only=True)
class Answer(Stored):
    """Of any step."""

    memory: MemoryUse | None = None  # of the step's processes, if it was limited


@dataclass(frozen=True, kw_only=True)
class Loaded(Answer):
    """A database was made."""

    account: str | None = None  # of the server, if there is one
    database_bytes: int
    seconds: Mapping[str, float]  # of its parts, and of all


@dataclass(frozen=True, kw_only=True)
class Checked(Answer):
    """The consistency conditions were asked for."""

    start_seconds: float | None = None  # of the server, if there is one
    violations: Mapping[str, int]  # condition -> how often
    says: str  # a sentence; empty if they hold

    @classmethod
    def of(cls, violations: Mapping[int, int], start_seconds: float | None = None) -> Checked:
        """From the answer of consistency.violations."""
        return cls(
            start_seconds=start_seconds,
            violations={str(number): count for number, count in violations.items()},
            says=consistency.sentence(violations),
        )


@dataclass(frozen=True, kw_only=True)
class Times(Stored):
    """Latencies of one kind of transaction."""

    count: int
    total: float
    minimum: float
    maximum: float
    histogram: JsonObject  # of histogram.sparse


@dataclass(frozen=True, kw_only=True)
class Worked(Answer):
    """The users have worked; what they did in the measured time."""

    engine: str | None = None  # None: PostgreSQL
    began: float
    window: tuple[float, float]  # the measured time
    account: str
    settings: Mapping[str, str]
    wal_bytes: int | None  # None: not counted
    database_bytes: tuple[int, int]  # before, after
    outside: int  # transactions that ended before or after the measured time
    retries: int
    retried: int
    failures: Mapping[str, int]
    skipped: int
    of_users: tuple[int, ...]  # transactions, [user]
    each_second: tuple[int, ...]
    latency: Mapping[str, Times]
    service: Mapping[str, Times]
