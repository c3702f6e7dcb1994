"""`fsmatrix show`: medians in the terminal, failed runs first."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.measure import Measurement

from fsmatrix.suite.cli import analyse, common, completion, terminal
from fsmatrix.suite.problems import Origin, did_you_mean, refuse

WIDEST = 10_000  # columns of characters that a table may need


def show(
    results: common.Results,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="bandwidth, iops, latency_p99, ... (repeatable).",
            autocompletion=completion.metrics,
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Show the declared references too.")
    ] = False,
    as_json: common.Json = False,
) -> None:
    """Show a campaign's medians and intervals, and its failed runs.

    Example: fsmatrix show out --metric bandwidth --metric latency_p99
    """
    from rich.console import Group

    from fsmatrix.analysis import iterations
    from fsmatrix.analysis.load import open_campaign, rows
    from fsmatrix.analysis.summary import summarise
    from fsmatrix.analysis.units import METRICS

    for name in metric or ():
        if name not in METRICS:
            raise refuse(
                Origin(f"--metric {name}"), "", "no such metric" + did_you_mean(name, METRICS)
            )
    dataset = open_campaign(common.campaign_file(results))
    with analyse.bad_input([str(results)]):
        summary = summarise(dataset, include_reference=reference)
    if as_json:
        common.print_json(iterations.with_values(dataset, summary))
        return
    console = terminal.console()
    data = rows(dataset)
    failed = data.where(data["status"] != "ok")
    common.say_failures(
        console, list(zip(failed["run_id"], failed["status"], failed["error"], strict=True))
    )
    tables = Group(summary.table(metric or ()), iterations.tables(summary))
    # rich leaves out columns that do not fit, from the right: the numbers
    needs = Measurement.get(console, console.options.update(max_width=WIDEST), tables)
    needed = needs.minimum if console.is_terminal else needs.maximum
    console.width = max(console.width, needed)
    console.print(tables, crop=False)
