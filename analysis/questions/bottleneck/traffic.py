"""Network traffic over time while runs went on (figure 10 of the SSD-cluster study).

Campaign files hold no series of counters: they stand in the run files of the store.  A rate is
what a client's network counter moved between two samples, in the direction in which the run moved
more, over the time between them.  The study drew all repetitions and no medians; both are here.

Of storage nodes, where they were watched, it is what all links of a node carried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key, level_text
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.questions.bottleneck import bottleneck
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_runs
from fsmatrix.analysis.units import Level, Unit
from fsmatrix.results.evidence.nodes import LINKS
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files.runfile import NONSENSE
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord, window
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COUNTERS = ("network_received_bytes", "network_sent_bytes")
CLIENTS, STORAGE_NODES = "client node", "storage node"
AROUND = 0.5  # seconds before and after the phase that are shown too


@dataclass(frozen=True)
class TrafficSeries:
    """One run's traffic; time in seconds, 0 is the phase's start."""

    run_id: str
    attachment: str
    seconds: float  # of the phase
    hosts: tuple[str, ...]
    begin: Floats  # [interval] between two samples
    end: Floats
    rate: Floats  # [host, interval], bytes per second; NaN where a host has no sample

    @property
    def inside(self) -> Floats:
        """Rates of the intervals inside the phase; [host, interval]."""
        return self.rate[:, (self.begin >= 0) & (self.end <= self.seconds)]

    @property
    def level(self) -> float:
        """Median over the intervals inside the phase of all hosts' traffic; NaN without any."""
        inside = self.inside.sum(axis=0)
        valued = inside[~np.isnan(inside)]
        return float(np.median(valued)) if valued.size else math.nan


@dataclass(frozen=True)
class TrafficCell:
    """All runs of one combination of levels."""

    key: Key  # what varies beside the chunk size
    chunk: Level
    runs: tuple[TrafficSeries, ...]
    median: Median  # of the runs' levels, over attachments
    limit: float  # of all storage nodes' links, bytes per second; NaN if unknown


