"""The commands.  Each is a module; what a command needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import fsmatrix
from fsmatrix.cli import terminal
from fsmatrix.cli.campaigns import check, collect, init, jobs, plan, run, status, submit
from fsmatrix.cli.questions import claims, compare, history, lessons, questions, studies, study
from fsmatrix.cli.results import bundle, findings, import_, one_run, report, show
from fsmatrix.cli.testbeds import testbed
from fsmatrix.cli.traces import trace
from fsmatrix.cli.waiting import waiting

app = typer.Typer(
    name="fsmatrix",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Compares file systems: plans, runs and reports benchmark campaigns.\n\n"
    "Start with: [bold]fsmatrix check[/], then [bold]fsmatrix run quickstart -o out[/].",
)
# the panels of `fsmatrix --help`, in this order
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Plan and run": {
        "check": check.check, "init": init.init, "jobs": jobs.jobs, "plan": plan.plan,
        "run": run.run,
    },
    "Cluster": {
        "submit": submit.submit, "status": status.status, "cancel": status.cancel,
    },
    "Results": {
        "show": show.show, "findings": findings.findings, "report": report.report,
        "logs": one_run.logs, "collect": collect.collect, "import": import_.import_,
        "bundle": bundle.bundle,
    },
    "Questions": {
        "compare": compare.compare, "fairness": questions.fairness, "lessons": lessons.lessons,
        "history": history.history, "effects": questions.effects,
        "scalability": studies.scalability,
        "bottleneck": studies.bottleneck, "curves": questions.curves,
        "speedup": questions.speedup, "models": studies.models, "predict": questions.predict,
        "correlation": studies.correlation, "variability": studies.variability,
        "tails": studies.tails, "repetitions": studies.repetitions,
    },
    "Studies": {
        "claims": claims.claims, "bars": studies.bars, "traffic": questions.traffic,
        "cpu": questions.cpu, "adapters": questions.adapters, "lhcb": questions.lhcb,
    },
}  # fmt: skip
# they read whole campaigns and have no progress of their own, as import has
WAITED_FOR = {name for panel in ("Results", "Questions", "Studies") for name in COMMANDS[panel]} - {
    "import"
} | {"study"}
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(study.app, name="study", rich_help_panel="Studies")
app.add_typer(trace.app, name="trace", rich_help_panel="Plan and run")
app.add_typer(testbed.app, name="testbed", rich_help_panel="Cluster")


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
