"""`fsmatrix lessons`: what a campaign says to somebody who must choose."""

from __future__ import annotations

from typing import Annotated

import typer

from fsmatrix.cli import common
from fsmatrix.cli.questions import analyse, options
from fsmatrix.suite.campaign.yamlio import Origin, refuse

MORE = "More: --cells (every answer with its number), --json."


def lessons(
    files: options.Files,
    latency: Annotated[
        str | None,
        typer.Option(
            "--latency", help="Latency that chunks must keep: 'p99 < 10ms', 'mean < 1ms'."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option("--bandwidth", help="Storage nodes must reach: 500MB/s, 4Gb/s (bits)."),
    ] = None,
    tolerance: options.Tolerance = "5%",
    where: options.Wheres = None,
    cells: options.Cells = False,
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Which target suits which pattern, best chunk sizes, and where growth ends.

    With --bandwidth also how many storage nodes it takes.  Each answer has its number, interval
    and attachments, says how sure it is, and what the data cannot tell.

    Example: fsmatrix lessons out --latency 'p99 < 10ms' --bandwidth 500MB/s
    """
    from fsmatrix.analysis.lessons.lessons import lessons as analysis
    from fsmatrix.analysis.lessons.words import bound_of, rate_of
    from fsmatrix.results.units import UnitError

    analyse.picture(out)
    only, share = options.levels(where), options.share("--tolerance", tolerance)
    try:
        bound = bound_of(latency) if latency is not None else None
    except UnitError as error:
        raise refuse(Origin(f"--latency {latency}"), "", str(error)) from error
    try:
        rate = rate_of(bandwidth) if bandwidth is not None else None
    except UnitError as error:
        raise refuse(Origin(f"--bandwidth {bandwidth}"), "", str(error)) from error
    with analyse.bad_input(files):
        result = analysis(
            analyse.opened(files), latency_bound=bound, bandwidth=rate, tolerance=share, where=only
        )
    if out is not None and result.drawable:
        raise refuse(Origin(f"--out {out}"), "", result.drawable)
    if as_json or cells:
        analyse.deliver(result, out, as_json)
        return
    analyse.print_lines([*result.brief, MORE])
    if out:
        analyse.drawn([result], out)
