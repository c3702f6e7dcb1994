"""Submits a campaign: its parts as jobs, and a last one that collects and reports.

Whatever breaks on the way, saying it again with --resume goes on: what is stored is not run
again, what is queued is not queued again, what was lost is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fsmatrix.results.files.asides import write_whole
from fsmatrix.results.files.store import Store, StoreError, settles
from fsmatrix.slurm.scheduler import BatchJob, JobState, Scheduler, SchedulerAway, SchedulerError
from fsmatrix.slurm.submission import submission as files
from fsmatrix.slurm.submission.division import divide, lanes, left
from fsmatrix.slurm.submission.jobs import batch_job, check, collect_job
from fsmatrix.slurm.submission.stored import stored
from fsmatrix.slurm.submission.submission import COLLECT, Submission
from fsmatrix.slurm.submission.timing import speeds
from fsmatrix.suite.campaign.problems import CampaignError
from fsmatrix.suite.plan.plan import Plan
from fsmatrix.suite.run.execute import open_store

PATIENCE = 120.0  # seconds for a batch system that does not answer
PAUSES = (1.0, 15.0)  # seconds between two tries, first and longest

Tell = Callable[[str], None]
T = TypeVar("T")


@dataclass
class Outcome:
    """What became of a submission's parts: queued now, before, or not."""

    submitted: dict[str, str] = field(default_factory=dict)  # key of a part -> job
    live: dict[str, str] = field(default_factory=dict)  # were queued already
    complete: int = 0  # parts whose runs are all stored
    runs: int = 0  # of the submitted parts
    collect: str = ""  # the last job
    missing: list[str] = field(default_factory=list)  # keys of parts that could not be queued
    why: str = ""


