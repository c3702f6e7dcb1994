"""What IOR and mdtest say of their own iterations, beside our number.

Both take the rate of each iteration and print the largest, the smallest, the mean and the
standard deviation of these rates.  Our number is all that was done over all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.columns import Array, Codes
from fsmatrix.analysis.units import METRICS, own_metric
from fsmatrix.results import iterations

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from fsmatrix.analysis.data.summary import Cell, Summary

NAMES = {"ior": "IOR"}  # of engines that call themselves otherwise
COUNT = iterations.OWN + "iterations"
ROUNDED = 0.01  # of a rate, at most: what printed digits leave open
DONE = {"bandwidth": "bytes", "iops": "operations"}


@dataclass(frozen=True)
class OwnSummary:
    """What the engine says of the iterations in the runs of a cell: medians over the runs."""

    engine: str
    metric: str  # bandwidth or iops
    runs: int
    iterations: float  # of one run
    maximum: float  # SI units, as the following
    minimum: float
    mean: float
    stddev: float
    counted: float  # operations that its rates count / those that were done; NaN if not known
    rows: Codes  # along `run`

    def to_dict(self) -> dict[str, Any]:
        """The numbers."""
        return {name: value for name, value in vars(self).items() if name != "rows"}


def of_cells(ds: xr.Dataset, kept: Codes, group_of: Codes) -> dict[int, OwnSummary]:
    """Group -> what its engine says of the iterations of its rows `kept`, [row along `run`].

    Only of groups in which a run has several; nothing of files of before.
    """
    if COUNT not in ds:
        return {}
    several = ds[COUNT].values[kept] > 1
    rows, group = kept[several], group_of[several]
    if not rows.size:
        return {}
    names = ("engine", "phase", *iterations.OWN_VARIABLES)
    values = {name: ds[name].values[rows] for name in names} | {"counted": _counted(ds, rows)}
    order = np.argsort(group, kind="stable")
    found = {}
    for mine in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        own = _summary({name: column[mine] for name, column in values.items()}, rows[mine])
        if own is not None:
            found[int(group[mine[0]])] = own
    return found


def _summary(values: Mapping[str, Array], rows: Codes) -> OwnSummary | None:
    engine = str(values["engine"][0])
    metric = own_metric(engine, str(values["phase"][0]))
    median = {
        name: float(np.median(values[name])) for name in (*iterations.OWN_VARIABLES, "counted")
    }
    rates = {
        field: median[f"{iterations.OWN}{metric}_{name}"]
        for field, name in (
            ("maximum", "max"), ("minimum", "min"), ("mean", "mean"), ("stddev", "stddev"),
        )
    }  # fmt: skip
    if np.isnan(list(rates.values())).any():
        return None
    return OwnSummary(
        engine=engine, metric=metric, runs=rows.size, iterations=median[COUNT],
        counted=median["counted"] if metric == "iops" else np.nan, rows=rows, **rates,
    )  # fmt: skip


def _counted(ds: xr.Dataset, rows: Codes) -> Array:
    """Operations that the printed rates count / those that were done, of each row; NaN: unknown."""
    printed, seconds, done = (
        ds[iterations.PREFIX + name].values for name in ("iops", "seconds", "operations")
    )
    shares = []
    for place in _places(ds, rows):
        all_done = done[place].sum()
        counted = (printed[place] * seconds[place]).sum()
        shares.append(counted / all_done if all_done else np.nan)
    return np.array(shares)


def _places(ds: xr.Dataset, rows: Codes) -> list[slice]:
    """The iterations of each of these rows along `run`, along `iteration`."""
    first, size = (ds[f"iteration_{part}"].values[rows].tolist() for part in ("first", "size"))
    return [slice(one, one + many) for one, many in zip(first, size, strict=True)]


def with_values(ds: xr.Dataset, summary: Summary) -> list[dict[str, Any]]:
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


def _values(ds: xr.Dataset, columns: Mapping[str, Array], rows: Codes) -> list[dict[str, Any]]:
    runs = ds["run_id"].values[rows].tolist()
    return [
        {"run_id": str(run)} | one
        for run, place in zip(runs, _places(ds, rows), strict=True)
        for one in iterations.rows_of({name: column[place] for name, column in columns.items()})
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
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None,
                  header_style="bold", pad_edge=False)  # fmt: skip
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
