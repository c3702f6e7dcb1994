"""What IOR and mdtest say of their own iterations, beside our number.

Both take the rate of each iteration and print the largest, the smallest, the mean and the
standard deviation of these rates.  Our number is all that was done over all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import OwnSummary, places_of
from fsmatrix.analysis.data.columns import Array, Codes
from fsmatrix.analysis.units import METRICS
from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from fsmatrix.analysis.data.cells import Cell
    from fsmatrix.analysis.data.summary import Summary

NAMES = {"ior": "IOR"}  # of engines that call themselves otherwise
ROUNDED = 0.01  # of a rate, at most: what printed digits leave open
DONE = {"bandwidth": "bytes", "iops": "operations"}


def with_values(ds: xr.Dataset, summary: Summary) -> list[dict[str, Json]]:
    """`Summary.to_dict`, and in each cell `own_summary` and `iterations`: one dict for each.

    Both are empty of cells whose engine sums nothing up.
    """
    cells = summary.to_dict()
    columns: dict[str, Array] = {}
    if any(cell.own for cell in summary.cells):
        columns = {name: ds[iterations.PREFIX + name].values for name in iterations.COLUMNS}
    for flat, cell in zip(cells, summary.cells, strict=True):
        flat["own_summary"] = cell.own.to_dict() if cell.own else {}
        flat["iterations"] = _values(ds, columns, cell.own.rows) if cell.own else []
    return cells


def _values(ds: xr.Dataset, columns: Mapping[str, Array], rows: Codes) -> list[dict[str, Json]]:
    runs = ds["run_id"].values[rows].tolist()
    return [
        {"run_id": str(run), **values}
        for run, place in zip(runs, places_of(ds, rows), strict=True)
        for values in iterations.rows_of({name: column[place] for name, column in columns.items()})
    ]


# -- in the terminal -------------------------------------------------------------------------
def tables(summary: Summary) -> Group:
    """The engines' summaries beside our numbers, and why they differ; empty without any."""
    from rich.console import Group
    from rich.text import Text

    by_kind: dict[tuple[str, str], list[Cell]] = {}
    for cell in summary.cells:
        if cell.own is not None:
            by_kind.setdefault((cell.own.engine, cell.own.metric), []).append(cell)
    parts: list[Any] = []
    for (engine, metric), cells in by_kind.items():
        reasons = " ".join([why(engine, metric), *miscounted(cells)])
        parts += [_table(engine, metric, cells, summary), Text(reasons, style="dim")]
    return Group(*parts)


def why(engine: str, metric: str) -> str:
    """Why our number is another one than the engine's."""
    name = NAMES.get(engine, engine)
    return (
        f"ours: all {DONE[metric]} / all the time of a run's iterations (of several runs, "
        f"medians). {name}'s mean is the plain mean of its iterations' rates: a slow iteration "
        f"counts no more than a fast one, although it took longer. {name}'s maximum is its best "
        "iteration alone. Iterations share one mount and its caches: they are no repetitions."
    )


def miscounted(cells: Sequence[Cell]) -> list[str]:
    """A sentence on the phases of which the engine counts more or less than was done."""
    shares = {
        str(cell.levels["phase"]): cell.own.counted
        for cell in cells
        if cell.own is not None and abs(cell.own.counted - 1) > ROUNDED
    }
    if not shares:
        return []
    named = ", ".join(f"{100 * share:.3g} % in {phase}" for phase, share in shares.items())
    return [f"Its rates count another number of operations than were done: {named}."]


def _table(engine: str, metric: str, cells: Sequence[Cell], summary: Summary) -> Table:
    from rich.table import Table
    from rich.text import Text

    quantity = METRICS[metric].quantity
    ours = [cell.metrics[metric].median for cell in cells]
    unit = units.fitting(quantity, ours)
    title = (
        f"{NAMES.get(engine, engine)}'s own summary of its iterations in {unit.label}, beside ours"
    )
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    varying = [name for name in summary.varying if name != "phase"]
    names = [name for name in varying if len({cell.levels[name] for cell in cells}) > 1]
    for name in ("phase", *names):
        table.add_column(Text(units.factor_title(name)), no_wrap=True)
    for name in ("iterations", "max", "min", "mean", "stddev", "ours"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for cell, median in zip(cells, ours, strict=True):
        if cell.own is not None:
            levels = [units.level_text(name, cell.levels[name]) for name in ("phase", *names)]
            table.add_row(
                *map(Text, [*levels, *_numbers(cell.own, unit), units.text(median, unit)])
            )
    return table


def _numbers(own: OwnSummary, unit: units.Unit) -> list[str]:
    count = f"{own.iterations:g}" + (f" x {own.runs} runs" if own.runs > 1 else "")
    values = (own.maximum, own.minimum, own.mean, own.stddev)
    return [count, *(units.text(value, unit) for value in values)]
