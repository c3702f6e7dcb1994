"""What happened inside a run: latencies, throughput and client CPU over time, on one axis.

The series stand in the run files of a store, not in the campaign file.  A phase has latencies over
time if the player played it; of other engines there is what they print: dbench's lines of each
second, IOR's iterations.  Times are seconds after the agreed start of a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values, values_of
from fsmatrix.analysis.data.load import open_loops, rows
from fsmatrix.analysis.data.matrices import metric_in
from fsmatrix.analysis.data.metric_cells import metric_for, study
from fsmatrix.analysis.questions.timeline import timeline_chart
from fsmatrix.analysis.questions.timeline.timeline_result import (
    Event,
    NodesTimeline,
    PhaseTimeline,
    RunTimeline,
    Timelines,
)
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.units import Level, Metric
from fsmatrix.results.evidence.nodes import CORES, LINKS
from fsmatrix.results.files.runfile import NONSENSE, read_checked
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Monitor, Phase, RunRecord
from fsmatrix.results.units import plural

CPU = ("cpu_busy", "cpu_idle", "cpu_iowait", "cpu_steal")  # the first of all of them is busy
AROUND = 3.0  # seconds before and after a phase in which samples are shown
TITLE = (
    "target", "workload", "pattern", "chunk", "nodes", "processes_per_node", "load", "rate",
    "capacity",
)  # fmt: skip
# findings that say that something happened inside the run: the report draws these cells
UNEVEN = frozenset({"not-stationary", "io-stalled", "storage-unhealthy", "stragglers", "saturated"})
REACHED = "achieved_rate"  # of an open loop, whose throughput was given
MOST_DRAWN = 6
MOST_CELLS = 6  # that are shown at once


def of_run(record: RunRecord) -> Timelines:
    """One run, all phases.  ValueError if nothing is known over time of any."""
    return Timelines(chart=timeline_chart, runs=(_of_run(record),))


def timeline(
    ds: xr.Dataset, store: Path | str, *, where: Mapping[str, Level] | None = None
) -> Timelines:
    """Of each cell the run nearest its median, from run files in `store`; `where` as in `study`.

    ValueError for more than MOST_CELLS cells, and where no such run has anything over time;
    ResultError if `store` is none.
    """
    files = Store.open(store)
    cells, varying = _cells(ds, where)
    if len(cells) > MOST_CELLS:
        raise ValueError(
            f"{len(cells)} cells: at most {MOST_CELLS} are shown at once; choose by "
            f"--where ({', '.join(varying)}), or one run by --run"
        )
    found: list[RunTimeline] = []
    left_out: list[str] = []
    for cell, metric in cells:
        shown = nearest(ds, files, cell, metric, left_out)
        found += [shown] if shown is not None else []
    if not found:
        raise ValueError(" ".join(left_out) or f"no run file in {store} of a run that counts")
    return Timelines(chart=timeline_chart, runs=tuple(found), left_out=tuple(left_out))


def doubtful(ds: xr.Dataset, store: Path | str) -> tuple[tuple[Timelines, ...], int]:
    """As `timeline`, of the first MOST_DRAWN cells with a finding of UNEVEN; and how many are left.

    ValueError and ResultError as `timeline`.
    """
    files = Store.open(store)
    cells = [pair for pair in _cells(ds)[0] if UNEVEN.intersection(pair[0].cell.findings)]
    found = [nearest(ds, files, *pair, []) for pair in cells[:MOST_DRAWN]]
    shown = tuple(Timelines(chart=timeline_chart, runs=(run,)) for run in found if run is not None)
    return shown, max(len(cells) - MOST_DRAWN, 0)


def _cells(
    ds: xr.Dataset, where: Mapping[str, Level] | None = None
) -> tuple[list[tuple[Values, Metric]], tuple[str, ...]]:
    """(cells with the metric of their medians, what varies); open loops by what they reached."""
    opened = bool(open_loops(ds).any())
    try:
        of = study(ds, metric_for(ds), where)
    except ValueError:
        if not opened:
            raise
        of = study(ds, REACHED, where)
    cells = [(cell, of.metric) for cell in of.valued]
    if opened and of.metric.name != REACHED:
        reached = metric_in(ds, REACHED)
        loops = [cell.cell for cell in of.cells if cell.cell.open_loop]
        cells += [(cell.values(REACHED), reached) for cell in loops]
    return cells, of.varying


def nearest(
    ds: xr.Dataset, files: Store, cell: Values, metric: Metric, left_out: list[str]
) -> RunTimeline | None:
    """Of the cell's runs the one nearest its median; None, and why in `left_out`, without one."""
    data, middle, values = rows(ds), cell.median.median, values_of(rows(ds), metric.name)
    own = cell.cell.rows[np.isfinite(values[cell.cell.rows])]
    unit = units.fitting(metric.quantity, [middle])
    for row in own[np.argsort(np.abs(values[own] - middle), kind="stable")].tolist():
        run_id, phase = str(data["run_id"][row]), str(data["phase"][row])
        if run_id not in files:
            continue
        value, median = units.text(float(values[row]), unit), units.text(middle, unit)
        why = f"of {plural(own.size, 'run')} nearest the median: {value} of {median} {unit.label}"
        try:
            return _of_run(read_checked(files.path(run_id)), phase, why)
        except (ResultError, ValueError) as error:
            left_out.append(f"{error}.")
            return None
    left_out.append(f"{cell.cell.target}: no run file of its runs is in {files.directory}.")
    return None


