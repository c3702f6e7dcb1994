"""What IOR and mdtest say of their own iterations, as medians over the runs of a cell.

Both take the rate of each iteration and print the largest, the smallest, the mean and the
standard deviation of these rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import Array, Codes
from fsmatrix.analysis.units import own_metric
from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json

COUNT = iterations.OWN + "iterations"


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

    def to_dict(self) -> dict[str, Json]:
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
    summaries = {}
    for places in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        own = _summary({name: column[places] for name, column in values.items()}, rows[places])
        if own is not None:
            summaries[int(group[places[0]])] = own
    return summaries


def _summary(values: Mapping[str, Array], rows: Codes) -> OwnSummary | None:
    engine = str(values["engine"][0])
    metric = own_metric(engine, str(values["phase"][0]))
    median = {
        name: float(np.median(values[name])) for name in (*iterations.OWN_VARIABLES, "counted")
    }
    rates = {
        field: median[f"{iterations.OWN}{metric}_{name}"]
        for field, name in (
            ("maximum", "max"),
            ("minimum", "min"),
            ("mean", "mean"),
            ("stddev", "stddev"),
        )
    }
    if np.isnan(list(rates.values())).any():
        return None
    return OwnSummary(
        engine=engine,
        metric=metric,
        runs=rows.size,
        iterations=median[COUNT],
        counted=median["counted"] if metric == "iops" else np.nan,
        rows=rows,
        **rates,
    )


def _counted(ds: xr.Dataset, rows: Codes) -> Array:
    """Operations that the printed rates count / those that were done, of each row; NaN: unknown."""
    printed, seconds, done = (
        ds[iterations.PREFIX + name].values for name in ("iops", "seconds", "operations")
    )
    shares = []
    for place in places_of(ds, rows):
        all_done = done[place].sum()
        counted = (printed[place] * seconds[place]).sum()
        shares.append(counted / all_done if all_done else np.nan)
    return np.array(shares)


def places_of(ds: xr.Dataset, rows: Codes) -> list[slice]:
    """The iterations of each of these rows along `run`, along `iteration`."""
    first, size = (ds[f"iteration_{part}"].values[rows].tolist() for part in ("first", "size"))
    return [slice(start, start + many) for start, many in zip(first, size, strict=True)]
