"""`fsmatrix trace import`: traces that other tools have taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import common, progress
from fsmatrix.cli.progress import waiting
from fsmatrix.cli.traces.capture import check_place
from fsmatrix.suite.campaign.yamlio import Origin, refuse


def import_(
    inputs: Annotated[list[Path], typer.Argument(help="Files of one format.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Trace to write.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="strace, fio-iolog, dbench, darshan, blkparse, ...; else by content.",
        ),
    ] = "",
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--root", help="Only files below this directory; names begin there (repeatable)."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="The program's working directory (strace without -y)."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Import what other tools have recorded: strace, fio, dbench, Darshan, blkparse.

    Paths are relative to "/", or to --root, which texts of strace need.  Several files become
    threads of one trace that begin together.  Status 2: nothing was written.

    Example: fsmatrix trace import job1.iolog job2.iolog -o fio.h5
    """
    from fsmatrix.results.evidence.trace import gaps
    from fsmatrix.traces.capture.system import NO_FOLDER
    from fsmatrix.traces.importing.base import FOLDER_ADVICE, import_traces
    from fsmatrix.traces.importing.dbench import Names
    from fsmatrix.traces.model import NO_TIMES

    check_place(out)
    absolute = [root.absolute() for root in roots or ()]
    try:
        Names(absolute)
    except ValueError as error:
        raise refuse(Origin("--root"), "", str(error)) from error
    if folder is not None and not folder.is_absolute():
        raise refuse(Origin(f"--folder {folder}"), "", "is not an absolute path")
    with waiting("trace import: reading"):
        done = import_traces(inputs, out, format_, absolute, folder)
    if as_json:
        common.print_json(
            {
                "file": str(out),
                "format": done.format,
                "operations": done.operations,
                "timed": done.header.timed,
                "unseen": dict(done.header.unseen),
                "facts": dict(done.header.facts),
            }
        )
        return
    console = progress.console()
    facts = done.header.facts
    times = "" if done.header.timed else ", without times: only their order is known"
    reason = f" ({facts[NO_TIMES]})" if NO_TIMES in facts else ""
    progress.line(console, f"{done.operations} operations of {done.format} in {out}{times}{reason}")
    for what, count in sorted(done.header.unseen.items()):
        progress.line(console, f"not in the trace: {count} x {what}", "yellow")
    if NO_FOLDER in done.header.unseen:
        progress.line(console, FOLDER_ADVICE, "yellow")
    for sentence in gaps(facts):
        progress.line(console, sentence, "yellow")
