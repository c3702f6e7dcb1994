"""`fsmatrix plan`: what a campaign would do, and whether it can."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.common import print_json
from fsmatrix.cli.questions import analyse
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.questions.power import Power
    from fsmatrix.suite.plan.order import Plot
    from fsmatrix.suite.plan.plan import Plan

SHOWN_PLOTS = 12
POWER = "What it can prove"

Detect = Annotated[
    str | None,
    typer.Option(
        "--detect",
        help="How likely a difference of this size is to be proven: 10%.",
        rich_help_panel=POWER,
    ),
]
Cv = Annotated[
    str | None,
    typer.Option(
        "--cv",
        help="With --detect: how much values vary from block to block, such as 5%.",
        rich_help_panel=POWER,
    ),
]
Pilot = Annotated[
    Path | None,
    typer.Option(
        "--pilot",
        help="With --detect: take the variation from this earlier campaign.",
        rich_help_panel=POWER,
        autocompletion=completion.results,
    ),
]


def plan(
    campaign: common.Campaign,
    sets: common.Sets = None,
    only: common.Only = None,
    shard: common.Shard = "1/1",
    blocks: common.Blocks = None,
    seed: common.Seed = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every setting and where it comes from.")
    ] = False,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="Check no paths, engines or space here: it will run elsewhere."
        ),
    ] = False,
    skip_unusable: common.SkipUnusable = False,
    detect: Detect = None,
    cv: Cv = None,
    pilot: Pilot = None,
    as_json: common.AsJson = False,
) -> None:
    """Check a campaign and show its matrix, cases, order, estimated time and space.

    Example: fsmatrix plan quickstart --set repetitions=10 --explain;
    fsmatrix plan ssd-cluster --elsewhere

    Example: fsmatrix plan quickstart --detect 10% --cv 5%
    """
    from fsmatrix.suite.plan.as_json import plan_json
    from fsmatrix.suite.plan.plan import build_plan

    size, spread = _asked(detect, cv, pilot)
    asked = replace(common.request(sets, only, shard, seed, blocks), skip_unusable=skip_unusable)
    built = build_plan(campaign, asked, here=not elsewhere)
    proven = _power(built, size, spread, pilot) if detect is not None else None
    if as_json:
        print_json(plan_json(built) | ({"power": proven.to_dict()} if proven else {}))
        return
    out, described = progress.console(), built.settings.campaign
    out.print(f"[bold]{escape(described.campaign)}[/]  {escape(described.description)}")
    _matrix(out, built)
    _size(out, built)
    for line in proven.says if proven else ():
        out.print(escape(line))
    _order(out, list(built.plots()))
    _fairness(out, built)
    for line in built.watched():
        out.print(f"[dim]watched by {escape(line)}[/]")
    for warning in (*built.warnings, *(() if elsewhere else _in_place(built))):
        out.print(f"[yellow]note:[/] {escape(warning)}")
    if explain:
        _explain(out, built)


def _asked(detect: str | None, cv: str | None, pilot: Path | None) -> tuple[float, float]:
    """--detect and --cv as shares, 0 where not given; refused if they do not say enough."""
    if detect is None:
        for option, given in (("--cv", cv), ("--pilot", pilot)):
            if given is not None:
                message = "says how much values vary: give --detect 10% (what to prove) as well"
                raise refuse(Origin(f"{option} {given}"), "", message)
        return 0.0, 0.0
    if (cv is None) == (pilot is None):
        message = "needs the variation from block to block: give --cv 5% or --pilot DIR"
        raise refuse(Origin(f"--detect {detect}"), "", message)
    return analyse.share("--detect", detect), 0.0 if cv is None else analyse.share("--cv", cv)


def _power(built: Plan, detect: float, cv: float, pilot: Path | None) -> Power:
    """What the planned blocks can prove; refused where nothing is compared."""
    from fsmatrix.analysis.questions import power

    if not built.comparisons:
        message = "no two targets do the same work here: there is nothing to compare"
        raise refuse(Origin("--detect"), "", message)
    if pilot is None:
        spread, spreads = power.of_cv(cv)
    else:
        with analyse.bad_input([str(pilot)]):
            spread, spreads = power.of_pilot(analyse.opened([str(pilot)]))
    campaign = built.settings.campaign
    blocks = math.ceil(campaign.repetitions / campaign.order.block)
    return power.power(detect, spread, spreads, built.comparisons, blocks)


def _in_place(built: Plan) -> Iterator[str]:
    """What `run` would refuse in this place, where a job of `submit` has its nodes, and whom it
    would let in.
    """
    from fsmatrix.slurm.scheduler import here
    from fsmatrix.suite.run.launching import exposed, too_few_nodes

    batch = here().batch
    if built.estimate.nodes > 1 and (reason := too_few_nodes(built, batch)):
        yield f"run would be refused here, submit would not: {reason}"
    elif warning := exposed(built, batch):
        yield warning


def _matrix(out: Console, built: Plan) -> None:
    from fsmatrix.results.units import plural

    targets = list(dict.fromkeys(cell.target for cell in built.matrix.cells))
    table = Table(
        "workload", *map(escape, targets), title="workload x target", title_justify="left"
    )
    entries = list(dict.fromkeys(cell.entry for cell in built.matrix.cells))
    cells = {(cell.entry, cell.target): cell for cell in built.matrix.cells}
    for entry in entries:
        row = []
        for target in targets:
            if (entry, target) not in cells:
                row.append("[dim]excluded[/]")
                continue
            cell = cells[entry, target]
            text = plural(cell.cases - cell.impossible, "case")
            row.append(
                text
                + "".join(f"\n[red]{escape(r)}[/]" for r in cell.reasons)
                + "".join(f"\n[dim]{escape(n)}[/]" for n in cell.notes)
            )
        table.add_row(escape(entry), *row)
    out.print(table)


def _size(out: Console, built: Plan) -> None:
    from fsmatrix.results.units import format_duration, format_size, plural
    from fsmatrix.suite.plan.estimate import deciding

    cost, repetitions = built.estimate, built.settings.campaign.repetitions
    out.print(
        f"{plural(len(built.cases), 'case')} x {plural(repetitions, 'repetition')} = "
        f"{plural(cost.runs, 'run')} in {plural(cost.attachments, 'attachment')}; "
        f"seed {built.seed}"
    )
    space = ", ".join(f"{escape(name)} {format_size(size, 1)}" for name, size in cost.space.items())
    least = "at least " if built.timed else ""  # a fixed time writes what it can
    out.print(
        f"about {format_duration(cost.seconds)} (a guess until the first block has run), "
        f"space {space}, {least}{format_size(cost.written, 1)} written in all"
    )
    if built.comparisons:
        out.print(
            f"{plural(built.comparisons, 'comparison')} between targets: at least "
            f"{deciding()} blocks are needed to decide any of them at 5 %; "
            "to see what is likely to be proven: --detect 10% --cv 5%"
        )


def _order(out: Console, plots: Sequence[Plot]) -> None:
    table = Table(
        "block",
        "attachment",
        "target",
        "level",
        "nodes",
        "runs",
        box=None,
        title="order",
        title_justify="left",
    )
    for plot in plots[:SHOWN_PLOTS]:
        level = ", ".join(f"{k}={v}" for k, v in plot.level.items())
        table.add_row(
            str(plot.block),
            plot.attachment,
            escape(plot.target),
            escape(level),
            str(plot.geometry.nodes),
            str(len(plot.runs)),
        )
    out.print(table)
    if len(plots) > SHOWN_PLOTS:
        out.print(f"... and {len(plots) - SHOWN_PLOTS} more (--json has all)")


def _fairness(out: Console, built: Plan) -> None:
    """Differences between the targets that are known before anything runs."""
    from fsmatrix.suite.plan.as_json import fairness_of

    fair = fairness_of(built)
    apart = [fact.says for fact in fair.of("unequal")] if fair else []
    if fair and apart:
        out.print(
            f"compared fairly? {len(apart)} of {len(fair.facts)} facts are known to differ "
            "(docs/ceph-vs-daos.md):"
        )
    for sentence in apart:
        out.print(f"  {escape(sentence)}")


def _explain(out: Console, built: Plan) -> None:
    table = Table(box=None)
    for title in ("setting", "value", "set by"):
        table.add_column(title, overflow="fold")
    for key, value, origin in built.explain():
        table.add_row(escape(key), escape(str(value)), escape(origin))
    out.print(table)
