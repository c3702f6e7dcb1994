"""`fsmatrix submit`, `status` and `cancel`: a campaign as batch jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, completion, terminal
from fsmatrix.suite.campaign.problems import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.slurm.scheduler import Scheduler
    from fsmatrix.slurm.submission.status import Status
    from fsmatrix.slurm.submission.submission import Submission
    from fsmatrix.slurm.submission.submitting import Outcome
    from fsmatrix.suite.plan.plan import Plan

SOME_MISSING = 1
SHOWN_PARTS = 40
WORDS = {
    "done": "green",
    "running": "cyan",
    "waiting": "",
    "unknown": "yellow",
    "stopped": "red",
    "not submitted": "yellow",
}

Directory = Annotated[
    Path,
    typer.Argument(
        help="The results directory of the submitted campaign.", autocompletion=completion.results
    ),
]


def submit(
    campaign: common.CampaignToResume = None,
    out: common.Out = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Client nodes: short for --set geometry.nodes=N.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Queue only what is neither stored nor queued.")
    ] = False,
    retry_failed: common.RetryFailed = False,
    sets: common.Sets = None,
    only: common.Only = None,
    seed: common.Seed = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Jobs that may use one storage system at a time. Default: 1."),
    ] = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="Check paths and space here: this machine has the mounts too."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the job scripts without queueing them.")
    ] = False,
    scheduler: Annotated[str, typer.Option(help="The batch system.")] = "slurm",
    as_json: common.Json = False,
) -> None:
    """Queue a campaign as batch jobs; the last one merges and writes the report.

    One job at a time for each storage system (`system` of the targets), so that runs do not
    disturb each other.  Status: 0 all jobs queued, 1 some could not be queued, 2 bad input.

    Example: fsmatrix submit ceph.yaml -o out --set slurm.partition=io;  fsmatrix status out
    """
    from fsmatrix.slurm.here import load
    from fsmatrix.slurm.submission.submitting import Submitter

    changed = [*(sets or ())]
    if nodes is not None:
        changed.append(f"geometry.nodes={nodes}")
    if parallel is not None:
        changed.append(f"slurm.parallel={parallel}")
    plan, place = _plan(campaign, out, resume, changed, only, seed, here)
    if nodes is not None and "nodes" in plan.settings.campaign.factors:
        origin = plan.settings.origin("factors", "nodes")
        raise refuse(
            origin, "factors.nodes", f"varies the nodes; --nodes {nodes} is a single number"
        )
    if plan.agreements and here:
        text = "; ".join(plan.agreements)
        raise refuse(Origin(plan.source.file), "targets", f"must be agreed to first: {text}")
    system = load(scheduler)
    if dry_run:
        _rehearse(plan, place, system, as_json)
        return
    console = terminal.console(stderr=True) if as_json else terminal.console()
    say = _sayer(console)
    for warning in plan.warnings:
        say(f"note: {warning}")
    submitter = Submitter(system, tell=say, retry_failed=retry_failed)
    outcome = submitter.submit(plan, place, resume, Path.cwd())
    if as_json:
        common.print_json({"directory": str(place), **vars(outcome)})
    else:
        _tell(console, outcome, place)
    raise typer.Exit(SOME_MISSING if outcome.missing else 0)


def _plan(
    campaign: str | None,
    out: Path | None,
    resume: bool,
    sets: list[str],
    only: list[str] | None,
    seed: int | None,
    here: bool,
) -> tuple[Plan, Path]:
    """The plan as this command asks for it, and its results directory."""
    from fsmatrix.slurm.submission import submission
    from fsmatrix.suite.plan.plan import build_plan
    from fsmatrix.suite.run.execute import continued, is_stored, stored_plan

    place = out or (Path(f"{Path(campaign).stem}-out") if campaign else None)
    if place is None or (campaign is None and not resume):
        raise refuse(Origin("fsmatrix submit"), "", "name a campaign, or give -o DIR --resume")
    there = resume and is_stored(place)
    if campaign is None and not there:
        raise refuse(Origin(str(place)), "", "holds no campaign that could be resumed")
    before = submission.read(place) if resume else None
    if not only and before is not None:
        only = list(before.only)
    asked = common.request(sets, only, "1/1", seed)
    if campaign is None:
        return stored_plan(place, asked, here, choose_here=True), place
    if there:
        asked = continued(place, asked)
    return build_plan(campaign, asked, here=here, choose_here=True), place


def _rehearse(plan: Plan, out: Path, scheduler: Scheduler, as_json: bool) -> None:
    from fsmatrix.slurm.submission.submitting import Submitter

    scripts = Submitter(scheduler).rehearse(plan, out, Path.cwd())
    if as_json:
        common.print_json([{"part": key, "script": text} for key, text in scripts])
        return
    for key, text in scripts:
        terminal.echo(f"### {key}\n{text}")


def _tell(console: Console, outcome: Outcome, out: Path) -> None:
    from fsmatrix.results.units import plural

    jobs, runs = plural(len(outcome.submitted), "job"), plural(outcome.runs, "run")
    parts = [f"{jobs} queued with {runs}"]
    if outcome.live:
        parts.append(f"queued before: {len(outcome.live)}")
    if outcome.complete:
        parts.append(f"done: {plural(outcome.complete, 'part')}")
    console.print(", ".join(parts), highlight=False)
    text = f"job {outcome.collect} merges and writes the report; to follow: fsmatrix status {out}"
    if outcome.missing:
        text = (
            f"not queued: {plural(len(outcome.missing), 'job')} ({outcome.why}); "
            f"to continue: fsmatrix submit -o {out} --resume"
        )
    style = "red" if outcome.missing else None
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def status(directory: Directory, as_json: common.Json = False) -> None:
    """Show the jobs and runs of a submitted campaign, and when it should end.

    Status 1: some runs are left without a job to carry them out (submit --resume).

    Example: fsmatrix status out --json
    """
    from fsmatrix.slurm.here import load
    from fsmatrix.slurm.submission.status import status as look

    submission = _submission(directory)
    state = look(directory, submission, load(submission.scheduler))
    if as_json:
        common.print_json(as_data(state))
    else:
        _show(terminal.console(), state, directory)
    raise typer.Exit(SOME_MISSING if state.lost else 0)


def _submission(directory: Path) -> Submission:
    from fsmatrix.slurm.submission import submission

    stored = submission.read(directory)
    if stored is None:
        raise refuse(Origin(str(directory)), "", "nothing was submitted from here (submit -o)")
    return stored


def as_data(state: Status) -> dict[str, Any]:
    """A status as `--json` prints it."""
    return {
        "runs": {
            name: getattr(state, name) for name in ("ok", "failed", "running", "waiting", "lost")
        },
        "expected_end": state.expected.isoformat(timespec="seconds") if state.expected else None,
        "scheduler_says": state.scheduler_says,
        "collect": vars(state.collect) if state.collect else None,
        "failures": [
            {"run": run, "status": status, "reason": reason}
            for run, status, reason in state.failures
        ],
        "parts": [
            {
                "part": part.part.key,
                "system": part.part.system,
                "nodes": part.part.nodes,
                "state": part.word,
                "job": vars(part.job) if part.job else None,
                "runs": len(part.part.runs),
                "ok": part.ok,
                "failed": part.failed,
                "says": part.says,
            }
            for part in state.parts
        ],
    }


def _show(console: Console, state: Status, directory: Path) -> None:

    say = _sayer(console)
    table = Table("part", "system", "nodes", "job", "state", "ok", "failed", "left", "", box=None)
    urgent = sorted(state.parts, key=lambda part: list(WORDS).index(part.word), reverse=True)
    shown = state.parts if len(state.parts) <= SHOWN_PARTS else urgent[:SHOWN_PARTS]
    for part in shown:
        table.add_row(
            part.part.key,
            part.part.system,
            str(part.part.nodes),
            part.job.job if part.job else "",
            f"[{WORDS[part.word] or 'default'}]{part.word}[/]",
            str(part.ok),
            str(part.failed),
            str(part.rest),
            escape(part.says) if " " not in part.says else "",
        )
    console.print(table)
    for part in shown:
        if " " in part.says:  # whole, below the table: its columns would cut a sentence
            say(f"{part.part.key} {part.word}: {part.says}")
    if len(state.parts) > len(shown):
        console.print(f"... and {len(state.parts) - len(shown)} more parts (--json has all)")
    say(
        f"{state.ok} runs ok, {state.failed} failed, {state.running} running, "
        f"{state.waiting} waiting"
    )
    common.say_failures(console, state.failures)
    if state.scheduler_says:
        say(f"the batch system did not answer: {state.scheduler_says}", "yellow")
    elif state.lost:
        say(f"{state.lost} runs have no job: fsmatrix submit -o {directory} --resume", "red")
    if state.expected is not None:
        say(f"expected end: not before {state.expected.isoformat(' ', 'minutes')}")
    elif not state.lost and not state.scheduler_says:
        say(_end(state, directory))


def _end(state: Status, directory: Path) -> str:
    if state.collect is not None and state.collect.state != "ended":
        says = state.collect.never or state.collect.said
        return f"job {state.collect.job} merges and writes the report: {says}"
    report = directory / "report.html"
    return f"report: {report}" if report.exists() else f"to report: fsmatrix report {directory}"


def cancel(directory: Directory, as_json: common.Json = False) -> None:
    """Cancel all jobs of a submitted campaign; stored runs stay for submit --resume.

    Example: fsmatrix cancel out
    """
    from fsmatrix.results.files import trust
    from fsmatrix.results.units import plural
    from fsmatrix.slurm.here import load
    from fsmatrix.slurm.submission.submitting import queued_tokens

    trust.require(directory)
    submission = _submission(directory)
    scheduler = load(submission.scheduler)
    ours = {
        token: job
        for token, job in queued_tokens(scheduler.jobs_of_user()).items()
        if token.startswith(submission.token_of(""))
    }
    scheduler.cancel(sorted(ours.values()))
    if as_json:
        common.print_json({"directory": str(directory), "cancelled": sorted(ours.values())})
    else:
        _sayer(terminal.console())(f"{plural(len(ours), 'job')} cancelled")


def _sayer(console: Console) -> Any:
    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    return say
