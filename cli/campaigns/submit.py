"""`fsmatrix submit`: a campaign as batch jobs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.campaigns import status
from fsmatrix.results.evidence.values import Json
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.slurm.scheduler import Scheduler
    from fsmatrix.slurm.submission import Status
    from fsmatrix.slurm.submitting import Outcome
    from fsmatrix.suite.plan.plan import Plan


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
        facts["status"], lost = status.as_data(state), state.lost
        if not as_json:
            status.show(console, state, place)
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
            if (line := status.counts(state)) != said:
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
