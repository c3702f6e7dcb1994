"""Submits a campaign: its parts as jobs, and a last one that collects and reports.

Whatever breaks on the way, saying it again with --resume goes on: what is stored is not run
again, what is queued is not queued again, what was lost is.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files.runfile import read_duration
from fsmatrix.results.files.safefile import ResultError, write_whole
from fsmatrix.results.files.store import Store, StoreError, counts_as_done
from fsmatrix.results.registry import did_you_mean
from fsmatrix.results.units import format_duration
from fsmatrix.slurm import submission as files
from fsmatrix.slurm.scheduler import BatchJob, JobState, Scheduler, SchedulerAway, SchedulerError
from fsmatrix.slurm.submission import COLLECT, Part, Submission, divide, lanes, left, stored
from fsmatrix.suite.campaign.campaign import SlurmSection
from fsmatrix.suite.campaign.yamlio import CampaignError, Problem
from fsmatrix.suite.plan.estimate import run_seconds
from fsmatrix.suite.plan.plan import Plan
from fsmatrix.suite.run.execute import open_store

# From a part of a campaign to its batch job: settings of the site, the user and the campaign.


SPARE = 2.0  # limit of a job / its estimate
STARTING = 600.0  # seconds for what an estimate does not know
LONGEST = 24 * 3600.0  # of a job, where neither the site nor the user says one
ENDING = 60.0  # seconds to unmount and to write, between the warning and the limit
WORKING = 60  # seconds that a job has at least before it is warned
COLLECT_SECONDS = (1800.0, 0.05)  # of the last job: at least, and per run

# options of sbatch that the last job has no use for
HARDWARE = ("gres", "gpus", "constraint", "bb", "bbf", "exclusive", "licenses", "mem")


def batch_job(
    plan: Plan,
    submission: Submission,
    part: Part,
    out: Path,
    retry_failed: bool = False,
    longest: float | None = None,
) -> BatchJob:
    """The job that carries out a part; `longest`: seconds that the batch system allows."""
    section = plan.settings.campaign.slurm
    warned = _warned(plan)
    seconds = _limit(plan, part.seconds * SPARE + STARTING + warned, longest)
    command = [*_fsmatrix(section), "run", "-o", str(out), "--resume", *part.words]
    command += ["--retry-failed"] if retry_failed else []
    command += [word for text in submission.only for word in ("--only", text)]
    first, last = part.blocks
    return BatchJob(
        name=submission.names[part.key],
        token=submission.token_of(part.key),
        about=(
            f"fsmatrix: campaign {plan.settings.campaign.campaign}, "
            + (f"blocks {first} to {last}" if last > first else f"block {first}"),
            f"{len(part.runs)} runs on storage system {part.system} from {part.nodes} client "
            f"node{'s' * (part.nodes > 1)} x up to {part.tasks_per_node} processes, about "
            f"{format_duration(part.seconds)}",
        ),
        command=(*command, "--requeue", "--quiet"),
        directory=Path(submission.directory),
        log=f"{part.key}-%j.log",
        seconds=seconds,
        warned=warned,
        nodes=part.nodes,
        tasks_per_node=part.tasks_per_node,
        cpus_per_task=section.cpus_per_task or part.threads,
        one_at_a_time=True,
        options=dict(_options(section, part)),
        directives=section.directives,
        modules=tuple(_modules(plan, part)),
        environment={**section.environment, "FSMATRIX_PARALLEL_JOBS": str(submission.parallel)},
        venv=_venv(section),
        conda=section.conda or "",
    )


def collect_job(
    plan: Plan, submission: Submission, out: Path, longest: float | None = None
) -> BatchJob:
    """The last job: merges the runs and writes the report; `longest` as of `batch_job`."""
    section = plan.settings.campaign.slurm
    runs = sum(len(part.runs) for part in submission.parts)
    least, each = COLLECT_SECONDS
    small = {
        name: value
        for name, value in section.options.items()
        if name not in HARDWARE and value is not False
    }
    return BatchJob(
        name=f"fsmatrix-collect-{plan.settings.campaign.campaign}",
        token=submission.token_of(COLLECT),
        about=(
            f"fsmatrix: campaign {plan.settings.campaign.campaign}, merges its runs and writes "
            "report.html",
        ),
        command=(*_fsmatrix(section), "report", str(out)),
        directory=Path(submission.directory),
        log=f"{COLLECT}-%j.log",
        seconds=_limit(plan, least + each * runs, longest),
        options={**_place(section), **small},
        modules=tuple(_modules(plan, None)),
        environment=section.environment,
        venv=_venv(section),
        conda=section.conda or "",
    )


def check(
    plan: Plan,
    parts: Sequence[Part],
    allowed: float | None = None,
    most_nodes: int | None = None,
) -> None:
    """CampaignError for what the site's file says cannot be.

    `allowed`, `most_nodes`: seconds that the batch system lets a job of the partition take, and
    nodes that it lets it have.
    """
    section, site = plan.settings.campaign.slurm, plan.settings.site.site
    partitions = site.partitions
    problems: list[Problem] = []

    def refuse(name: str, message: str) -> None:
        origin = plan.settings.origin("slurm", name)
        problems.append(Problem(origin.source, origin.line, f"slurm.{name}", message))

    if section.partition and partitions and section.partition not in partitions:
        hint = did_you_mean(section.partition, partitions, "the site has")
        refuse("partition", f"no partition {section.partition!r}{hint}")
    partition = partitions.get(section.partition or "")
    where = section.partition or "the default partition"
    nodes = max((part.nodes for part in parts), default=0)
    chosen_otherwise = section.directives or "clusters" in section.options
    if most_nodes is not None and nodes > most_nodes and not chosen_otherwise:
        which = "factors" if "nodes" in plan.settings.campaign.factors else "geometry"
        message = f"{nodes} nodes are needed; a job of {where} has at most {most_nodes}, says the"
        problems.append(plan.settings.tree.problem((which, "nodes"), f"{message} batch system"))
    if partition is not None:
        if partition.nodes is not None and nodes > partition.nodes:
            refuse("partition", f"{nodes} nodes are needed; a job there has {partition.nodes}")
        if partition.hours is not None and (section.time or 0) > partition.hours * 3600:
            refuse("time", f"a job of {section.partition} has at most {partition.hours:g} hours")
    if allowed is not None and (section.time or 0) > allowed:
        refuse("time", f"a job of {where} has at most {allowed / 60:g} min, says the batch system")
    needed, longest = _warned(plan) + WORKING, _limit(plan, math.inf, allowed)
    if longest < needed:
        refuse(
            "time" if section.time is not None else "partition",
            f"a job of {longest} s is too short, {needed} s are needed: a run may take "
            f"{plan.settings.campaign.limits.time_per_run:g} s (limits.time_per_run), and must end "
            f"before its job, which is warned {_warned(plan)} s before the limit",
        )
    systems = {part.system for part in parts}
    for name in section.licenses.keys() - systems:
        refuse("licenses", f"no target is of system {name!r}{did_you_mean(name, systems, 'are')}")
    if problems:
        raise CampaignError(problems)


def _warned(plan: Plan) -> int:
    """Seconds that the run which is under way may need to end, and the job after it."""
    campaign = plan.settings.campaign
    return math.ceil(campaign.limits.time_per_run + campaign.settle.timeout + ENDING)


def _limit(plan: Plan, seconds: float, allowed: float | None) -> int:
    """Seconds of a job's limit: as the user says, else as asked, up to the partition's own.

    What that is the batch system says, if the site's file does not.
    """
    section, partitions = plan.settings.campaign.slurm, plan.settings.site.site.partitions
    if section.time is not None:
        return math.ceil(section.time)
    partition = partitions.get(section.partition or "")
    longest = LONGEST
    if partition is not None and partition.hours is not None:
        longest = partition.hours * 3600
    elif allowed is not None:
        longest = allowed
    return math.ceil(min(seconds, longest) / 60) * 60


def _place(section: SlurmSection) -> dict[str, Json]:
    named = {name: getattr(section, name) for name in ("partition", "account", "qos")}
    return {name: value for name, value in named.items() if value is not None}


def _options(section: SlurmSection, part: Part) -> Iterator[tuple[str, Any]]:
    yield from _place(section).items()
    if section.exclusive is not False:
        yield "exclusive", section.exclusive
    if part.system in section.licenses:
        yield "licenses", section.licenses[part.system]
    yield from ((name, value) for name, value in section.options.items() if value is not False)


def _modules(plan: Plan, part: Part | None) -> Iterator[str]:
    """The site's, its MPI's, the campaign's, and those of the engines that the part uses."""
    site, section = plan.settings.site.site, plan.settings.campaign.slurm
    engines = part.engines if part is not None else ()
    wanted = [
        *site.modules,
        *([site.mpi.module] if site.mpi.module and part is not None else []),
        *section.modules,
        *(m for engine in engines for m in section.engine_modules.get(engine, ())),
    ]
    yield from dict.fromkeys(wanted)


