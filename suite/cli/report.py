"""`fsmatrix report`: one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.suite.cli import common


def report(
    results: common.Results,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write.")] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Compare the declared references too.")
    ] = False,
) -> None:
    """Write the report of a campaign.

    Example: fsmatrix report out -o report.html
    """
    from fsmatrix.analysis.report import write_report

    merged = common.campaign_file(results)
    folder = results if results.is_dir() else results.parent
    written = write_report(merged, out or folder / "report.html", reference)
    typer.echo(str(written))
