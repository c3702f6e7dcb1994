"""A campaign as batch jobs: `fsmatrix submit`, `status`, `cancel`, `collect`; ready-made `jobs`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.common import AsJson, print_json
from fsmatrix.results.evidence.stored import Json
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsmatrix.results.audits.audit import Tally
    from fsmatrix.slurm.scheduler import Scheduler
    from fsmatrix.slurm.submission import PartStatus, Status, Submission
    from fsmatrix.slurm.submitting import Outcome
    from fsmatrix.suite.plan.plan import Plan


# `fsmatrix jobs`: lists and prints the ready campaigns.


def jobs(
    name: Annotated[
        str | None,
        typer.Argument(help="Print the text of this campaign.", autocompletion=completion.ready),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the ready-made campaigns, or print one.

    Example: fsmatrix jobs quickstart > mine.yaml
    """
    from fsmatrix.suite.campaign.settings import Source, find, ready
    from fsmatrix.suite.campaign.yamlio import parse

    if name is not None:
        source: Source = find(name)
        progress.echo(source.text.removesuffix("\n"))
        return
    rows = []
    for job, text in sorted(ready().items()):
        data = parse(text, f"{job}.yaml").data
        rows.append({"name": job, "description": " ".join(data.get("description", "").split())})
    if as_json:
        print_json(rows)
        return
    table = Table("campaign", "what it does", box=None)
    for row in rows:
        table.add_row(row["name"], row["description"])
    progress.console().print(table)


SOME_LOST = 1
SHOWN_PARTS = 40
COUNTED = ("valid", "invalid", "failed")
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


def status(directory: Directory, as_json: common.AsJson = False) -> None:
    """Show the jobs and runs of a submitted campaign, and when it should end.

    Status 1: some runs are left without a job to carry them out (submit --resume).

    Example: fsmatrix status out --json
    """
    from fsmatrix.slurm.scheduler import load
    from fsmatrix.slurm.submission import status as look

    submission = _found_submission(directory)
    state = look(directory, submission, load(submission.scheduler))
    if as_json:
        common.print_json(as_data(state))
    else:
        show(progress.console(), state, directory)
    raise typer.Exit(SOME_LOST if state.lost else 0)


def _found_submission(directory: Path) -> Submission:
    from fsmatrix.slurm import submission

    stored = submission.read_submission(directory)
    if stored is None:
        raise refuse(Origin(str(directory)), "", "nothing was submitted from here (submit -o)")
    return stored


def as_data(state: Status) -> dict[str, Json]:
    """A status as `--json` prints it."""
    return {
        "runs": _runs(state.tally)
        | {name: getattr(state, name) for name in ("running", "waiting", "lost")},
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
                "says": part.says,
                **_runs(part.tally),
            }
            for part in state.parts
        ],
    }


def _runs(tally: Tally) -> dict[str, Json]:
    """`ok`: they ended well, of which `invalid` do not count."""
    return {
        "ok": tally.valid + tally.invalid,
        "doubtful": tally.doubtful,
        "invalid": tally.invalid,
        "failed": tally.failed,
    }


def counts(state: Status) -> str:
    """How many runs are where."""
    return f"{state.tally.says}, {state.running} running, {state.waiting} waiting"


def show(console: Console, state: Status, directory: Path) -> None:
    """A status for people."""
    say = partial(progress.line, console)
    urgent = sorted(state.parts, key=lambda part: list(WORDS).index(part.word), reverse=True)
    shown = state.parts if len(state.parts) <= SHOWN_PARTS else urgent[:SHOWN_PARTS]
    console.print(_table(state, shown))
    for part in shown:
        if " " in part.says:  # whole, below the table: its columns would cut a sentence
            say(f"{part.part.key} {part.word}: {part.says}")
    if len(state.parts) > len(shown):
        console.print(f"... and {len(state.parts) - len(shown)} more parts (--json has all)")
    say(counts(state))
    common.say_failures(console, state.failures)
    if state.scheduler_says:
        say(f"the batch system did not answer: {state.scheduler_says}", "yellow")
    elif state.lost:
        progress.line(
            console,
            f"{state.lost} runs have no job: fsmatrix submit -o {directory} --resume",
            "red",
        )
    elif state.failures and not state.under_way:
        say(f"to try them again: fsmatrix submit -o {directory} --resume --retry-failed")
    if state.expected is not None:
        progress.line(
            console, f"expected end: not before {state.expected.isoformat(' ', 'minutes')}"
        )
    elif not state.lost and not state.scheduler_says:
        say(_end(state, directory))


