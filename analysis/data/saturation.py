"""Latencies of open loops that did not follow their rate: none is there to be compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis.data.columns import coded, combined
from fsmatrix.results.evidence.openloop import ENOUGH

NEEDED = ("offered_rate", "achieved_rate", "unplayed", "case_id", "phase", "latency_of")
LATENCIES = ("mean", "min", "max", "p50", "p95", "p99", "p99_9", "of")  # the histogram stays


def saturated_points(ds: xr.Dataset) -> npt.NDArray[np.bool_]:
    """Rows [run] of phases that were saturated in any run of their case.

    Other variables are read only where there are some.
    """
    none = np.zeros(ds.sizes.get("run", 0), dtype=bool)
    if any(name not in ds.variables for name in NEEDED):
        return none
    offered, achieved, unplayed = (ds.variables[name].values for name in NEEDED[:3])
    with np.errstate(invalid="ignore"):
        saturated = (achieved < ENOUGH * offered) | (unplayed > 0)
    if not saturated.any():
        return none
    codes = [coded(ds.variables[name].values)[1] for name in ("case_id", "phase")]
    point = combined(codes, saturated.size)[1]
    return np.isin(point, point[saturated])


def without_saturated(ds: xr.Dataset) -> xr.Dataset:
    """The campaign without latencies of saturated points.

    A saturated run has none in the file.  Those of the others would be of the lucky ones only.
    """
    concerned = saturated_points(ds)
    if not concerned.any():
        return ds
    columns = {}
    for name in (f"latency_{part}" for part in LATENCIES):
        values = ds.variables[name].values.copy()
        values[concerned] = "" if name == "latency_of" else np.nan
        columns[name] = ("run", values, ds.variables[name].attrs)
    left = ds.assign(columns)
    left.set_close(ds.close)
    return left
