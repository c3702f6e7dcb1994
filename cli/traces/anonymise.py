"""`fsmatrix trace anonymise`: a trace that can be given to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import progress
from fsmatrix.cli.traces.capture import check_place


def anonymise(
    source: Annotated[Path, typer.Argument(help="A trace.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The anonymised trace to write.")],
    extensions: Annotated[
        bool, typer.Option("--keep-extensions", help="Keep what follows the last dot of a name.")
    ] = False,
) -> None:
    """Replace the names of files, remove the command, renumber the processes.

    Folders stay folders, and one name has one pseudonym everywhere; the key is not stored. Sizes,
    times, ranks and the order of operations stay as they are.

    Example: fsmatrix trace anonymise git.h5 -o shared.h5 --keep-extensions
    """
    from fsmatrix.traces.writer import anonymise as rewrite

    check_place(out)
    rewrite(source, out, extensions)
    progress.echo(f"{out}: {source} without names", err=True)
