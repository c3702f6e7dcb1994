"""Transactions on a database: how many, how long by type, and what the device and CPUs did.

For campaigns of the workload `tpcc` (docs/oltp.md).  Derived from TPC-C, not audited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.counted_rows import Levels, Table, table
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.columns import plain as texts
from fsmatrix.analysis.data.factors import rows_by_group, several
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median, of_runs
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOT_AUDITED = "TPC-C derived, not audited: no keying or think times; no number here is a tpmC."
PHASE = "transactions"
# column of the campaign file -> (heading, factor from SI units)
METRICS = {
    "transaction_rate": ("tpm", 60.0),
    "new_order_rate": ("NOPM", 60.0),
    "device_iops": ("device requests, 1/s", 1.0),
    "device_latency": ("request, ms", 1e3),
    "cpu_user": ("user", 1.0),
    "cpu_system": ("system", 1.0),
    "cpu_iowait": ("iowait", 1.0),
    "cpu_idle": ("idle", 1.0),
}
TYPES = ("new-order", "payment", "order-status", "delivery", "stock-level")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MOST_CELLS = 12  # in the figure
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Served:
    """One combination of levels: medians over attachments, latencies of all its runs together."""

    named: str
    levels: Levels
    metrics: Mapping[str, Median]
    latency: Mapping[str, Mapping[str, float]]  # type -> p50..., seconds; NaN: too few

    @property
    def tpm(self) -> Median:
        """Transactions of all types, per second."""
        return self.metrics["transaction_rate"]


@dataclass(frozen=True)
class Oltp:
    """All combinations of a campaign."""

    cells: tuple[Served, ...]
    engines: tuple[str, ...] = ()  # the databases

    @property
    def says(self) -> list[str]:
        """What it is, each combination in a sentence, and which databases did it."""
        apart = " Never compare them with each other." * (len(self.engines) > 1)
        by = f"Engine: {', '.join(self.engines)}.{apart}"
        return [NOT_AUDITED, *(_sentence(cell) for cell in self.cells), *[by] * bool(self.engines)]

    def table(self) -> pd.DataFrame:
        """One row per combination; latencies in ms."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **cell.levels,
                    **{
                        title: cell.metrics[name].median * factor
                        for name, (title, factor) in METRICS.items()
                        if name in cell.metrics
                    },
                    **{
                        f"{kind} {q}, ms": value * 1e3
                        for kind, quantiles in cell.latency.items()
                        for q, value in quantiles.items()
                    },
                    "attachments": cell.tpm.independent,
                }
                for cell in self.cells
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "cells": [
                    {"levels": c.levels, "metrics": c.metrics, "latency": c.latency}
                    for c in self.cells
                ],
                "says": self.says,
            }
        )
        return data

    def figure(self) -> Figure:
        """Transactions per minute; latencies by type: a bar to p50 and a line to p95."""
        from fsmatrix.analysis.draw import drawing

        shown = self.cells[:MOST_CELLS]
        left_out = len(self.cells) - len(shown)
        notes = [NOT_AUDITED, "Left: median over attachments with its interval."]
        notes += ["Right: the bar ends at p50 and the line at p95 of all runs together."]
        notes += drawing.weak(cell.tpm for cell in shown)
        notes += [f"{left_out} more combinations are in the table."] * (left_out > 0)
        figure, axes = drawing.frame(
            1,
            2,
            title="Transactions: TPC-C derived, not audited",
            notes=notes,
            width=3.9,
            height=1.4 + 0.28 * len(shown),
        )
        _rates(axes[0][0], shown)
        _latencies(axes[0][1], shown)
        drawing.legend(figure, [[axes[0][1]]])
        return figure


def _rates(ax: Axes, cells: tuple[Served, ...]) -> None:
    from fsmatrix.analysis.draw import drawing

    for place, cell in enumerate(cells):
        m = cell.tpm
        ax.barh(place, m.median * 60, height=0.6, color=drawing.colour(0))
        if math.isfinite(m.low):
            ax.errorbar(
                m.median * 60,
                place,
                xerr=drawing.whiskers([m], 1 / 60),
                color="black",
                capsize=2,
                lw=1,
            )
    ax.set_yticks(range(len(cells)), [cell.named or "all" for cell in cells])
    ax.set_xlabel("tpm, all types", fontsize=8)
    ax.invert_yaxis()


