"""`fsmatrix collect`: merges run files into campaign.h5."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import common, completion, progress


def collect(
    directory: Annotated[
        Path, typer.Argument(help="A results directory.", autocompletion=completion.results)
    ],
    out: common.OutFile = None,
    as_json: common.Json = False,
) -> None:
    """Merge all runs of a directory into one file; list and leave out damaged files.

    Example: fsmatrix collect out -o all.h5
    """
    from rich.progress import Progress

    from fsmatrix.results.files.store import Store

    store = Store.open(directory)
    console = progress.console()
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("merging", total=len(store.files()))
        merged = store.merge(out, lambda seen: bar.update(task, completed=seen))
    damaged = [{"path": str(path), "reason": reason} for path, reason in store.damaged()]
    if as_json:
        common.print_json({"file": str(merged), "runs": len(store.ids()), "left_out": damaged})
        return
    for entry in damaged:
        console.print(
            f"left out: {entry['path']}: {entry['reason']}",
            style="yellow",
            highlight=False,
            markup=False,
        )
    console.print(
        f"{len(store.ids()) - len(damaged)} runs in {merged}", highlight=False, markup=False
    )