def _table(state: Status, shown: Sequence[PartStatus]) -> Table:
    """A row for each part; what is the same of all (one system, none failed) has no column."""
    several = len({part.part.system for part in state.parts}) > 1
    counted = [name for name in COUNTED if name == "valid" or getattr(state.tally, name)]
    table = Table(box=None, pad_edge=False)
    for name in ("part", *["system"] * several, "nodes", "job", "state", *counted, "left", ""):
        table.add_column(name, overflow="fold", no_wrap=name in ("part", "state"))
    for part in shown:
        table.add_row(
            part.part.key,
            *[escape(part.part.system)] * several,
            str(part.part.nodes),
            part.job.job if part.job else "",
            f"[{WORDS[part.word] or 'default'}]{part.word}[/]",
            *(str(getattr(part.tally, name)) for name in counted),
            str(part.rest),
            escape(part.says) if " " not in part.says else "",
        )
    return table


def _end(state: Status, directory: Path) -> str:
    if state.collect is not None and state.collect.state != "ended":
        says = state.collect.never or state.collect.said
        return f"job {state.collect.job} merges and writes the report: {says}"
    report = directory / "report.html"
    return f"report: {report}" if report.exists() else f"to report: fsmatrix report {directory}"


def cancel(directory: Directory, as_json: common.AsJson = False) -> None:
    """Cancel all jobs of a submitted campaign; stored runs stay for submit --resume.

    Example: fsmatrix cancel out
    """
    from fsmatrix.results.files import safefile
    from fsmatrix.results.units import plural
    from fsmatrix.slurm.scheduler import load
    from fsmatrix.slurm.submitting import queued_tokens

    safefile.require_trusted(directory)
    submission = _found_submission(directory)
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
        progress.line(progress.console(), f"{plural(len(ours), 'job')} cancelled")


# `fsmatrix collect`: merges run files into campaign.h5.


