"""The figure of a history: small multiples, medians with intervals over campaigns."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison.comparison_chart import STYLES
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.draw.panels import GRID, INK
from fsmatrix.analysis.units import factor_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.analysis.acceptance.acceptance_result import CellHistory, History

COLUMNS, ROWS = 3, 4  # panels of a page
MOST_NOTES = 3  # changes that a note names
DODGE = 0.11  # of the distance of two campaigns, between lines
LOST = "#6e7781"
NAME = 14  # characters of a campaign's name in a line


def panels(of: History) -> list[tuple[str, list[CellHistory]]]:
    """Lines by panel."""
    lines: dict[str, list[CellHistory]] = {}
    for line in of.lines:
        lines.setdefault(of.panel_of(line), []).append(line)
    return list(lines.items())


def pages(of: History) -> int:
    """Number of pages."""
    return max(math.ceil(len(panels(of)) / (COLUMNS * ROWS)), 1)


def draw(of: History, page: int = 0) -> Figure:
    """One page."""
    shown_panels = panels(of)[page * COLUMNS * ROWS : (page + 1) * COLUMNS * ROWS]
    columns = min(COLUMNS, len(shown_panels))
    rows = math.ceil(len(shown_panels) / columns)
    many = f" (page {page + 1} of {pages(of)})" if pages(of) > 1 else ""
    better = "more" if of.metric.more_is_better else "less"
    figure, axes = drawing.frame(
        rows,
        columns,
        title=f"{of.metric.title} over campaigns, {better} is better{many}",
        notes=_notes(of),
        width=max(2.9, 0.78 * len(of.campaigns)),
        height=2.5,
    )
    series = list(dict.fromkeys(of.series_of(line) for line in of.lines))
    for number, (name, lines) in enumerate(shown_panels):
        ax = axes[number // columns][number % columns]
        ax.set_title("\n".join(textwrap.wrap(_plain(name), 44)), fontsize=drawing.SMALL, color=INK)
        for line in lines:
            _line(ax, of, line, series.index(of.series_of(line)), len(series))
        _axes(ax, of, last=number + columns >= len(shown_panels), first=number % columns == 0)
    for number in range(len(shown_panels), rows * columns):
        axes[number // columns][number % columns].set_axis_off()
    drawing.legend(figure, axes, _plain(factor_title(of.by)))
    return figure


def _plain(text: str) -> str:
    """Text of a campaign; matplotlib would read formulas between dollar signs."""
    return text.replace("$", r"\$")


def _line(ax: Axes, of: History, line: CellHistory, number: int, count: int) -> None:
    shift = DODGE * (number - (count - 1) / 2)
    shade = drawing.colour(number)
    points = [(i, p) for i, p in enumerate(line.points) if p.kind != "none"]
    scale = of.unit.divisor
    ax.plot(
        [i + shift for i, _ in points],
        [p.median / scale for _, p in points],
        color=shade,
        linewidth=1.2,
        marker=drawing.MARKERS[number % len(drawing.MARKERS)],
        markersize=4.5,
        label=_plain(of.series_of(line)),
    )
    for i in range(1, len(line.points)):
        if line.points[i].kind == "none" and line.points[i - 1].kind != "none":
            ax.plot(
                [i + shift],
                [0],
                "x",
                color=LOST,
                markersize=6,
                clip_on=False,
                linestyle="none",
                label="lost",
            )
    for i, point in points:
        low, middle, high = (v / scale for v in (point.low, point.median, point.high))
        if point.runs > 1:
            ax.errorbar(
                [i + shift],
                [middle],
                drawing.whiskers([point], scale),
                fmt="none",
                ecolor=shade,
                elinewidth=1.1,
                capsize=2.5 if point.decides else 0,
            )
        step = line.step("previous", i)
        if step is not None and step.decided:
            marker, colour, _ = STYLES[step.verdict.kind]
            up = step.verdict.interval.ratio > 1
            ax.plot(
                [i + shift],
                [high if up else low],
                marker,
                color=colour,
                markersize=8,
                markeredgecolor="white",
                markeredgewidth=0.7,
                linestyle="none",
                zorder=5,
                label=f"{step.verdict.kind} than the one before",
            )


def _axes(ax: Axes, of: History, *, last: bool, first: bool) -> None:
    ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    ax.set_xlim(-0.4, len(of.campaigns) - 0.6)
    labels = [
        "\n".join([*textwrap.wrap(_plain(c.name), NAME), c.date]).strip() if last else ""
        for c in of.campaigns
    ]
    dense = len(of.campaigns) > 5
    ax.set_xticks(range(len(of.campaigns)), labels, fontsize=6.5, rotation=90 if dense else 0)
    for number, changes in enumerate(of.changes):
        if changes:
            ax.axvline(number + 0.5, color=GRID, linewidth=1.4, linestyle="--", zorder=0)
    if first:
        ax.set_ylabel(of.unit.label, fontsize=drawing.MEDIUM)


def _notes(of: History) -> list[str]:
    notes = [
        "Medians and 95 % intervals over attachments. Triangles: the median changed from the "
        f"campaign before ({of.correction} over {of.families['previous']} comparisons). Dashed: "
        "what the campaigns say of themselves changed."
    ]
    notes += drawing.weak(point for line in of.lines for point in line.points)
    for number, changes in enumerate(of.changes):
        if changes:
            shown = "; ".join(change.says for change in changes[:MOST_NOTES])
            more = f"; and {len(changes) - MOST_NOTES} more" if len(changes) > MOST_NOTES else ""
            notes.append(_plain(f"{of.campaigns[number + 1].name}: {shown}{more}."))
    if of.lost:
        notes.append(f"Crosses: a cell of the campaign before was lost ({len(of.lost)} times).")
    return notes
