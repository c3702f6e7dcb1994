"""A run drawn: a column for each phase, below one another what happened at the same time.

What is not known of any phase of a page has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fsmatrix.analysis.questions.timeline.timeline_result import (
    EDGES,
    PhaseTimeline,
    Timelines,
    drawable,
    narrowed,
)
from fsmatrix.analysis.units import Quantity, Unit, fitting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARK = "#c0392b"
MOST_NOTES = 4

Row = tuple[str, Callable[["Axes", PhaseTimeline], None]]


def pages(timelines: Timelines) -> int:
    """Number of figures."""
    return len(drawable(timelines.runs))


def draw(timelines: Timelines, page: int) -> Figure:
    """Latencies, throughput and CPU of the phases of a page."""
    from fsmatrix.analysis.draw import drawing

    run, phases = drawable(timelines.runs)[page]
    unit = _unit(phases)
    rows: list[Row] = []
    if any(phase.latency or phase.latency_max is not None for phase in phases):
        rows.append(("latency, s", _latency))
    rows.append((f"throughput, {unit.label}", lambda ax, phase: _rate(ax, phase, unit)))
    if any(phase.cpu.size for phase in phases):
        rows.append(("client CPU, busy share", _cpu))
    watched = [phase.nodes for phase in phases if phase.nodes]
    if any(np.isfinite(nodes.traffic).any() for nodes in watched):
        traffic = fitting("bandwidth", [float(np.nanmax(n.traffic, initial=0)) for n in watched])
        label = f"storage nodes' links, {traffic.label}"
        rows.append((label, lambda ax, phase: _nodes(ax, phase, "traffic", traffic.divisor)))
    if any(np.isfinite(nodes.cpu).any() for nodes in watched):
        rows.append(("storage nodes' CPU, share", lambda ax, phase: _nodes(ax, phase, "cpu", 1.0)))
    why = f" ({run.why})" if run.why else ""
    figure, axes = drawing.frame(
        len(rows),
        len(phases),
        title=f"{run.run_id}: {run.title}",
        notes=[*_notes(phases), *([f"Shown{why}."] if why else [])],
        width=6.4 if len(phases) == 1 else 3.4,
        height=1.9,
    )
    for column, phase in enumerate(phases):
        for row, (label, paint) in enumerate(rows):
            ax = axes[row][column]
            paint(ax, phase)
            ax.set_xlim(*_shown(phase))
            for number, event in enumerate(phase.events, 1):
                ax.axvline(event.time, color=MARK, linestyle="--", linewidth=0.9)
                if row == 0:
                    ax.annotate(
                        str(number), (event.time, 1), xycoords=("data", "axes fraction"),
                        color=MARK, fontsize=7, ha="center", va="bottom",
                    )  # fmt: skip
            if column == 0:
                ax.set_ylabel(label, fontsize=8)
        axes[0][column].set_title(phase.phase, fontsize=8.5)
        axes[-1][column].set_xlabel("time after the phase's start, s", fontsize=8)
    for panels in axes:
        _share_scale(panels)
    if watched:
        drawing.legend(figure, axes)
    return figure


def _unit(phases: Sequence[PhaseTimeline]) -> Unit:
    quantity: Quantity = "bandwidth" if any(phase.bytes for phase in phases) else "rate"
    rates = [rate for p in phases for rate in (*p.rate.tolist(), *p.iterations[:, 2].tolist())]
    return fitting(quantity, [rate for rate in rates if rate == rate])


def _shown(phase: PhaseTimeline) -> tuple[float, float]:
    """The phase and what the storage said around it."""
    moments = [0.0, phase.end, *(event.time for event in phase.events)]
    room = 0.02 * max(phase.end, 1e-6)
    return min(moments) - room, max(moments) + room


def _notes(phases: Sequence[PhaseTimeline]) -> list[str]:
    notes = []
    if any(phase.latency for phase in phases):
        notes.append(
            "Colour: operations that took so long, from 1 (yellow) to most (dark), log scale; "
            "line: median, of reads and writes if there are any. An operation stands where it "
            "ended."
        )
    said = [
        f"{i}: {phase.phase}, {event.time:.3g} s: {event.says}"
        for phase in phases
        for i, event in enumerate(phase.events, 1)
    ]
    if said:
        more = f" And {len(said) - MOST_NOTES} more." if len(said) > MOST_NOTES else ""
        notes.append(
            f"Dashed: what the storage said when it was asked. {' '.join(said[:MOST_NOTES])}{more}"
        )
    return notes


def _latency(ax: Axes, phase: PhaseTimeline) -> None:
    from matplotlib.colors import LogNorm

    ax.set_yscale("log")
    ax.tick_params(axis="y", which="minor", labelsize=6)
    counts = phase.counts
    used = np.flatnonzero(counts.any(axis=0))
    if not used.size:
        _latency_max(ax, phase)
        return
    counts, width = narrowed(phase.counts, phase.width)
    data = narrowed(phase.data, phase.width)[0]  # the rest is shown where it is slower
    low, high = int(np.flatnonzero(data.any(axis=0))[0]), int(used[-1]) + 1
    edges = np.maximum(EDGES[low : high + 1], 1e-9)
    time = np.arange(len(counts) + 1) * width
    shown = np.ma.masked_equal(counts[:, low:high].T, 0)
    norm = LogNorm(1, max(2, int(counts.max())))
    ax.pcolormesh(time, edges, shown, norm=norm, cmap="viridis_r", rasterized=True)
    middles = np.sqrt(np.maximum(EDGES[:-1], 1e-9) * EDGES[1:])
    done = data.sum(axis=1)
    half = (np.cumsum(data, axis=1) >= np.ceil(done / 2)[:, np.newaxis]).argmax(axis=1)
    median = np.where(done > 0, middles[half], np.nan)
    ax.step(time[:-1], median, where="post", color="black", linewidth=0.7)
    ax.set_ylim(edges[0], edges[-1])


def _latency_max(ax: Axes, phase: PhaseTimeline) -> None:
    if phase.latency_max is None:
        return
    time = np.arange(len(phase.latency_max) + 1) * phase.width
    ax.stairs(phase.latency_max, time, baseline=None, color="black", linewidth=0.9)
    ax.set_title("largest of an interval", fontsize=7, loc="right")


def _rate(ax: Axes, phase: PhaseTimeline, unit: Unit) -> None:
    if phase.rate.size:
        rate, width = narrowed(phase.rate * phase.width, phase.width)
        time = np.arange(len(rate) + 1) * width
        ax.stairs(rate / width / unit.divisor, time, fill=True, color="#0072B2", alpha=0.55)
    for begin, end, rate_of in phase.iterations.tolist():
        ax.plot([begin, end], [rate_of / unit.divisor] * 2, color="black", linewidth=1.6)
    ax.set_ylim(bottom=0)


def _cpu(ax: Axes, phase: PhaseTimeline) -> None:
    from fsmatrix.analysis.draw import drawing

    for index, share in enumerate(phase.cpu):
        ax.stairs(share, phase.cpu_time, baseline=None, color=drawing.colour(index), linewidth=0.9)
    ax.set_ylim(0, 1.04)


def _nodes(ax: Axes, phase: PhaseTimeline, what: str, divisor: float) -> None:
    """Of each node; a value lies on the time since the sample before it, gaps are bridged."""
    from fsmatrix.analysis.draw import drawing

    if phase.nodes is None:
        return
    for index, (host, values) in enumerate(
        zip(phase.nodes.hosts, getattr(phase.nodes, what), strict=True)
    ):
        known = np.flatnonzero(np.isfinite(values))
        if not known.size:
            continue
        places = np.append(max(known[0] - 1, 0), known)  # the sample before dates the first value
        drawn = np.append(values[known[0]], values[known]) / divisor
        ax.step(
            phase.nodes.time[places], drawn, where="pre",
            color=drawing.colour(index), linewidth=0.9, label=host,
        )  # fmt: skip
    ax.set_ylim(bottom=0)


def _share_scale(row: Sequence[Axes]) -> None:
    """One scale for all panels of a row that show something."""
    limits = [ax.get_ylim() for ax in row if ax.has_data()]
    if limits:
        for ax in row:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
