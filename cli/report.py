"""`fsmatrix report`: one HTML file that opens offline, and figures and tables for papers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse
from fsmatrix.cli.questions.claims_lessons import read_study
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.report.sections import Wanted

PAPERS = "For papers"


def _paper(name: str, text: str, metavar: str | None = None) -> Any:
    """An option for those who write a paper; `text`: its help."""
    return typer.Option(name, metavar=metavar, rich_help_panel=PAPERS, help=text)


def report(
    results: common.Results,
    out: common.OutFile = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Compare targets declared as references too.")
    ] = False,
    study: Annotated[
        list[str] | None,
        typer.Option(
            "--study",
            help="Judge a study's claims too: name or YAML file (repeatable).",
            autocompletion=completion.studies,
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        _paper("--figures", "Write every figure that the data allows into DIR.", "DIR"),
    ] = None,
    figure_format: Annotated[
        str, _paper("--figure-format", "Any of pdf, svg, png.")
    ] = "pdf,svg,png",
    tables: Annotated[
        Path | None, _paper("--tables", "Write the tables of the same results into DIR.", "DIR")
    ] = None,
    table_format: Annotated[
        str, _paper("--table-format", "Any of csv, tex (booktabs), md.")
    ] = "csv,tex,md",
) -> None:
    """Write the report of a campaign; --figures and --tables write files for papers.

    Example: fsmatrix report out -o report.html

    Example: fsmatrix report out --figures figures --figure-format pdf --tables tables
    """
    from fsmatrix.analysis.draw import pictures
    from fsmatrix.analysis.draw import tables as tablefiles
    from fsmatrix.analysis.report.report import write_report

    drawn = _wanted("figure", figures, figure_format, pictures.FORMATS)
    tabled = _wanted("table", tables, table_format, tablefiles.FORMATS)
    studies = [read_study(name) for name in study or ()]
    common.limit_algebra_threads()
    merged = common.campaign_file(results)
    folder = results if results.is_dir() else results.parent
    with analyse.bad_input([str(results)]):
        place = str(results) if results.is_dir() else ""
        path = write_report(merged, out or folder / "report.html", reference, studies, place)
        progress.echo(str(path))
        if drawn or tabled:
            _export(merged, drawn, tabled)


def _wanted(
    what: str, directory: Path | None, formats: str, allowed: Iterable[str]
) -> Wanted | None:
    """--figures or --tables with its formats, refused before anything is written."""
    from fsmatrix.analysis.report.sections import Wanted

    if directory is None:
        return None
    suffixes = tuple(dict.fromkeys(f".{name.strip().lower()}" for name in formats.split(",")))
    names = [suffix.removeprefix(".") for suffix in allowed]
    if not {suffix.removeprefix(".") for suffix in suffixes} <= set(names):
        raise refuse(Origin(f"--{what}-format {formats}"), "", f"of {', '.join(names)}")
    if directory.exists() and not directory.is_dir():
        raise refuse(Origin(f"--{what}s {directory}"), "", "is not a directory")
    if not directory.resolve().parent.is_dir():
        raise refuse(
            Origin(f"--{what}s {directory}"), "", f"no directory {directory.resolve().parent}"
        )
    return Wanted(directory, suffixes)


def _export(merged: Path, drawn: Wanted | None, tabled: Wanted | None) -> None:
    from fsmatrix.analysis.data.load import open_campaign
    from fsmatrix.analysis.report.sections import export

    exported = export(open_campaign(merged), drawn, tabled)
    for path in exported.files:
        progress.echo(str(path))
    for name, why in exported.missing:
        progress.echo(f"not made: {name}: {why}", err=True)