def _fsmatrix(section: SlurmSection) -> list[str]:
    """How a job starts fsmatrix: by the environment that it activates, else by this very one."""
    if section.container:
        words = ["apptainer", "exec", *section.container_options, section.container]
        return [*words, "fsmatrix"]
    own = Path(sys.executable).with_name("fsmatrix")
    if section.venv or section.conda or not own.exists():
        return ["fsmatrix"]
    return [str(own)]


def _venv(section: SlurmSection) -> str:
    return section.venv or ""


# How long runs really took, against what the plan estimated.


LOOKED_AT = 200  # runs, evenly over all that are stored


def speeds(store: Store, plan: Plan) -> dict[str, float]:
    """Median of measured / estimated seconds of stored runs that are ok, by entry.

    Entries without such a run are absent.
    """
    planned = {each.case.case_id: each for each in plan.cases}
    files = store.files()
    speeds_of: dict[str, list[float]] = {}
    for path in files[:: max(1, len(files) // LOOKED_AT)]:
        case = planned.get(path.stem.rsplit("-", 2)[0])
        if case is None:
            continue
        try:
            seconds = read_duration(path)
        except ResultError:  # damaged: `collect` names it
            continue
        if seconds is not None:
            guess = run_seconds(case, plan.pace(case))
            speeds_of.setdefault(case.entry, []).append(seconds / guess)
    return {entry: statistics.median(ratios) for entry, ratios in speeds_of.items()}


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
        before = files.read_submission(out)
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
        done = {
            run for run, at in stored(store).items() if counts_as_done(at.status, self.retry_failed)
        }
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
