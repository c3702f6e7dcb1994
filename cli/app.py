"""The commands.  Each is a module; what a command needs is imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

import fsmatrix
from fsmatrix.cli import terminal
from fsmatrix.cli.campaigns import check, collect, jobs, plan, run, submit
from fsmatrix.cli.questions import claims, compare, history, lessons, questions, studies, study
from fsmatrix.cli.results import bundle, findings, import_, report, show
from fsmatrix.cli.testbeds import testbed
from fsmatrix.cli.waiting import waiting

# commands that read whole campaigns and have no progress of their own
WAITED_FOR = frozenset({
    "show", "findings", "collect", "report", "bundle", "compare", "claims", "history", "lessons",
    "bars", "scalability", "models", "correlation", "bottleneck", "effects", "curves", "speedup",
    "predict", "traffic", "cpu", "adapters", "variability", "tails", "repetitions", "study",
})  # fmt: skip

app = typer.Typer(
    name="fsmatrix",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Compares file systems: plans, runs and reports benchmark campaigns.\n\n"
    "Start with: [bold]fsmatrix check[/], then [bold]fsmatrix run quickstart -o out[/].",
)
app.command("check")(check.check)
app.command("jobs")(jobs.jobs)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("submit")(submit.submit)
app.command("status")(submit.status)
app.command("cancel")(submit.cancel)
app.command("show")(show.show)
app.command("findings")(findings.findings)
app.command("collect")(collect.collect)
app.command("import")(import_.import_)
app.command("report")(report.report)
app.command("bundle")(bundle.bundle)
app.command("compare")(compare.compare)
app.command("claims")(claims.claims)
app.command("history")(history.history)
app.command("lessons")(lessons.lessons)
app.command("bars")(studies.bars)
app.command("scalability")(studies.scalability)
app.command("models")(studies.models)
app.command("correlation")(studies.correlation)
app.command("bottleneck")(studies.bottleneck)
app.command("effects")(questions.effects)
app.command("curves")(questions.curves)
app.command("speedup")(questions.speedup)
app.command("predict")(questions.predict)
app.command("traffic")(questions.traffic)
app.command("cpu")(questions.cpu)
app.command("adapters")(questions.adapters)
app.command("variability")(studies.variability)
app.command("tails")(studies.tails)
app.command("repetitions")(studies.repetitions)
app.add_typer(study.app, name="study")
app.add_typer(testbed.app, name="testbed")


def _version(wanted: bool) -> None:
    if wanted:
        terminal.echo(f"fsmatrix {fsmatrix.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    name = context.invoked_subcommand or ""
    if name in WAITED_FOR:
        context.with_resource(waiting(f"{name}: reading"))
