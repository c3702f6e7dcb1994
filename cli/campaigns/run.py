"""`fsmatrix run`: carries a campaign out, merges its runs and writes the report."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fsmatrix.cli import common, progress
from fsmatrix.results.units import plural
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.slurm.scheduler import Here
    from fsmatrix.suite.plan.plan import Plan, Request
    from fsmatrix.suite.run.record_writer import Summary

SOME_FAILED = 1
INTERRUPTED = 130

Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue with the runs that the directory does not have yet."),
]
Requeue = Annotated[
    bool,
    typer.Option("--requeue", help="In a batch job that nears its time limit: queue it again."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print what each attachment makes, as commands, without running them."
    ),
]


def run(
    campaign: common.CampaignToResume = None,
    out: common.Out = None,
    resume: Resume = False,
    retry_failed: common.RetryFailed = False,
    sets: common.Sets = None,
    only: common.Only = None,
    shard: common.Shard = "1/1",
    blocks: common.Blocks = None,
    requeue: Requeue = False,
    seed: common.Seed = None,
    skip_unusable: common.SkipUnusable = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print few lines, for batch logs.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every event as one line of JSON.")
    ] = False,
    dry_run: DryRun = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Merge and write report.html at the end.")
    ] = True,
) -> None:
    """Run a campaign, merge its runs and write the report.

    Status: 0 all runs ok, 1 some failed, 2 bad input, 130 interrupted.

    SIGUSR1 (sbatch --signal=B:USR1@120) lets the current run end and leaves the rest to --resume.

    Example: fsmatrix run quickstart -o out;  fsmatrix run -o out --resume
    """
    from fsmatrix.cli.progress import Mode, listener
    from fsmatrix.slurm.scheduler import here
    from fsmatrix.suite.run.execute import Options, execute
    from fsmatrix.suite.run.forecast import Forecast
    from fsmatrix.suite.run.launching import exposed

    asked = replace(common.request(sets, only, shard, seed, blocks), skip_unusable=skip_unusable)
    plan, out = _plan(campaign, out, resume, asked)
    if dry_run:
        _rehearse(plan, as_json)
        return
    console = progress.console(stderr=True) if as_json or quiet else progress.console()
    # a bar that moves is for terminals: into a file it would be nothing until the end
    mode: Mode = "json" if as_json else "live" if console.is_terminal and not quiet else "quiet"
    # a part of a campaign repeats nothing that its `submit` has said
    for warning in plan.warnings if mode != "json" and plan.request.blocks is None else ():
        progress.line(console, f"note: {warning}")
    place = here()
    if mode != "json" and (warning := exposed(plan, place.batch)):
        progress.line(console, f"note: {warning}")
    with listener(mode, plan.estimate.runs, console, Forecast.of(plan)) as tell:
        summary = execute(plan, out, Options(resume, retry_failed, place.batch), tell)
    whole = plan.request.shard == (1, 1) and plan.request.blocks is None
    written = _finish(out, whole and report and not (summary.interrupted or summary.stopped))
    if mode != "json":
        _tell(console, summary, whole, out)
        if written is not None:
            progress.line(console, f"report: {written}")
    if requeue and summary.signal == signal.SIGUSR1:
        _requeue(console, summary, place)
    raise typer.Exit(_status(summary))


def _plan(
    campaign: str | None, out: Path | None, resume: bool, asked: Request
) -> tuple[Plan, Path]:
    """The plan as this command asks for it, and its results directory."""
    from fsmatrix.suite.plan.plan import build_plan
    from fsmatrix.suite.run.execute import continued, is_stored, stored_plan

    part = asked.shard != (1, 1) or asked.blocks is not None
    if asked.skip_unusable and part:
        message = "applies to the whole campaign: give it without --shard and --blocks"
        raise refuse(Origin("--skip-unusable"), "", message)
    if campaign is None:
        if out is None or not resume:
            raise refuse(Origin("fsmatrix run"), "", "name a campaign, or give -o DIR --resume")
        if not is_stored(out):
            raise refuse(Origin(str(out)), "", "holds no campaign that could be resumed")
        return stored_plan(out, asked), out
    place = out or Path(f"{Path(campaign).stem}-out")
    there = is_stored(place)
    if there and (resume or part):
        asked = continued(place, asked)
    return build_plan(campaign, asked, out=None if there else place), place


def _requeue(console: Console, summary: Summary, place: Here) -> None:
    """Queue this job again if it got on at all: one that never does must not go on for ever."""
    if summary.ok or summary.failures:
        console.print("queued again: the next start continues from here")  # which may end us
        place.requeue()
    else:
        console.print("not queued again: no run ended within the job's time limit")


def _rehearse(plan: Plan, as_json: bool) -> None:
    from fsmatrix.suite.run.execute import rehearse

    commands_of = list(rehearse(plan))
    if as_json:
        common.print_json(
            [
                {
                    "attachment": plot.attachment,
                    "block": plot.block,
                    "target": plot.target,
                    "level": dict(plot.level),
                    "commands": commands,
                }
                for plot, commands in commands_of
            ]
        )
        return
    for plot, commands in commands_of:
        level = "".join(f", {name}={value}" for name, value in plot.level.items())
        progress.echo(f"# block {plot.block}: target {plot.target}{level}")
        progress.echo("\n".join(commands) or "# nothing")
    for line in plan.watched():
        progress.echo(f"# storage nodes, while a run is timed: {line}")


def _status(summary: Summary) -> int:
    if summary.interrupted:
        return INTERRUPTED
    return SOME_FAILED if summary.failures or summary.stopped else 0


def _finish(out: Path, wanted: bool) -> Path | None:
    """Merge and report, where it is wanted: a part of a campaign has no report of its own."""
    if not wanted:
        return None
    from fsmatrix.analysis.report.report import write_report
    from fsmatrix.results.files.store import Store

    store = Store.open(out)
    if not any(store.ids()):
        return None  # stopped before the first run ended
    common.limit_algebra_threads()
    return write_report(store.merge(), out / "report.html", place=str(out))


def _tell(console: Console, summary: Summary, whole: bool, out: Path) -> None:
    tally = summary.tally
    before = f"; {summary.skipped} were there before" * bool(summary.skipped)
    progress.line(console, f"{plural(tally.runs, 'run')}: {tally.says}{before}; results in {out}")
    common.say_failures(console, [(run, "failed", reason) for run, reason in summary.failures])
    if tally.failed and whole:
        progress.line(console, f"to try them again: fsmatrix run -o {out} --resume --retry-failed")
