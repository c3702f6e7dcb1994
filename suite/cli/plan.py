"""`fsmatrix plan`: what a campaign would do, and whether it can."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fsmatrix.suite.cli import common, terminal
from fsmatrix.suite.cli.common import print_json

if TYPE_CHECKING:
    from fsmatrix.suite.plan import Plan

SHOWN_PLOTS = 12


def plan(
    campaign: common.Campaign,
    sets: common.Sets = None,
    only: common.Only = None,
    shard: common.Shard = "1/1",
    blocks: common.Blocks = None,
    seed: common.Seed = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Every setting and where it came from.")
    ] = False,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="Do not ask this machine for paths, engines, space: others run it."
        ),
    ] = False,
    skip_unusable: common.SkipUnusable = False,
    as_json: common.Json = False,
) -> None:
    """Check a campaign and show its matrix, cases, order, estimated time and space.

    Example: fsmatrix plan quickstart --set repetitions=10 --explain;
    fsmatrix plan ssd-cluster --elsewhere
    """
    from fsmatrix.suite.plan import build_plan

    asked = replace(common.request(sets, only, shard, seed, blocks), skip_unusable=skip_unusable)
    made = build_plan(campaign, asked, here=not elsewhere)
    if as_json:
        print_json(made.to_json())
        return
    data = made.to_json()
    out = terminal.console()
    out.print(f"[bold]{escape(data['campaign'])}[/]  {escape(data['description'])}")
    _matrix(out, data)
    _size(out, data)
    _order(out, data)
    for warning in (*data["warnings"], *(() if elsewhere else _nodes(made))):
        out.print(f"[yellow]note:[/] {escape(warning)}")
    if explain:
        _explain(out, data)


def _nodes(made: Plan) -> tuple[str, ...]:
    """What `run` would refuse in this place: a job of `submit` has its nodes."""
    if made.estimate.nodes <= 1:
        return ()
    from fsmatrix.slurm.here import here
    from fsmatrix.suite.launching import too_few_nodes

    reason = too_few_nodes(made, here().batch)
    return (f"run would be refused here, submit not: {reason}",) if reason else ()


def _matrix(out: Console, data: dict[str, Any]) -> None:
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
            text = f"{cell['cases'] - cell['impossible']} cases"
            row.append(
                text
                + "".join(f"\n[red]{escape(r)}[/]" for r in cell["reasons"])
                + "".join(f"\n[dim]{escape(n)}[/]" for n in cell["notes"])
            )
        table.add_row(escape(entry), *row)
    out.print(table)


def _size(out: Console, data: dict[str, Any]) -> None:
    from fsmatrix.results.units import format_size, plural
    from fsmatrix.suite.forecast import spoken

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
            f"{data['comparisons']} comparisons between targets: at least "
            f"{data['deciding_repetitions']} blocks are needed to decide any of them at 5 %"
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


def _explain(out: Console, data: dict[str, Any]) -> None:
    table = Table(box=None)
    for title in ("setting", "value", "said by"):
        table.add_column(title, overflow="fold")
    for row in data["settings"]:
        table.add_row(escape(row["key"]), escape(str(row["value"])), escape(row["origin"]))
    out.print(table)
