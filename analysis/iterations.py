"""What IOR and mdtest say of their own iterations, beside our number.

Both take the rate of each iteration and print the largest, the smallest, the mean and the standard
deviation of these rates (IOR: bw_values of ior-output.c, deviation with / n; mdtest: its SUMMARY,
from 4.0 on with / (n - 1)).  Our number is all that was moved over all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.columns import Codes
from fsmatrix.analysis.units import METRICS, own_metric
from fsmatrix.results import iterations

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from fsmatrix.analysis.summary import Cell, Summary

ENGINES = {"ior": "IOR", "mdtest": "mdtest"}  # that print a summary over their iterations
ROUNDED = 0.01  # of a rate, at most: what printed digits leave open
DONE = {"bandwidth": "bytes", "iops": "operations"}


@dataclass(frozen=True)
class OwnSummary:
    """The engine's summary over the iterations of the runs of a cell; rates in SI units."""

    engine: str
    metric: str  # bandwidth or iops
    runs: int
    iterations: int
    maximum: float
    minimum: float
    mean: float
    deviation: float
    counted: float  # what its rates count, as a share of what was done
    places: Codes  # rows along `iteration`

    def to_dict(self) -> dict[str, Any]:
        """The numbers, without the iterations."""
        names = ("metric", "runs", "iterations", "maximum", "minimum", "mean", "deviation",
                 "counted")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def of_cells(ds: xr.Dataset, kept: Codes, group_of: Codes) -> dict[int, OwnSummary]:
    """Group -> what its engine says of the iterations of its rows `kept`, [row along `run`].

    Only of groups in which a run has several; nothing of files that hold no iterations.
    """
    if not ds.sizes.get("iteration", 0) or "iteration_run" not in ds:
        return {}
    owner = np.full(ds.sizes["run"], -1, dtype=np.int64)
    owner[kept] = group_of
    row = ds["iteration_run"].values
    group = owner[row]
    places = np.flatnonzero(group >= 0)
    places = places[np.argsort(group[places], kind="stable")]
    cuts = np.flatnonzero(np.diff(group[places])) + 1
    found = {}
    for mine in np.split(places, cuts):
        runs = np.unique(row[mine])
        if runs.size < mine.size:
            own = _summary(ds, mine, runs)
            if own is not None:
                found[int(group[mine[0]])] = own
    return found


def _summary(ds: xr.Dataset, places: Codes, runs: Codes) -> OwnSummary | None:
    first = int(runs[0])
    engine, version, phase = (
        str(ds[name].values[first]) for name in ("engine", "engine_version", "phase")
    )
    if engine not in ENGINES:
        return None
    metric = own_metric(engine, phase)
    seconds, done = (
        ds[iterations.PREFIX + name].values[places] for name in ("seconds", DONE[metric])
    )
    printed = ds[iterations.PREFIX + metric].values[places]
    rates = np.where(np.isnan(printed), done / seconds, printed)
    sample = engine == "mdtest" and not version.startswith("3.2")
    return OwnSummary(
        engine=engine, metric=metric, runs=runs.size, iterations=places.size,
        maximum=float(rates.max()), minimum=float(rates.min()), mean=float(rates.mean()),
        deviation=float(rates.std(ddof=int(sample))),
        counted=float((rates * seconds).sum() / done.sum()), places=places,
    )  # fmt: skip


def with_values(ds: xr.Dataset, summary: Summary) -> list[dict[str, Any]]:
    """`Summary.to_dict`, and in each cell `own_summary` and `iterations`: one dict for each.

    Both are empty of cells without a summary of their own.
    """
    return [
        flat | {
            "own_summary": cell.own.to_dict() if cell.own else {},
            "iterations": _values(ds, cell.own.places) if cell.own else [],
        }
        for flat, cell in zip(summary.to_dict(), summary.cells, strict=True)
    ]  # fmt: skip


def _values(ds: xr.Dataset, places: Codes) -> list[dict[str, Any]]:
    runs = ds["run_id"].values[ds["iteration_run"].values[places]].tolist()
    columns = {
        name: ds[iterations.PREFIX + name].values[places].tolist() for name in iterations.COLUMNS
    }
    told = [
        {name: column[index] for name, column in columns.items() if column[index] == column[index]}
        for index in range(places.size)
    ]
    return [{"run_id": str(run)} | values for run, values in zip(runs, told, strict=True)]


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
    name = ENGINES[engine]
    return (
        f"ours: all {DONE[metric]} / all the time of a run's iterations (of several runs, the "
        f"median). {name}'s mean is the plain mean of its iterations' rates: a slow iteration "
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
    title = f"{ENGINES[engine]}'s own summary of its iterations in {unit.label}, beside ours"
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
    count = f"{own.iterations} in {own.runs} runs" if own.runs > 1 else str(own.iterations)
    values = (own.maximum, own.minimum, own.mean, own.deviation)
    return [count, *(units.text(value, unit) for value in values)]
