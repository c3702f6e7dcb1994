"""The page-cache study: IOPS against devices per host adapter; replay rates per workload."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.questions.curves import Curves, curves, described
from fsmatrix.analysis.units import brief

DEVICES = ("devices_per_adapter", "ssds_per_hba", "devices")
TRACES = ("trace", "generator")  # what is replayed
THREADS = ("threads", "processes_per_node", "processes")
PER_DEVICE = "iops_per_device"


def adapters(ds: xr.Dataset, **options: Any) -> Curves:
    """IOPS of one device over devices per host adapter (`iops_per_device`, or iops / devices).

    Falling lines: the adapter, its driver or its link is shared.  `remarks` has the sum over an
    adapter at both ends, since that may still grow.  ValueError without the factor or metric.
    """
    data = ds
    if PER_DEVICE not in rows(ds).columns:
        iops = curves(ds, "iops", DEVICES)  # ValueError with what is missing
        data = ds.assign({PER_DEVICE: ds["iops"] / ds[iops.along]})
    per_device = curves(
        data,
        PER_DEVICE,
        DEVICES,
        panel=("phase",),
        title="IOPS per device",
        unit=("1/s", 1.0),
        **options,
    )
    return _with_sums(per_device)


def _with_sums(curves: Curves) -> Curves:
    sums = []
    for line in curves.lines:
        ends = [x * c.median.median for x, c in zip(line.levels, line.cells, strict=True)]
        if len(ends) > 1:
            first, last = line.levels[0], line.levels[-1]
            where = f"{described(line.key)}: " if line.key else ""
            sums.append(
                f"{where}an adapter with {last:g} devices does {ends[-1]:.0f} IOPS, with {first:g} "
                f"{ends[0]:.0f}: {brief(ends[-1] / ends[0])} times for {brief(last / first)} times "
                f"the devices ({ends[-1] / ends[0] * first / last:.0%} each)."
            )
    return replace(curves, remarks=(*curves.remarks, *sums))


def replay(ds: xr.Dataset, metric: str = "iops", **options: Any) -> Curves:
    """Replay rates over threads, a panel per trace or published workload, a line per target."""
    data = rows(ds)
    several = [n for n in TRACES if n in data.factors and np.unique(data.factor(n)).size > 1]
    named = several[0] if several else "trace" if "trace" in data.factors else "workload"
    return curves(ds, metric, THREADS, panel=(named,), title="Replayed operations", **options)
