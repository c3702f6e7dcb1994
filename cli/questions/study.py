"""`fsmatrix study`: what a collection of other people's results says.  A study is a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common, completion, terminal
from fsmatrix.cli.questions import analyse

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr

    from fsmatrix.analysis.studies.io500.result import Io500Study

PARTS = 10  # how often the reading says how far it is

app = typer.Typer(
    no_args_is_help=True,
    help="What a collection of other people's results shows, and how yours compare.",
)


@app.command("io500")
def io500(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="IO500 submissions, in folders of any depth.")
    ],
    mine: Annotated[
        str | None,
        typer.Option(
            "--mine",
            help="Place the IO500 phases of a results directory or campaign.h5 among them.",
            autocompletion=completion.results,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the report (.html), a picture (.png, .svg, .pdf) or the table (.csv, "
            ".tex, .md).",
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:  # fmt: skip
    """Recompute IO500 scores; describe file-system families, phases and your own run.

    The systems differ in hardware: the result describes, it proves nothing.

    Example: fsmatrix study io500 submission-data --mine out -o io500.html
    """
    from fsmatrix.analysis.studies.io500.page import SUFFIX, write
    from fsmatrix.analysis.studies.io500.study import io500 as study
    from fsmatrix.suite.importing.recognise import collection

    analyse.picture(out, SUFFIX)
    campaign = _opened(mine) if mine is not None else None
    collected = collection(directory, _steps())
    with analyse.bad_input([str(directory), *([mine] if mine else [])]):
        result = study(collected, str(directory), campaign)
    if as_json:
        common.print_json(result.to_dict())
    else:
        _show(result)
    if out is not None and out.suffix.lower() == SUFFIX:
        terminal.echo(str(write(result, out)), err=True)
    elif out is not None:
        analyse.drawn([result], out)


def _opened(results: str) -> xr.Dataset:
    """One's own campaign; refused before the collection is read."""
    from fsmatrix.analysis.data.load import open_campaign

    with analyse.bad_input([results]):
        return open_campaign(common.campaign_file(Path(results)))


def _steps() -> Callable[[int, int], None]:
    """Says how far the reading is, PARTS times."""
    from fsmatrix.analysis.steps import step

    def progress(done: int, total: int) -> None:
        if done * PARTS // total > (done - 1) * PARTS // total:
            step(f"study io500: read {done} of {total} places")

    return progress


def _show(result: Io500Study) -> None:
    """Sentences, then the families that have enough submissions for a table."""
    from fsmatrix.analysis.studies.io500.result import grids
    from fsmatrix.analysis.studies.io500.words import ENOUGH

    analyse.print_lines(result.says)
    few = sum(row.submissions < ENOUGH for row in result.families)
    for grid in grids(result, ENOUGH if few < len(result.families) else 1, ranges=False):
        analyse.print_lines(["", grid.title])
        analyse.grid(grid.columns, grid.lines, 1)
    if 0 < few < len(result.families):
        analyse.print_lines(
            ["", f"{few} families with fewer than {ENOUGH} submissions: see --out or --json."]
        )