@dataclass(frozen=True)
class Submitter:
    """Submits to one batch system, with some patience."""

    scheduler: Scheduler
    tell: Tell = lambda _text: None
    patience: float = PATIENCE
    retry_failed: bool = False

    def submit(self, plan: Plan, out: Path, resume: bool, directory: Path) -> Outcome:
        """Queue what is not stored and not queued.

        StoreError or CampaignError, before anything is queued, if it cannot be done at all;
        SchedulerError if the batch system refuses the first job.  A directory that was made for
        it is gone then, unless an answer was lost and a job may be queued.
        """
        if reason := self.scheduler.refusal(files.folder(out).absolute()):
            raise StoreError(out, f"no job could print there: {reason}")
        new = not out.exists()
        store = open_store(plan, out, resume)
        with files.submit_lock(out):
            try:
                return self._submit(plan, store, resume, directory)
            except (CampaignError, StoreError, SchedulerError) as error:
                if new and (not isinstance(error, SchedulerAway) or not files.scripts_written(out)):
                    files.withdraw(out)
                raise

    def _submit(self, plan: Plan, store: Store, resume: bool, directory: Path) -> Outcome:
        out = store.directory
        before = files.read(out)
        if before is not None and not resume:
            raise StoreError(
                out,
                f"a campaign of {len(before.parts)} jobs was submitted from here: --resume "
                "continues it, `fsmatrix status` shows it",
            )
        queued = self.patiently(self.scheduler.jobs_of_user)
        submission = self._submission(plan, speeds(store, plan), before, directory)
        _refuse_other_division(out, before, submission, queued)
        partition = plan.settings.campaign.slurm.partition
        allowed = self.patiently(lambda: self.scheduler.longest(partition))
        nodes = self.patiently(lambda: self.scheduler.most_nodes(partition))
        check(plan, submission.parts, allowed, nodes)
        queued = _judged(queued, allowed)
        files.write(out, submission)
        self._clear(submission, queued)
        return self._queue(plan, store, out, submission, queued, allowed)

    def rehearse(self, plan: Plan, out: Path, directory: Path) -> Iterator[tuple[str, str]]:
        """(key of a part, its script), the last job included; nothing is written or asked."""
        submission = self._submission(plan, {}, None, directory)
        check(plan, submission.parts)
        for part in submission.parts:
            yield part.key, self.scheduler.script(batch_job(plan, submission, part, out.absolute()))
        yield COLLECT, self.scheduler.script(collect_job(plan, submission, out.absolute()))

    def _submission(
        self,
        plan: Plan,
        speed: Mapping[str, float],
        before: Submission | None,
        directory: Path,
    ) -> Submission:
        section = plan.settings.campaign.slurm
        parts = divide(plan, section.blocks_per_job, speed)
        submission = Submission(
            token=before.token if before else files.new_token(),
            scheduler=self.scheduler.name,
            directory=before.directory if before else str(directory),
            only=plan.request.only or (before.only if before else ()),
            parts=tuple(parts),
            parallel=section.parallel,
        )
        names = {part.key: name for part, name in lanes(parts, section.parallel)}
        return replace(submission, names=names)

    def _queue(
        self,
        plan: Plan,
        store: Store,
        out: Path,
        submission: Submission,
        queued: dict[str, JobState],
        allowed: float | None,
    ) -> Outcome:
        outcome = Outcome()
        alive = live_tokens(queued)
        # as Store.done, which the conductor asks, but of all runs at once
        done = {run for run, at in stored(store).items() if settles(at.status, self.retry_failed)}
        for number, part in enumerate(submission.parts):
            token = submission.token_of(part.key)
            if token in alive:
                outcome.live[part.key] = alive[token]
                continue
            rest = left(part, done)
            if not rest.runs:
                outcome.complete += 1
                continue
            job = batch_job(plan, submission, rest, out.resolve(), self.retry_failed, allowed)
            try:
                outcome.submitted[part.key] = self._one(out, part.key, job)
            except SchedulerError as error:
                if not outcome.submitted and not outcome.live and not outcome.complete:
                    raise
                outcome.why = str(error)
                outcome.missing = [each.key for each in submission.parts[number:]]
                outcome.missing = [key for key in outcome.missing if key not in outcome.live]
                break
            outcome.runs += len(rest.runs)
        if not outcome.missing:
            self._last(plan, out, submission, alive, outcome, allowed)
        return outcome

    def _clear(self, submission: Submission, queued: dict[str, JobState]) -> None:
        """Cancel our jobs that can never start as they are: they are queued anew."""
        ours = submission.token_of("")
        hopeless = [
            state.job
            for state in queued.values()
            if state.never and state.state != "ended" and state.token.startswith(ours)
        ]
        if hopeless:
            self.patiently(lambda: self.scheduler.cancel(hopeless))
            self.tell(f"cancelled, since they could never start: {', '.join(hopeless)}")

    def _last(
        self,
        plan: Plan,
        out: Path,
        submission: Submission,
        alive: dict[str, str],
        outcome: Outcome,
        allowed: float | None,
    ) -> None:
        """The job that collects, after all others; an older one makes way."""
        token = submission.token_of(COLLECT)
        if token in alive and not outcome.submitted:
            outcome.collect = alive[token]
            return
        if token in alive:
            self.patiently(lambda: self.scheduler.cancel([alive[token]]))
        job = collect_job(plan, submission, out.resolve(), allowed)
        after = [*outcome.live.values(), *outcome.submitted.values()]
        try:
            outcome.collect = self._one(out, COLLECT, job, after)
        except SchedulerError as error:
            outcome.missing.append(COLLECT)
            outcome.why = str(error)

    def _one(self, out: Path, key: str, job: BatchJob, after: Sequence[str] = ()) -> str:
        """Write the script, queue it, note it: in this order."""
        script = files.folder(out) / f"{key}.sh"
        write_whole(script, self.scheduler.script(job).encode())
        script.chmod(0o755)

        def once() -> str:
            return self.scheduler.submit(script, after)

        def again() -> str:
            # the answer may have been lost, and not the question
            live = live_tokens(self.scheduler.jobs_of_user()).get(job.token)
            return live if live is not None and key != COLLECT else once()

        taken = self.patiently(once, again)
        files.note(out, key, taken)
        self.tell(f"job {taken}: {key}")
        return taken

    def patiently(self, ask: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """What `ask` answers; while the batch system is away, `again` (or `ask`) is tried."""
        deadline, pause = time.monotonic() + self.patience, PAUSES[0]
        while True:
            try:
                return ask()
            except SchedulerAway as error:
                if time.monotonic() + pause > deadline:
                    raise
                self.tell(f"{error}; trying again")
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])
            ask = again or ask


def _judged(queued: dict[str, JobState], allowed: float | None) -> dict[str, JobState]:
    """With those marked whose limit is longer than is allowed now.

    While such a job waits for another one, that is the only reason that the batch system gives.
    """
    return {
        job: replace(state, never=f"its limit is {state.seconds:g} s, allowed are {allowed:g} s")
        if allowed and state.seconds and state.seconds > allowed and state.state == "waiting"
        else state
        for job, state in queued.items()
    }


def live_tokens(queued: dict[str, JobState]) -> dict[str, str]:
    """Token -> job of those that wait or run, but for those that can never start."""
    return queued_tokens({job: state for job, state in queued.items() if not state.never})


def queued_tokens(queued: dict[str, JobState]) -> dict[str, str]:
    """Token -> job of those that wait or run, also for ever."""
    return {
        state.token: job for job, state in queued.items() if state.token and state.state != "ended"
    }


def _refuse_other_division(
    out: Path, before: Submission | None, submission: Submission, queued: dict[str, JobState]
) -> None:
    """Live jobs that divide the campaign otherwise would run what the new ones run."""
    if before is None:
        return
    alive = live_tokens(queued)
    kept = {part.key for part in submission.parts}
    lost = [
        alive[before.token_of(part.key)]
        for part in before.parts
        if part.key not in kept and before.token_of(part.key) in alive
    ]
    if lost:
        raise StoreError(
            out,
            f"the jobs {', '.join(lost[:5])} divide the campaign differently: wait for them, or "
            "`fsmatrix cancel` them first",
        )
