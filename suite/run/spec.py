"""What is to be run, how, and the record of what could not be."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsmatrix.backends.player.player import Implementation
from fsmatrix.results.case import Case, digest
from fsmatrix.results.evidence.evidence import Limits
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.record import RunRecord
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import Workload


@dataclass(frozen=True)
class RunSpec:
    """What is to be run, and the facts of its place in the campaign."""

    case: Case
    workload: Workload
    engine: Engine
    coordinates: JsonObject
    repetition: int
    attempt: int
    block: int
    attachment: str
    campaign_seed: int
    realised: Mapping[str, str] = field(default_factory=dict)  # factor -> hardware, emulated
    limits: Limits | None = None  # of suite/plan/limits.py
    engine_before: str = ""  # the engine's version when the campaign began, if it was another
    batch_job: str = ""  # id of the batch system's job that this is part of

    @property
    def name(self) -> str:
        """Name of the run and of its directory on the target."""
        return f"{self.case.case_id}-r{self.repetition:04d}-a{self.attempt}"

    def written(self, record: RunRecord) -> int:
        """Bytes that the run wrote: as planned, or more if its time was fixed."""
        measured = sum(
            int(phase.bytes.sum()) for phase in record.phases if "write" in phase.latency
        )
        try:
            planned = self.workload.footprint(self.case).written
        except Exception:  # noqa: BLE001 - what it was planned by may have gone
            planned = 0
        return max(planned, measured)

    @property
    def seed(self) -> int:
        """63 bits that differ between runs: of what is written and of random orders."""
        return int(digest([self.campaign_seed, self.name]), 16) >> 1

    def record(self, started: str, **outcome: Any) -> RunRecord:
        """The record of this run; `outcome`: the fields of RunRecord that say what came of it."""
        return RunRecord(
            case=self.case.canonical,
            case_id=self.case.case_id,
            work_id=self.case.work_id,
            repetition=self.repetition,
            attempt=self.attempt,
            block=self.block,
            attachment=self.attachment,
            job=self.batch_job,
            engine=self.engine.name,
            engine_version=self.engine.version,
            coordinates=self.coordinates,
            started=started,
            **outcome,
        )

    def not_begun(self, reason: str) -> RunRecord:
        """The record of a run that could not even be begun."""
        return self.record(now(), session="", status="failed", error=reason)


@dataclass(frozen=True)
class Settings:
    """How runs are carried out, the same for all of a campaign."""

    time_per_run: float
    settle_timeout: float
    time_without_progress: float = 10.0
    cache_method: str = "auto"
    affinity: str = "none"
    implementation: Implementation = "auto"  # of the player
    bytes_limit: int | None = None  # all runs together may write so much
    out: Path = field(default_factory=Path)
    in_job: bool = False  # of a batch system
    retry_failed: bool = False  # runs that failed are not done
    refused: Callable[[str], str] = lambda _path: ""  # why a path must not be used


def now() -> str:
    """This moment, UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
