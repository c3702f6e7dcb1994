"""`fsmatrix trace info`: what a trace is like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import common, progress
from fsmatrix.cli.questions import analyse, options


def info(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace.")],
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """What a trace is like: operations, sizes, files, pages, reuse, order, rates.

    Miss ratios are those of an LRU cache, which drops the least recently used page.

    Example: fsmatrix trace info git.h5 -o git.png
    """
    from fsmatrix.analysis.draw.tables import text
    from fsmatrix.analysis.traces import TraceShown
    from fsmatrix.traces.reader import opened
    from fsmatrix.traces.statistics import survey

    analyse.picture(out)
    with opened(trace) as operations, progress.bar("reading", operations.operations) as tell:
        result = TraceShown(trace.name, survey(operations, tell))
    analyse.deliver(result, out, as_json)
    if not as_json:
        frame = text(result.classes())
        analyse.grid([str(name) for name in frame.columns], frame.to_numpy().tolist())
