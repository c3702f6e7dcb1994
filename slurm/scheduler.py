"""The scheduler seam: what jobs are, and the few things that a batch system does with them.

`script` is pure; the others talk to the batch system.  A scheduler is one file and one line in
SCHEDULERS (docs/slurm.md shows another one).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.process import NO_JOB, CurrentJob
from fsmatrix.results.registry import BrokenEntry, Registry, UnknownName
from fsmatrix.suite.launchers.launcher import Allocation
from fsmatrix.suite.run.launching import Batch

State = Literal["waiting", "running", "ended"]


class SchedulerError(Exception):
    """The batch system refuses; the text is its own, and what to do."""


class SchedulerAway(SchedulerError):
    """The batch system does not answer: it may do so later."""


@dataclass(frozen=True)
class BatchJob:
    """One batch job: what it asks for and what it does."""

    name: str  # jobs of one name run one after the other
    token: str  # found again by it, also if its submission was cut off
    about: tuple[str, ...]  # for the reader of the script
    command: tuple[str, ...]  # becomes the job's process: signals reach it
    directory: Path  # in which the command is started
    log: str  # in the directory of the script; %j is the job's id
    seconds: int  # limit of its time
    warned: int = 0  # seconds before the limit at which SIGUSR1 comes; 0: never
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    one_at_a_time: bool = False  # of those with this name
    options: JsonObject = field(default_factory=dict)  # further ones of the batch system
    directives: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    venv: str = ""
    conda: str = ""


@dataclass(frozen=True)
class JobState:
    """A job as the batch system sees it."""

    job: str
    state: State
    said: str  # the batch system's own word: PENDING, NODE_FAIL...
    token: str = ""
    reason: str = ""  # why it waits, or how it ended
    nodes: str = ""  # its node list
    starts: str = ""  # when it began, or is expected to: ISO 8601, local time; "" unknown
    seconds: float | None = None  # limit of its time; None: without, or not known
    never: str = ""  # why it can never start as it is, and what to do; "" it can


class Scheduler(ABC):
    """Subclasses: one file each, one line in SCHEDULERS."""

    name: ClassVar[str] = ""

    def current(self, environ: Mapping[str, str]) -> CurrentJob:
        """The job that a process of this environment is part of; NO_JOB outside of its jobs.

        Each start of a job that was queued again has more `restarts` than the one before.
        """
        del environ
        return NO_JOB

    def nodes(self, environ: Mapping[str, str]) -> Allocation | None:
        """The nodes of that job; None: the launcher knows them itself.

        LauncherError if they cannot be read.
        """
        del environ
        return None

    @abstractmethod
    def script(self, job: BatchJob) -> str:
        """The text of the job's script.  Pure.  ValueError for what no script can say."""

    def refusal(self, folder: Path) -> str:
        """Why no job can print into this folder (empty: it can)."""
        del folder
        return ""

    def longest(self, partition: str | None) -> float | None:
        """Seconds that a job of a partition (None: the default one) may take at most.

        None: without a limit, or not known.  SchedulerAway if the batch system does not answer.
        """
        del partition
        return None

    def most_nodes(self, partition: str | None) -> int | None:
        """Nodes that a job of a partition may have at most; None and errors as of `longest`."""
        del partition
        return None

    @abstractmethod
    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        """Queue a script, to start when the jobs `after` have ended; the new job's id.

        SchedulerAway if the batch system does not answer (the job may be queued all the same:
        see `jobs_of_user`), SchedulerError if it refuses.
        """

    @abstractmethod
    def jobs_of_user(self) -> dict[str, JobState]:
        """The user's jobs that the batch system knows, by id: one question for all."""

    def past(self, jobs: Iterable[str]) -> dict[str, JobState]:
        """Jobs that it no longer lists, as far as its accounting knows them."""
        del jobs
        return {}

    @abstractmethod
    def cancel(self, jobs: Iterable[str]) -> None:
        """End jobs; those that have ended already are no error."""

    @abstractmethod
    def requeue(self, job: str) -> None:
        """Queue a running job again."""

    def ended(self, job: str) -> bool:
        """Whether a job has certainly ended; False if the batch system does not answer."""
        try:
            state = self.jobs_of_user().get(job)
        except SchedulerError:
            return False
        return state is None or state.state == "ended"


SCHEDULERS: Registry[Scheduler] = Registry(
    "fsmatrix.schedulers", {"slurm": "fsmatrix.slurm.slurm:Slurm"}, "scheduler"
)


# The scheduler of this process's job, and of others that a lock file names: asked here only.


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
