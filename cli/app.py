"""The commands.  Each is a module; what a command needs is imported when it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated

import typer
import typer.core

import fsmatrix
from fsmatrix.cli import exchange, progress, report, show, testbed, trace
from fsmatrix.cli.campaigns import batch_jobs, first_steps, plan, run
from fsmatrix.cli.progress import waiting
from fsmatrix.cli.questions import claims_lessons, compare, questions


class _Commands(typer.core.TyperGroup):
    """All commands; the options of completion, which are used once, are not in the help."""

    def get_params(self, ctx: typer.Context) -> list[typer.core.TyperOption]:  # type: ignore[override]
        params = super().get_params(ctx)
        for param in params:
            if param.name in ("install_completion", "show_completion"):
                param.hidden = True  # type: ignore[attr-defined]
        return params  # type: ignore[return-value]


app = typer.Typer(
    name="fsmatrix",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Compares file systems: plans, runs and reports benchmark campaigns.\n\n"
    "Start with: [bold]fsmatrix check[/], then [bold]fsmatrix run quickstart -o out[/].",
)
Command = Callable[..., None]
# the panels of `fsmatrix --help`, in this order, and a line for each command
COMMANDS: dict[str, dict[str, tuple[Command, str]]] = {
    "Plan and run": {
        "check": (first_steps.check, "What works here, and why other things do not"),
        "init": (first_steps.init, "Write a campaign of your own, with comments"),
        "jobs": (batch_jobs.jobs, "List the ready-made campaigns, or print one"),
        "plan": (plan.plan, "Check a campaign; its matrix, order, time and space"),
        "run": (run.run, "Run a campaign, merge its runs and write the report"),
    },
    "Cluster": {
        "submit": (batch_jobs.submit, "Queue a campaign as batch jobs, up to the report"),
        "status": (batch_jobs.status, "Jobs and runs of a submitted campaign, and its end"),
        "cancel": (batch_jobs.cancel, "Cancel its jobs; stored runs stay"),
    },
    "Results": {
        "show": (show.show, "Who is ahead in each cell, and what failed"),
        "findings": (show.findings, "What the audits found"),
        "report": (report.report, "Write the report; figures and tables for papers"),
        "logs": (show.logs, "What the programs of a run or a job printed"),
        "collect": (batch_jobs.collect, "Merge all runs of a directory into one file"),
        "import": (exchange.import_, "Outputs of IOR, mdtest, fio, dbench, IO500, elbencho"),
        "bundle": (exchange.bundle, "Pack campaign, results and versions into an archive"),
    },
    "Questions": {
        "compare": (compare.compare, "Targets, levels of a factor, or campaigns, by cell"),
        "lessons": (claims_lessons.lessons, "Which target suits which pattern, best chunk sizes"),
        "fairness": (questions.fairness, "Are the targets compared fairly?"),
        "history": (compare.history, "Medians over campaigns, and where they jump"),
        "claims": (claims_lessons.claims, "Which claims of a study hold on a campaign"),
    },
}
# asked more rarely: `fsmatrix ask effects out`, or `fsmatrix effects out` as before
RARER: dict[str, Command] = {
    "effects": questions.effects, "scalability": questions.scalability,
    "bottleneck": questions.bottleneck, "curves": questions.curves, "response": questions.response,
    "speedup": questions.speedup, "models": questions.models, "predict": questions.predict,
    "correlation": questions.correlation, "variability": questions.variability,
    "tails": questions.tails, "repetitions": questions.repetitions,
    "bars": questions.bars, "traffic": questions.traffic, "timeline": show.timeline,
    "cpu": questions.cpu,
    "adapters": questions.adapters, "lhcb": questions.lhcb,
}  # fmt: skip
# they read whole campaigns and have no progress of their own, as import has
WAITED_FOR = {*COMMANDS["Results"], *COMMANDS["Questions"], *RARER, "study"} - {"import"}
ask = typer.Typer(no_args_is_help=True, help="More questions, such as effects, tails, scalability.")
for _panel, _commands in COMMANDS.items():
    for _name, (_command, _line) in _commands.items():
        app.command(_name, rich_help_panel=_panel, short_help=_line)(_command)
for _name, _command in RARER.items():
    ask.command(_name)(_command)
    app.command(_name, rich_help_panel="Questions", hidden=True)(_command)
app.add_typer(
    questions.app,
    name="study",
    rich_help_panel="Questions",
    short_help="Collections of other people's results, and yours beside",
)
app.add_typer(ask, name="ask", rich_help_panel="Questions")
app.add_typer(
    trace.app,
    name="trace",
    rich_help_panel="Plan and run",
    short_help="What programs do to files: capture, import, examine",
)
app.add_typer(
    testbed.app,
    name="testbed",
    rich_help_panel="Cluster",
    short_help="A real Ceph, DAOS or Slurm on this machine (root)",
)


def _version(wanted: bool) -> None:
    if wanted:
        progress.echo(f"fsmatrix {fsmatrix.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    _wait(context)


@ask.callback()
def _wait(context: typer.Context) -> None:
    """Say what is waited for, if the command says nothing itself."""
    name = context.invoked_subcommand or ""
    if name in WAITED_FOR:
        context.with_resource(waiting(f"{name}: reading"))


@functools.cache
def program() -> Callable[[], object]:
    """All commands, made once in a process."""
    return typer.main.get_command(app)