@dataclass(frozen=True)
class Traffic:
    """Traffic over time of every cell that has a series."""

    study: Study
    unit: Unit
    cells: tuple[TrafficCell, ...]  # sorted by key, then by chunk size
    without: int  # runs that have no series
    left_out: tuple[str, ...] = ()  # runs that could not be used, and why
    whose: str = CLIENTS

    @property
    def says(self) -> list[str]:
        """The level of each cell beside the limit of the links."""
        sentences = []
        for cell in self.cells:
            m = cell.median
            text = f"{self._named(cell)}: {units.text(m.median, self.unit)}"
            if m.decides:
                low, high = (units.text(value, self.unit) for value in (m.low, m.high))
                text += f" [{low}, {high}]"
            text += f" {self.unit.label} in {len(cell.runs)} runs"
            if math.isfinite(cell.limit):
                text += f", {m.median / cell.limit:.0%} of the storage nodes' links"
            sentences.append(text + ("." if m.decides else f" ({m.says})."))
        if self.without:
            sentences.append(
                f"{plural(self.without, 'run')} without a series of its {self.whose}s' network."
            )
        sentences += self.left_out
        return sentences + self.study.remarks

    def _named(self, cell: TrafficCell) -> str:
        chunk = [level_text("chunk", cell.chunk)] if cell.chunk != "" else []
        where = self.study.describe(cell.key)
        return ", ".join([*chunk, *([where] if where != "all" or not chunk else [])])

    def table(self) -> pd.DataFrame:
        """One row per run and interval between two samples."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **dict(cell.key),
                    "chunk": cell.chunk,
                    "run_id": run.run_id,
                    "node": host,
                    "from, s": begin,
                    "to, s": end,
                    f"traffic, {self.unit.label}": rate,
                }
                for cell in self.cells
                for run in cell.runs
                for host, rates in zip(run.hosts, run.rate / self.unit.divisor, strict=True)
                for begin, end, rate in zip(run.begin, run.end, rates, strict=True)
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """JSON-able; bytes per second."""
        data: dict[str, Json] = plain(
            {
                "cells": [
                    {
                        "levels": dict(c.key),
                        "chunk": c.chunk,
                        "median": c.median,
                        "limit": c.limit,
                        "runs": c.runs,
                    }
                    for c in self.cells
                ],
                "says": self.says,
            }
        )
        return data

    @property
    def pages(self) -> tuple[Key, ...]:
        """What each figure is of: whatever varies beside the chunk size."""
        return tuple(dict.fromkeys(cell.key for cell in self.cells))

    def figure(self, page: int = 0) -> Figure:
        """A panel for each chunk size, a line for each run and client node."""
        from fsmatrix.analysis.draw import drawing

        if not 0 <= page < len(self.pages):
            raise ValueError(f"there are pages 0 to {len(self.pages) - 1}, not {page}")
        key = self.pages[page]
        cells = [cell for cell in self.cells if cell.key == key]
        hosts = sorted({host for cell in cells for run in cell.runs for host in run.hosts})
        where = self.study.describe(key)
        notes = [f"A line is one run on one {self.whose}; shaded: the shortest phase."]
        if _limited(cells):
            notes.append("Dotted: the links of all storage nodes together.")
        figure, axes = drawing.frame(
            1,
            len(cells),
            title="Network traffic" + (f": {where}" if where != "all" else ""),
            notes=[*notes, *self.study.remarks],
            width=2.4,
            height=2.6,
        )
        for ax, cell in zip(axes[0], cells, strict=True):
            self._panel(ax, cell, hosts)
            if _limited(cells):
                ax.axhline(cell.limit / self.unit.divisor, color="black", linestyle=":")
        top = max(ax.get_ylim()[1] for ax in axes[0])
        for ax in axes[0]:
            ax.set_ylim(0, top)
        axes[0][0].set_ylabel(f"traffic, {self.unit.label}", fontsize=8)
        drawing.legend(figure, axes, self.whose)
        return figure

    def _panel(self, ax: Axes, cell: TrafficCell, hosts: Sequence[str]) -> None:
        from fsmatrix.analysis.draw import drawing

        for run in cell.runs:
            for host, rates in zip(run.hosts, run.rate, strict=True):
                values = np.repeat(rates / self.unit.divisor, 2)
                ax.plot(
                    np.stack([run.begin, run.end], axis=1).ravel(),
                    values,
                    linewidth=0.9,
                    color=drawing.colour(hosts.index(host)),
                    label=host,
                    alpha=0.7,
                )
        ax.axvspan(0, min(run.seconds for run in cell.runs), color="black", alpha=0.05, zorder=0)
        ax.set_title(level_text("chunk", cell.chunk) if cell.chunk != "" else "", fontsize=8.5)
        ax.set_xlabel("time, s", fontsize=8)


def traffic(
    ds: xr.Dataset,
    store: Path | str,
    *,
    where: Mapping[str, Level] | None = None,
    unit: Unit | None = None,
    whose: str = CLIENTS,
) -> Traffic:
    """Traffic of the runs that count, from the run files of `store`; `where` as in `study`.

    `whose`: CLIENTS, or STORAGE_NODES that were watched (`monitor`).
    ValueError where no run has a bandwidth, and where no run file has network counters, or none
    that say anything of a phase;
    ResultError if `store` is none.
    """
    of = study(ds, "bandwidth", where)
    data, files = rows(ds), Store.open(store)
    runs: list[list[TrafficSeries]] = [[] for _ in of.valued]
    without = 0
    valueless: list[TrafficSeries] = []
    left_out: list[ResultError] = []
    for own, cell in zip(runs, of.valued, strict=True):
        for row in cell.cell.rows.tolist():
            run_id, phase = str(data["run_id"][row]), str(data["phase"][row])
            record = bottleneck.read_or_none(files, run_id, left_out)
            found = _series(record, phase, files, left_out, whose) if record else None
            without += found is None
            if found:
                (valueless if math.isnan(found.level) else own).append(found)
    traffic_cells = tuple(
        _cell(key, cell, own_runs)
        for key, cells in of.series("chunk").items()
        for cell in cells
        for own_runs in (runs[next(i for i, c in enumerate(of.valued) if c is cell)],)
        if own_runs
    )
    reasons = _valueless(valueless)
    if reasons and not traffic_cells:
        raise ValueError(" ".join(reasons))
    if not traffic_cells:
        raise ValueError(
            f"no run file in {store} has network counters of {whose}s in a run that counts"
        )
    shown = unit or units.fitting("bandwidth", [cell.median.median for cell in traffic_cells])
    told = (*reasons, *bottleneck.left_out_sentences(left_out))
    return Traffic(of, shown, traffic_cells, without, told, whose)


def _valueless(found: Sequence[TrafficSeries]) -> list[str]:
    """Why nothing is known of the traffic of these runs, a sentence for each reason."""
    short = [run for run in found if not run.inside.size]
    sentences = []
    if short:
        interval = float(np.median(np.concatenate([run.end - run.begin for run in short])))
        sentences.append(
            f"{plural(len(short), 'run')} without a value: no interval of the counters "
            f"({interval:.2g} s) lies in a window of {max(run.seconds for run in short):.2g} s or "
            "less."
        )
    if gaps := len(found) - len(short):
        sentences.append(
            f"{plural(gaps, 'run')} without a value: in each interval of the window a node's "
            "network counters are missing."
        )
    return sentences


def _series(
    record: RunRecord, phase: str, store: Store, left_out: list[ResultError], whose: str
) -> TrafficSeries | None:
    """As `series`; what makes no sense of a monitor is an error in `left_out`."""
    try:
        return of_nodes(record, phase) if whose == STORAGE_NODES else series(record, phase)
    except NONSENSE as error:
        left_out.append(ResultError(store.path(record.run_id), f"its monitor: {error}"))
        return None


def series(record: RunRecord, name: str) -> TrafficSeries | None:
    """The traffic of one phase of a run; None where no counter was sampled around it.

    All hosts have the times of the one that was sampled most often: they are off by a sampling
    interval at most.
    """
    phase = next((p for p in record.phases if p.name == name), None)
    monitor = record.monitor
    if phase is None or monitor is None or not any(n in monitor.series for n in COUNTERS):
        return None
    time, seconds = monitor.time - phase.began, window(phase)
    near = np.flatnonzero((time[1:] > -AROUND) & (time[:-1] < seconds + AROUND))
    steps = np.diff(time)[near]
    if not near.size or not (steps > 0).all():
        return None
    moved = [np.diff(monitor.series[n], axis=1)[:, near] for n in COUNTERS if n in monitor.series]
    busier = max(moved, key=lambda counter: float(np.nansum(counter)))
    return TrafficSeries(
        record.run_id,
        record.attachment,
        seconds,
        monitor.hosts,
        time[near],
        time[near + 1],
        busier / steps,
    )


def of_nodes(record: RunRecord, name: str) -> TrafficSeries | None:
    """As `series`, of the storage nodes that were watched.

    All have the times of the one with the most samples; of another its value at their middle.
    """
    phase = next((p for p in record.phases if p.name == name), None)
    monitor = record.nodes
    if phase is None or monitor is None:
        return None
    moved = [monitor.total((direction,)) for direction in LINKS]
    busier = max(moved, key=lambda rates: float(np.nansum(rates)))
    time, seconds = monitor.time - phase.began, window(phase)
    lead = time[monitor.known[int(np.argmax(monitor.known.sum(axis=1)))]]
    near = np.flatnonzero((lead[1:] > -AROUND) & (lead[:-1] < seconds + AROUND))
    if not near.size or np.isnan(busier).all():
        return None
    middle = (lead[near] + lead[near + 1]) / 2
    rate = np.full((len(monitor.hosts), near.size), np.nan)
    for host, own in enumerate(monitor.known):
        place = np.searchsorted(time[own], middle)  # the value of the time up to that sample
        known = (place > 0) & (place < int(own.sum()))
        rate[host, known] = busier[host, own][place[known]]
    linked = np.flatnonzero(~np.isnan(busier).all(axis=1))  # a bed's services have no links
    hosts = tuple(monitor.hosts[host] for host in linked)
    begin, end = lead[near], lead[near + 1]
    return TrafficSeries(record.run_id, record.attachment, seconds, hosts, begin, end, rate[linked])


def _cell(key: Key, cell: Values, runs: Sequence[TrafficSeries]) -> TrafficCell:
    levels, owners = [run.level for run in runs], np.array([run.attachment for run in runs])
    limit = bottleneck.link_limit(cell.level("network"), cell.number("storage_nodes"))
    return TrafficCell(key, cell.level("chunk"), tuple(runs), of_runs(levels, owners), limit)


def _limited(cells: Sequence[TrafficCell]) -> bool:
    """Whether the links' limit is one of what a line shows: one client node has all traffic."""
    return all(
        math.isfinite(cell.limit) and len(run.hosts) == 1 for cell in cells for run in cell.runs
    )