def collect(
    directory: Annotated[
        Path, typer.Argument(help="A results directory.", autocompletion=completion.results)
    ],
    out: common.OutFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Merge all runs of a directory into one file; list and leave out damaged files.

    Example: fsmatrix collect out -o all.h5
    """
    from rich.progress import Progress

    from fsmatrix.results.files.store import Store

    store = Store.open(directory)
    console = progress.console()
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("merging", total=len(store.files()))
        merged = store.merge(out, lambda seen: bar.update(task, completed=seen))
    damaged = [{"path": str(path), "reason": reason} for path, reason in store.damaged()]
    if as_json:
        common.print_json({"file": str(merged), "runs": len(store.ids()), "left_out": damaged})
        return
    for entry in damaged:
        console.print(
            f"left out: {entry['path']}: {entry['reason']}",
            style="yellow",
            highlight=False,
            markup=False,
        )
    console.print(
        f"{len(store.ids()) - len(damaged)} runs in {merged}", highlight=False, markup=False
    )


SOME_MISSING = 1
PAUSE = 10.0  # seconds between two questions to the batch system


def submit(
    campaign: common.CampaignToResume = None,
    out: common.Out = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Client nodes: short for --set geometry.nodes=N.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Queue only runs that are neither stored nor queued.")
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
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the jobs to their end; Ctrl-C leaves them alone.")
    ] = False,
    scheduler: Annotated[str, typer.Option(help="The batch system.")] = "slurm",
    as_json: common.AsJson = False,
) -> None:
    """Queue a campaign as batch jobs; the last one merges and writes the report.

    One job at a time for each storage system (`system` of the targets), so that runs do not
    disturb each other.  Status: 0 all jobs queued (--wait: and all runs stored), 1 some could not
    be, 2 bad input.

    Example: fsmatrix submit ceph.yaml -o out --set slurm.partition=io;  fsmatrix status out
    """
    from fsmatrix.slurm.scheduler import load
    from fsmatrix.slurm.submitting import Submitter

    changed = [*(sets or ())]
    if nodes is not None:
        changed.append(f"geometry.nodes={nodes}")
    if parallel is not None:
        changed.append(f"slurm.parallel={parallel}")
    plan, place = _plan(campaign, out, resume, changed, only, seed, here)
    _check(plan, nodes, here)
    system = load(scheduler)
    if dry_run:
        _rehearse(plan, place, system, as_json)
        return
    console = progress.console(stderr=True) if as_json else progress.console()
    for warning in plan.warnings:
        progress.line(console, f"note: {warning}")
    submitter = Submitter(system, tell=partial(progress.line, console), retry_failed=retry_failed)
    outcome = submitter.submit(plan, place, resume, Path.cwd())
    facts: dict[str, Json] = {"directory": str(place), **vars(outcome)}
    if not as_json:
        _tell(console, outcome, place)
    lost = 0
    if wait:
        state = _wait(console, place, system)
        facts["status"], lost = as_data(state), state.lost
        if not as_json:
            show(console, state, place)
    if as_json:
        common.print_json(facts)
    raise typer.Exit(SOME_MISSING if outcome.missing or lost else 0)


def _wait(console: Console, out: Path, scheduler: Scheduler) -> Status:
    """Look again and again until no job may do anything more; the last look."""
    from fsmatrix.slurm import submission
    from fsmatrix.slurm.submission import status as look

    made, said = submission.read_submission(out), ""
    assert made is not None  # it was written before the first job
    try:
        while (state := look(out, made, scheduler)).under_way:
            if (line := counts(state)) != said:
                progress.line(console, line)
            said = line
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        progress.line(console, f"the jobs go on: fsmatrix status {out}")
        raise
    return state


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
    from fsmatrix.slurm import submission
    from fsmatrix.suite.plan.plan import build_plan
    from fsmatrix.suite.run.execute import continued, is_stored, stored_plan

    place = out or (Path(f"{Path(campaign).stem}-out") if campaign else None)
    if place is None or (campaign is None and not resume):
        raise refuse(Origin("fsmatrix submit"), "", "name a campaign, or give -o DIR --resume")
    there = resume and is_stored(place)
    if campaign is None and not there:
        raise refuse(Origin(str(place)), "", "holds no campaign that could be resumed")
    before = submission.read_submission(place) if resume else None
    if not only and before is not None:
        only = list(before.only)
    asked = common.request(sets, only, "1/1", seed)
    if campaign is None:
        return stored_plan(place, asked, here, choose_here=True), place
    if there:
        asked = continued(place, asked)
    return build_plan(campaign, asked, here=here, choose_here=True), place


def _check(plan: Plan, nodes: int | None, here: bool) -> None:
    """Refuse --nodes where the campaign varies them, and what must be agreed to here."""
    if nodes is not None and "nodes" in plan.settings.campaign.factors:
        origin = plan.settings.origin("factors", "nodes")
        message = f"varies the nodes; --nodes {nodes} is a single number"
        raise refuse(origin, "factors.nodes", message)
    if plan.agreements and here:
        text = "; ".join(plan.agreements)
        raise refuse(Origin(plan.source.file), "targets", f"must be agreed to first: {text}")


def _rehearse(plan: Plan, out: Path, scheduler: Scheduler, as_json: bool) -> None:
    from fsmatrix.slurm.submitting import Submitter

    scripts = Submitter(scheduler).rehearse(plan, out, Path.cwd())
    if as_json:
        common.print_json([{"part": key, "script": text} for key, text in scripts])
        return
    for key, text in scripts:
        progress.echo(f"### {key}\n{text}")


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
    progress.line(console, text, style)
