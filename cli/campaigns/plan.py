"""`fsmatrix plan`: what a campaign would do, and whether it can."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, completion, terminal
from fsmatrix.cli.common import print_json
from fsmatrix.cli.questions import analyse
from fsmatrix.suite.campaign.problems import Origin, refuse
from fsmatrix.suite.plan.as_json import plan_json

if TYPE_CHECKING:
    from fsmatrix.analysis.questions.power import Power
    from fsmatrix.suite.plan.plan import Plan

SHOWN_PLOTS = 12
POWER = "What it can prove"


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
    detect: Annotated[
        str | None,
        typer.Option(
            "--detect",
            help="How likely a difference of this size is to be proven: 10%.",
            rich_help_panel=POWER,
        ),
    ] = None,
    cv: Annotated[
        str | None,
        typer.Option(
            "--cv",
            help="With --detect: how much values vary from block to block, such as 5%.",
            rich_help_panel=POWER,
        ),
    ] = None,
    pilot: Annotated[
        Path | None,
        typer.Option(
            "--pilot",
            help="With --detect: take the variation from this earlier campaign.",
            rich_help_panel=POWER,
            autocompletion=completion.results,
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Check a campaign and show its matrix, cases, order, estimated time and space.

    Example: fsmatrix plan quickstart --set repetitions=10 --explain;
    fsmatrix plan ssd-cluster --elsewhere

    Example: fsmatrix plan quickstart --detect 10% --cv 5%
    """
    from fsmatrix.suite.plan.plan import build_plan

    size, spread = _asked(detect, cv, pilot)
    asked = replace(common.request(sets, only, shard, seed, blocks), skip_unusable=skip_unusable)
    built = build_plan(campaign, asked, here=not elsewhere)
    proven = _power(built, size, spread, pilot) if detect is not None else None
    data = plan_json(built)
    if as_json:
        print_json(data | ({"power": proven.to_dict()} if proven else {}))
        return
    out = terminal.console()
    out.print(f"[bold]{escape(data['campaign'])}[/]  {escape(data['description'])}")
    _matrix(out, data)
    _size(out, data)
    for line in proven.says if proven else ():
        out.print(escape(line))
    _order(out, data)
    _fairness(out, data)
    for warning in (*data["warnings"], *(() if elsewhere else _nodes(built))):
        out.print(f"[yellow]note:[/] {escape(warning)}")
    if explain:
        _explain(out, data)


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


def _nodes(built: Plan) -> tuple[str, ...]:
    """What `run` would refuse in this place: a job of `submit` has its nodes."""
    if built.estimate.nodes <= 1:
        return ()
    from fsmatrix.slurm.here import here
    from fsmatrix.suite.run.launching import too_few_nodes

    reason = too_few_nodes(built, here().batch)
    return (f"run would be refused here, submit would not: {reason}",) if reason else ()


def _matrix(out: Console, data: dict[str, Any]) -> None:
    from fsmatrix.results.units import plural

    targets = list(dict.fromkeys(cell["target"] for cell in data["matrix"]))
    table = Table(
        "workload", *map(escape, targets), title="workload x target", title_justify="left"
    )
    entries = list(dict.fromkeys(cell["entry"] for cell in data["matrix"]))
    cells = {(cell["entry"], cell["target"]): cell for cell in data["matrix"]}
    for entry in entries:
        row = []
        for target in targets:
            if (entry, target) not in cells:
                row.append("[dim]excluded[/]")
                continue
            cell = cells[entry, target]
            text = plural(cell["cases"] - cell["impossible"], "case")
            row.append(
                text
                + "".join(f"\n[red]{escape(r)}[/]" for r in cell["reasons"])
                + "".join(f"\n[dim]{escape(n)}[/]" for n in cell["notes"])
            )
        table.add_row(escape(entry), *row)
    out.print(table)


def _size(out: Console, data: dict[str, Any]) -> None:
    from fsmatrix.results.units import format_size, plural
    from fsmatrix.suite.run.forecast import spoken

    cost = data["estimate"]
    out.print(
        f"{plural(len(data['cases']), 'case')} x {plural(data['repetitions'], 'repetition')} = "
        f"{plural(cost['runs'], 'run')} in {plural(cost['attachments'], 'attachment')}; "
        f"seed {data['seed']}"
    )
    space = ", ".join(
        f"{escape(name)} {format_size(size, 1)}" for name, size in cost["space"].items()
    )
    least = "at least " if data["timed"] else ""  # a fixed time writes what it can
    out.print(
        f"about {spoken(cost['seconds'])} (a guess until the first block has run), space {space}, "
        f"{least}{format_size(cost['written'], 1)} written in all"
    )
    if data["comparisons"]:
        out.print(
            f"{plural(data['comparisons'], 'comparison')} between targets: at least "
            f"{data['deciding_repetitions']} blocks are needed to decide any of them at 5 %; "
            "what is likely to be proven: --detect 10% --cv 5%"
        )


def _order(out: Console, data: dict[str, Any]) -> None:
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
    for plot in data["order"][:SHOWN_PLOTS]:
        level = ", ".join(f"{k}={v}" for k, v in plot["level"].items())
        table.add_row(
            str(plot["block"]),
            plot["attachment"],
            escape(plot["target"]),
            escape(level),
            str(plot["geometry"]["nodes"]),
            str(len(plot["runs"])),
        )
    out.print(table)
    if len(data["order"]) > SHOWN_PLOTS:
        out.print(f"... and {len(data['order']) - SHOWN_PLOTS} more (--json has all)")


def _fairness(out: Console, data: dict[str, Any]) -> None:
    """Differences between the targets that are known before anything runs."""
    facts = data["fairness"]["facts"] if data["fairness"] else []
    apart = [fact["says"] for fact in facts if fact["judgement"] == "unequal"]
    if apart:
        out.print(
            f"compared fairly? {len(apart)} of {len(facts)} facts are known to differ "
            "(docs/ceph-vs-daos.md):"
        )
    for sentence in apart:
        out.print(f"  {escape(sentence)}")


def _explain(out: Console, data: dict[str, Any]) -> None:
    table = Table(box=None)
    for title in ("setting", "value", "set by"):
        table.add_column(title, overflow="fold")
    for row in data["settings"]:
        table.add_row(escape(row["key"]), escape(str(row["value"])), escape(row["origin"]))
    out.print(table)
