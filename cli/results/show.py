"""`fsmatrix show`: failed runs, who is ahead where, and medians, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.measure import Measurement
from rich.text import Text

from fsmatrix.cli import common, completion, terminal
from fsmatrix.cli.questions import analyse, options
from fsmatrix.cli.results import one_run
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.registry import did_you_mean
from fsmatrix.suite.campaign.problems import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

    from fsmatrix.analysis.data.cells import Cell
    from fsmatrix.analysis.data.summary import Summary
    from fsmatrix.analysis.standings.standings import Standings

FEW = 8  # cells whose medians are shown without being asked for
MORE = "More: --cells (medians and intervals of each cell), --metric, --json."
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
        bool, typer.Option("--reference", help="Show targets declared as references too.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            help="Only this run: its levels, and the command lines of its programs.",
            autocompletion=completion.runs,
        ),
    ] = None,
    cells: options.Cells = False,
    as_json: common.Json = False,
) -> None:
    """Show failed runs, which target is ahead in each cell, medians and intervals.

    Of more than a few cells the medians are shown if asked for, by --cells or --metric.

    Example: fsmatrix show out --metric bandwidth --metric latency_p99
    """
    if run is not None:
        one_run.tell(results, run, as_json)
        return
    from rich.console import Group

    from fsmatrix.analysis.data.cluster import ONE_MACHINE
    from fsmatrix.analysis.data.load import campaign_json, open_campaign, rows
    from fsmatrix.analysis.data.summary import current, summarise
    from fsmatrix.analysis.questions import iterations
    from fsmatrix.analysis.report import table
    from fsmatrix.analysis.units import METRICS

    for name in metric or ():
        if name not in METRICS:
            raise refuse(
                Origin(f"--metric {name}"), "", "no such metric" + did_you_mean(name, METRICS)
            )
    dataset = open_campaign(common.campaign_file(results))
    with analyse.bad_input([str(results)]):
        summary = summarise(dataset, include=["reference"] if reference else [])
    if as_json:
        standings, _ = _standings(dataset, summary)
        rows_of = zip(summary.cells, iterations.with_values(dataset, summary), strict=True)
        common.print_json([flat | _where(standings, cell) for cell, flat in rows_of])
        return
    console = terminal.console()
    if summary.cluster.one_machine:
        console.print(Text(f"{ONE_MACHINE}.", style="bold"))
    data = rows(dataset)
    failed = data.where((data["status"] != "ok") & current(data))
    common.say_failures(
        console, list(zip(failed["run_id"], failed["status"], failed["error"], strict=True))
    )
    if not metric:
        named = results.is_dir() or campaign_json(dataset).get("imported")
        many = _first_screen(console, dataset, summary, str(results) if named else "")
        if many and not cells:
            analyse.print_lines([*table.doubts(summary), MORE])
            return
    tables = Group(table.in_terminal(summary, metric or ()), iterations.tables(summary))
    # rich leaves out columns that do not fit, from the right: the numbers
    needs = Measurement.get(console, console.options.update(max_width=WIDEST), tables)
    needed = needs.minimum if console.is_terminal else needs.maximum
    console.width = max(console.width, needed)
    console.print(tables, crop=False)


def _standings(dataset: xr.Dataset, summary: Summary) -> tuple[Standings | None, list[str]]:
    """Who is ahead in which cell, and why some or all of that is not known.

    Nothing of one machine, which is said above all else.
    """
    from fsmatrix.analysis.lessons.backend import pairs_compared
    from fsmatrix.analysis.report.sections import MOST_RUNS
    from fsmatrix.analysis.standings.standings import standings

    if summary.cluster.one_machine:
        return None, []
    if summary.many_targets or dataset.sizes["run"] > MOST_RUNS:
        return None, [
            "too many runs or targets for this table; use `fsmatrix lessons` and `fsmatrix compare`"
        ]
    targets = [name for name in summary.targets if name not in summary.references]
    compared, refused = pairs_compared(dataset, targets)
    return (standings(dataset, summary, compared) if compared else None), refused


def _where(standings: Standings | None, cell: Cell) -> dict[str, Json]:
    """What `--json` says of a cell beside its medians."""
    standing = standings.of(cell) if standings else None
    return standing.to_dict() if standing else {}


def _first_screen(console: Console, dataset: xr.Dataset, summary: Summary, place: str) -> bool:
    """As the report's, or why there is none; whether it holds more than a few cells."""
    from fsmatrix.analysis.data.load import campaign_json
    from fsmatrix.analysis.questions.fairness import fairness
    from fsmatrix.analysis.report.standing import WIDTH, standing

    standings, refused = _standings(dataset, summary)
    for why in refused:
        console.print(Text(f"Not compared: {why}.", style="dim"))
    if standings:
        console.width = max(console.width, WIDTH)  # rich prints no wider than its console
        for part in standing(standings, campaign_json(dataset), place):
            console.print(part, width=None if console.is_terminal else WIDTH, crop=False)
    if standings or summary.cluster.one_machine:
        analyse.print_lines(fairness(dataset, summary=summary).short(place or "FILE"))
    return standings is not None and len(standings.cells) > FEW
