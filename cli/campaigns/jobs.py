"""`fsmatrix jobs`: lists and prints the ready campaigns."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from fsmatrix.cli import completion, progress
from fsmatrix.cli.common import Json, print_json


def jobs(
    name: Annotated[
        str | None,
        typer.Argument(help="Print the text of this campaign.", autocompletion=completion.ready),
    ] = None,
    as_json: Json = False,
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
