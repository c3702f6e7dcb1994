"""`fsmatrix status` and `cancel`: the jobs of a submitted campaign."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.common import AsJson, print_json
from fsmatrix.results.evidence.values import Json
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsmatrix.results.audits.base import Tally
    from fsmatrix.slurm.submission import PartStatus, Status, Submission


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

    submission = _submission(directory)
    state = look(directory, submission, load(submission.scheduler))
    if as_json:
        common.print_json(as_data(state))
    else:
        show(progress.console(), state, directory)
    raise typer.Exit(SOME_LOST if state.lost else 0)


def _submission(directory: Path) -> Submission:
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
    from fsmatrix.results.files import trust
    from fsmatrix.results.units import plural
    from fsmatrix.slurm.scheduler import load
    from fsmatrix.slurm.submitting import queued_tokens

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
        progress.line(progress.console(), f"{plural(len(ours), 'job')} cancelled")