def _latencies(ax: Axes, cells: tuple[Served, ...]) -> None:
    from fsmatrix.analysis.draw import drawing

    thick = 0.8 / len(TYPES)
    for number, kind in enumerate(TYPES):
        at = np.arange(len(cells)) + (number - (len(TYPES) - 1) / 2) * thick
        of = [cell.latency.get(kind, {}) for cell in cells]
        middle, high = (
            np.array([quantiles.get(q, math.nan) for quantiles in of]) * 1e3 for q in ("p50", "p95")
        )
        ax.barh(at, middle, height=thick * 0.9, color=drawing.colour(number), label=kind)
        ax.hlines(at, middle, high, color=drawing.colour(number), linewidth=1)
    ax.set_yticks(range(len(cells)), [""] * len(cells))
    ax.set_xlabel("latency, ms", fontsize=8)
    ax.set_xscale("log")
    ax.invert_yaxis()


def _sentence(cell: Served) -> str:
    where = f"{cell.named}: " if cell.named else ""
    tpm = cell.metrics["transaction_rate"].median * 60
    orders = cell.metrics["new_order_rate"].median * 60
    p95 = cell.latency.get(TYPES[0], {}).get("p95", math.nan)
    slow = f", new orders within {p95 * 1e3:.3g} ms in 95 %" if math.isfinite(p95) else ""
    device = cell.metrics.get("device_iops")
    requests = ""
    if device is not None and "device_latency" in cell.metrics:
        time = cell.metrics["device_latency"].median * 1e3
        requests = f"; the device served {device.median:.0f} requests/s in {time:.3g} ms each"
    return f"{where}{tpm:.0f} tpm of all types, {orders:.0f} NOPM{slow}{requests}."


def oltp(ds: xr.Dataset, *, where: Levels | None = None) -> Oltp:
    """All combinations that have transactions; ValueError for a campaign without any."""
    if "transaction_rate" not in rows(ds).columns:
        raise ValueError("no transactions in this campaign")
    of = table(ds, "latency_mean", ("target",), {"phase": PHASE, **(where or {})})
    axes = {"target": of.sides, **of.factors}
    groups = rows_by_group(combined([axis.codes for axis in axes.values()], of.values.size)[1])
    levels = [{name: axis.levels[axis.codes[g[0]]] for name, axis in axes.items()} for g in groups]
    names = [name for name in several(levels) if name != "backend"]  # the target tells it
    cells = [
        Served(
            ", ".join(units.labelled(name, own[name]) for name in names),
            {name: own[name] for name in names},
            _metrics(ds, of, group),
            _quantiles(ds, of.index[group]),
        )
        for group, own in zip(groups, levels, strict=True)
    ]
    engines = {str(own["engine"]) for own in levels if own.get("engine")}
    return Oltp(tuple(sorted(cells, key=lambda cell: cell.named)), tuple(sorted(engines)))


def _metrics(ds: xr.Dataset, of: Table, group: Counts) -> dict[str, Median]:
    """Medians over attachments, of what was measured."""
    medians = {}
    for name in METRICS:
        if name in ds:
            values = ds[name].values[of.index[group]].astype(np.float64)
            if np.isfinite(values).any():
                medians[name] = of_runs(values, of.attachments[group])
    return medians


def _quantiles(ds: xr.Dataset, index: Counts) -> dict[str, dict[str, float]]:
    """Of each type of transaction, over all runs together."""
    names = [str(name) for name in texts(ds["kind_name"].values)]
    first, size = ds["latency_first"].values[index], ds["latency_size"].values[index]
    kinds, bins, counts = (ds[f"latency_{n}"].values for n in ("kind", "bin", "count"))
    percentiles = {}
    for kind in TYPES:
        if kind not in names:
            continue
        pooled = np.zeros(histogram.BINS, dtype=np.int64)
        for start, length in zip(first.tolist(), size.tolist(), strict=True):
            part = slice(start, start + length)
            chosen = kinds[part] == names.index(kind)
            np.add.at(pooled, bins[part][chosen], counts[part][chosen])
        percentiles[kind] = {
            q: histogram.percentile(pooled, share) for q, share in QUANTILES.items()
        }
    return percentiles
