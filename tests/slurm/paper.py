"""A batch system made of a dictionary, and campaigns submitted to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Finding, RunRecord
from fsmatrix.slurm import submission, submitting
from fsmatrix.slurm.scheduler import (
    BatchJob,
    JobState,
    Scheduler,
    SchedulerAway,
    SchedulerError,
)
from fsmatrix.slurm.submitting import Submitter
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import Tree
from fsmatrix.suite.plan.plan import Installation, Plan, Request, build_plan

CAMPAIGN = """
campaign: two
seed: 5
targets:
  ceph: {backend: directory, options: {path: /ceph}, system: ceph-a}
  rbd: {backend: directory, options: {path: /rbd}, system: ceph-a}
  other: {backend: directory, options: {path: /other}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 1MiB}}
factors: {nodes: [1, 4], processes_per_node: [2, 8]}
repetitions: 5
order: {block: 2}
"""


@dataclass
class Paper(Scheduler):
    """Jobs on paper; `away` answers are lost before, `deaf` ones after the job was taken."""

    jobs: dict[str, JobState] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    away: int = 0
    deaf: int = 0
    room: int = 10**9

    def script(self, job: BatchJob) -> str:
        return job.token + "\n" + " ".join(job.command)

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        if self.away:
            self.away -= 1
            raise SchedulerAway("nobody answers")
        if len(self.jobs) >= self.room:
            raise SchedulerError("submit limit")
        job = str(100 + len(self.jobs))
        token = script.read_text().split("\n")[0]
        self.jobs[job] = JobState(job, "waiting", "PENDING", token)
        self.after[job] = list(after)
        if self.deaf:
            self.deaf -= 1
            raise SchedulerAway("the answer was lost")
        return job

    def jobs_of_user(self) -> dict[str, JobState]:
        if self.away:
            self.away -= 1
            raise SchedulerAway("nobody answers")
        return dict(self.jobs)

    def cancel(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.jobs[job] = replace(self.jobs[job], state="ended", said="CANCELLED")

    def requeue(self, job: str) -> None:
        raise AssertionError(job)


def planned(*sets: str, only: tuple[str, ...] = ()) -> Plan:
    return build_plan(
        Source(CAMPAIGN),
        Request(sets, only),
        installation=Installation(site=SiteFile(), user=Tree(), environ={}),
        here=False,
    )


def submit(
    scheduler: Paper,
    out: Path,
    plan: Plan | None = None,
    resume: bool = False,
    retry: bool = False,
    patience: float = 9.0,
) -> submitting.Outcome:
    submitter = Submitter(scheduler, patience=patience, retry_failed=retry)
    return submitter.submit(plan or planned(), out, resume, Path("/home/me"))


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def carry_out(
    out: Path,
    plan: Plan,
    key: str,
    status: str = "ok",
    most: int = 10**9,
    each: float = 3.0,
    findings: tuple[Finding, ...] = (),
) -> None:
    """What the job of a part would store; `each`: seconds from one run's begin to the next's."""
    store = Store.open(out)
    cases = {case.case.case_id: case for case in plan.cases}
    made = submission.read_submission(out)
    assert made is not None
    part = next(part for part in made.parts if part.key == key)
    for number, (case_id, repetition) in enumerate(part.runs[:most]):
        case = cases[case_id].case
        record = RunRecord(
            case=case.canonical,
            case_id=case_id,
            work_id=case.work_id,
            repetition=repetition,
            attempt=store.next_attempt(case_id, repetition),
            block=0,
            attachment="a",
            session="s",
            job="1",
            engine="player",
            engine_version="1",
            coordinates={},
            duration=each,
            started=(BEGIN + timedelta(seconds=number * each)).isoformat(),
            status=status,
            error="" if status == "ok" else "it broke",
            findings=findings,
        )
        store.write(record)


def _submission(out: Path) -> submission.Submission:
    found = submission.read_submission(out)
    assert found is not None
    return found
