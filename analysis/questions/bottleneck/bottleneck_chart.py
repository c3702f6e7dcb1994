"""The figure of a bottleneck: bandwidth over chunk size, and the shares of the limits.

Over processes instead where chunk size does not vary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key, level_text
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.questions.bottleneck.bottleneck_result import AXES, FULL, Bottleneck
from fsmatrix.analysis.stats.estimates.medians import Median

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = {
    "network": 5, "device": 3, "client CPU": 8,
    "storage link": 0, "storage drive": 1, "storage CPU": 2,
}  # fmt: skip


def pages(bottleneck: Bottleneck) -> int:
    """Number of figures."""
    return len(_pages(bottleneck))


def _pages(bottleneck: Bottleneck) -> list[Key]:
    """What each figure is of: whatever varies beyond pattern, chunk and processes."""
    names = ("pattern", *AXES)
    keys = (tuple(p for p in key if p[0] not in names) for key in bottleneck.study.series(*AXES))
    return list(dict.fromkeys(keys))


def draw(bottleneck: Bottleneck, page: int) -> Figure:
    """One column for each pattern; the lower panels show the most processes."""
    of, levels = bottleneck.study, _pages(bottleneck)[page]
    axis = along(bottleneck)
    patterns = of.levels("pattern") or [""]
    any_share = any(r.share.runs for resources in bottleneck.shares.values() for r in resources)
    notes = [
        "Medians over attachments with their intervals. Ringed: from there on each "
        f"doubling gives less than {bottleneck.threshold:.0%} more."
    ]
    if any_share:
        notes.append(
            "Below: shares of the limits, at the most processes where these vary; dotted: the "
            "share from which a resource is called full. A device without a given limit: its busy "
            "time, which shows only that it is not full."
        )
    else:
        notes.append("No evidence of network, devices and client CPUs in this campaign.")
    weak = drawing.hollow(cell.median for cell in of.valued)
    where = of.describe(levels)
    figure, axes = drawing.frame(
        2 if any_share else 1,
        len(patterns),
        notes=[*notes, *weak, *of.remarks],
        height=2.3,
        title="Where bandwidth stops growing" + (f": {where}" if where != "all" else ""),
    )
    for c, pattern in enumerate(patterns):
        series = {
            key: cells
            for key, cells in of.series(axis).items()
            if dict(key).get("pattern", "") in (pattern, "") and set(levels) <= set(key)
        }
        for key, cells in series.items():
            _bandwidth(axes[0][c], bottleneck, key, cells)
        axes[0][c].set_title(of.label("pattern", pattern) if pattern != "" else "", fontsize=8.5)
        axes[0][c].set_ylim(bottom=0)
        if any_share and series:
            most = max(series, key=lambda key: float(dict(key).get("processes", 0)))
            _shares(axes[1][c], bottleneck, series[most])
        axes[-1][c].set_xlabel(of.title(axis), fontsize=8)
    axes[0][0].set_ylabel(bottleneck.unit.label, fontsize=8)
    if any_share:
        axes[1][0].set_ylabel("share of the limit", fontsize=8)
    drawing.legend(figure, axes)
    return figure


def along(bottleneck: Bottleneck) -> str:
    """The factor of the x axis."""
    return "chunk" if "chunk" in bottleneck.study.varying else "processes"


def _bandwidth(ax: Axes, bottleneck: Bottleneck, key: Key, cells: list[Values]) -> None:
    processes = bottleneck.study.levels("processes")
    level = dict(key).get("processes", "")
    index = processes.index(level) if level in processes else 0
    label = bottleneck.study.label("processes", level) if level != "" else "bandwidth"
    points = [(cell, cell.median) for cell in cells]
    _line(ax, bottleneck, points, index, label, bottleneck.unit.divisor)
    knees = [v.knee for v in bottleneck.verdicts if v.axis == along(bottleneck) and v.key == key]
    for cell in cells:
        x, y = cell.number(along(bottleneck)), cell.median.median / bottleneck.unit.divisor
        if knees and x == knees[0]:
            ax.plot(
                [x],
                [y],
                marker="o",
                markersize=11,
                markerfacecolor="none",
                markeredgewidth=1.4,
                color=drawing.colour(index),
            )


def _shares(ax: Axes, bottleneck: Bottleneck, cells: list[Values]) -> None:
    place = {id(cell): i for i, cell in enumerate(bottleneck.study.valued)}
    for n, name in enumerate(FULL):
        points = [
            (cell, resource.share)
            for cell in cells
            for resource in bottleneck.shares[place[id(cell)]]
            if resource.name == name and resource.share.runs
        ]
        if points:
            _line(ax, bottleneck, points, SHADES[name], name, 1.0, "sDv^<>"[n])
            ax.axhline(FULL[name], color=drawing.colour(SHADES[name]), linestyle=":", linewidth=1)
    ax.set_ylim(0, max(1.05, ax.get_ylim()[1]))


def _line(
    ax: Axes,
    bottleneck: Bottleneck,
    points: list[tuple[Values, Median]],
    index: int,
    label: str,
    scale: float,
    marker: str = "o",
) -> None:
    x = [cell.number(along(bottleneck)) for cell, _ in points]
    medians = [median for _, median in points]
    drawing.line(ax, x, medians, scale, index, label=label, marker=marker)
    ax.set_xscale("log", base=2)
    levels = [
        float(c) for c in bottleneck.study.levels(along(bottleneck)) if not isinstance(c, str)
    ]
    shown = [c for c in levels if math.isfinite(c)]
    ax.set_xticks(shown, [level_text(along(bottleneck), c) for c in shown], rotation=35, ha="right")
    ax.xaxis.minorticks_off()
