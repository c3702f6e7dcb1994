"""`fsmatrix trace generate`: a published workload as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import progress
from fsmatrix.cli.progress import echo
from fsmatrix.cli.traces.capture import check_place
from fsmatrix.suite.campaign.yamlio import Origin, refuse


def generate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="uniform-random, ycsb-zipfian, neo4j-dijkstra or synapse-labelling.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Trace to write.")],
    scale: Annotated[
        float,
        typer.Option(
            "--scale", help="Numbers of operations and pages, relative to the published ones."
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the trace: another seed gives another trace.")
    ] = 0,
) -> None:
    """Write one of the four published workloads as a trace.

    Replays do not need such a file: they generate the workload themselves, block by block.

    Example: fsmatrix trace generate ycsb-zipfian --scale 0.01 -o ycsb.h5
    """
    from fsmatrix.traces import page_cache
    from fsmatrix.traces.writer import copy

    try:
        trace = page_cache.generate(name, scale, seed)
    except ValueError as error:
        raise refuse(Origin(f"trace generate {name}"), "", str(error)) from error
    check_place(out)
    with progress.bar("writing", trace.operations) as tell:
        copy(trace, out, tell)
    pages = int(trace.files.size.sum()) // 4096
    echo(f"{out}: {trace.operations} operations on {pages} pages of 4 KiB")