def _of_run(record: RunRecord, only: str = "", why: str = "") -> RunTimeline:
    """Of one phase, or all.  ValueError if nothing is known over time of any."""
    wanted = [phase for phase in record.phases if only in ("", phase.name)]
    try:
        phases = [_phase(record, phase) for phase in wanted]
    except NONSENSE as error:
        raise ValueError(f"run {record.run_id} has series that make no sense: {error}") from error
    shown = [p for p in phases if p.rate.size or p.latency or len(p.iterations)]
    if not shown:
        raise ValueError(
            f"run {record.run_id} ({record.engine}) has nothing over time: neither latencies of "
            "intervals, nor a series or iterations of its engine"
        )
    levels = {
        name: level
        for name, level in record.coordinates.items()
        if isinstance(level, str | int | float) and level != ""
    }
    return RunTimeline(
        record.run_id,
        units.described(levels, [name for name in TITLE if name in levels]),
        why,
        tuple(shown),
        tuple(one.phase for one in phases if one not in shown),
        tuple(f for f in record.findings if f.phase in ("", *(p.phase for p in shown))),
    )


def _phase(record: RunRecord, phase: Phase) -> PhaseTimeline:
    series = phase.interval_bytes
    moved = series is not None and bool(series.any())
    if not moved:
        series = phase.interval_operations
    known = series is not None and phase.interval > 0
    end = float(np.max(phase.end, initial=0.0))
    looks = record.evidence.health_watch.get(phase.name)
    events = [Event(e.time - phase.began, e.says) for e in looks.events] if looks else []
    cpu_time, cpu, hosts = _cpu(record.monitor, phase.began, end)
    return PhaseTimeline(
        phase=phase.name,
        begin=float(np.min(phase.start, initial=end)),
        end=end,
        width=phase.interval,
        latency=dict(phase.timeline) if known else {},
        rate=series / phase.interval if series is not None and known else np.zeros(0),
        bytes=moved or bool(phase.bytes.any()),
        latency_max=phase.interval_latency_max if known else None,
        iterations=_iterations(phase),
        cpu_time=cpu_time,
        cpu=cpu,
        hosts=hosts,
        events=tuple(events),
        nodes=_nodes(record.nodes, phase.began, end),
    )


def _iterations(phase: Phase) -> Floats:
    """Begin, end and rate of each; they follow one another, which is how engines do them."""
    table = phase.iterations
    if not table:
        return np.zeros((0, 3))
    ends = float(np.min(phase.start, initial=0.0)) + np.cumsum(table["seconds"])
    done = table["bytes"] if phase.bytes.any() else table["operations"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([ends - table["seconds"], ends, done / table["seconds"]], axis=1)


def _nodes(monitor: Monitor | None, began: float, end: float) -> NodesTimeline | None:
    """Storage nodes near the phase; None where none was watched then."""
    if monitor is None:
        return None
    time = monitor.time - began
    near = np.flatnonzero((time > -AROUND) & (time < end + AROUND))
    if near.size < 2:
        return None
    traffic, cpu = (monitor.total(names)[:, near] for names in (LINKS, CORES))
    return NodesTimeline(monitor.hosts, time[near], traffic, cpu)


Shares = tuple[Floats, Floats, tuple[str, ...]]  # time [sample + 1], busy [host, sample], hosts


def _cpu(monitor: Monitor | None, began: float, end: float) -> Shares:
    """Busy shares between samples near the phase; all hosts on the first one's samples."""
    nothing: Shares = (np.zeros(0), np.zeros((0, 0)), ())
    if monitor is None or not all(name in monitor.series for name in CPU):
        return nothing
    time = monitor.time - began
    near = np.flatnonzero((time > -AROUND) & (time < end + AROUND))
    if near.size < 2 or not (np.diff(time[near]) > 0).all():
        return nothing
    passed = [np.diff(monitor.series[name][:, near], axis=1) for name in CPU]
    whole = np.sum(passed, axis=0)
    share = np.divide(passed[0], whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return time[near], share, monitor.hosts
