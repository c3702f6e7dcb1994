"""The scheduler of this process's job, and of others that a lock file names: asked here only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fsmatrix.results.currentjob import NO_JOB, CurrentJob
from fsmatrix.results.registry import BrokenEntry, UnknownName
from fsmatrix.slurm.scheduler import SCHEDULERS, Scheduler, SchedulerError
from fsmatrix.suite.run.batch import Batch


@dataclass(frozen=True)
class Here:
    """The job that this process is part of, and its scheduler; None outside of jobs."""

    scheduler: Scheduler | None
    job: CurrentJob
    environ: Mapping[str, str]

    @property
    def batch(self) -> Batch:
        """What a run needs to know."""
        if self.scheduler is None:
            return Batch(ended=ended)
        scheduler = self.scheduler
        return Batch(self.job, ended, lambda: scheduler.nodes(self.environ))

    def requeue(self) -> None:
        """Queue this process's job again.  SchedulerError if there is none, or if it is refused."""
        if self.scheduler is None:
            raise SchedulerError(
                "this is no job of a batch system: there is nothing to queue again"
            )
        self.scheduler.requeue(self.job.id)


def here(environ: Mapping[str, str] = os.environ) -> Here:
    """Ask the schedulers whose job this is, ours before those of other packages."""
    names = [*SCHEDULERS.builtin, *(n for n in SCHEDULERS.names() if n not in SCHEDULERS.builtin)]
    for name in names:
        scheduler = load(name)
        if job := scheduler.current(environ):
            return Here(scheduler, job, environ)
    return Here(None, NO_JOB, environ)


def load(name: str) -> Scheduler:
    """The scheduler of that name; SchedulerError if there is none, or it cannot be loaded."""
    try:
        return SCHEDULERS.load(name)()
    except (UnknownName, BrokenEntry) as error:
        raise SchedulerError(str(error)) from error


def ended(name: str, job: str) -> bool:
    """Whether a scheduler knows that a job has ended; False if it cannot be asked here."""
    return name in SCHEDULERS and load(name).ended(job)
