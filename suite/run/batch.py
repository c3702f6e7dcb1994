"""What a run needs to know of the batch system whose job it is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsmatrix.results.currentjob import NO_JOB, CurrentJob
from fsmatrix.results.files.lock import JobEnded
from fsmatrix.suite.launchers.allocation import Allocation


@dataclass(frozen=True)
class Batch:
    """The answers of its scheduler (slurm/here.py); as it stands: no job, and nobody to ask."""

    job: CurrentJob = NO_JOB
    ended: JobEnded = lambda _scheduler, _job: False
    nodes: Callable[[], Allocation | None] = lambda: None
