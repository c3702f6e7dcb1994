"""Chunk sizes drawn: bandwidth over them; against a latency where it is to stay below a bound."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.units import SHORT_TITLES, Level, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.analysis.lessons.lessons_result import Lessons

MOST_ROWS, MOST_COLUMNS = 4, 4
TITLE_WIDTH = 40  # characters of a panel's title in a line


def _panels(lessons: Lessons) -> list[Key]:
    """What each panel is of: all but chunk size and processes."""
    keys = lessons.study.series("chunk")
    return list(dict.fromkeys(tuple(p for p in key if p[0] != "processes") for key in keys))


def pages(lessons: Lessons) -> int:
    """Number of figures."""
    return max(math.ceil(len(_panels(lessons)) / (MOST_ROWS * MOST_COLUMNS)), 1)


def draw(lessons: Lessons, page: int) -> Figure:
    """A page; ValueError with one chunk size only."""
    if lessons.drawable:
        raise ValueError(lessons.drawable)
    size = MOST_ROWS * MOST_COLUMNS
    panels = _panels(lessons)[page * size : (page + 1) * size]
    columns = min(len(panels), MOST_COLUMNS)
    across = lessons.bound is not None and any(
        _measured(lessons, cell) for cell in lessons.study.valued
    )
    figure, axes = drawing.frame(
        math.ceil(len(panels) / columns),
        columns,
        title=_title(lessons, across),
        notes=_notes(lessons, across),
        height=2.5,
    )
    flat = [ax for row in axes for ax in row]
    for ax, panel in zip(flat, panels, strict=False):
        _panel(lessons, ax, panel, across)
    for ax in flat[len(panels) :]:
        ax.set_visible(False)
    ends = [ax.get_ylim() for ax in flat[: len(panels)]]
    for ax in flat[: len(panels)]:
        ax.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    if "processes" in lessons.study.varying:
        drawing.legend(figure, axes, "processes")
    return figure


def _title(lessons: Lessons, across: bool) -> str:
    against = SHORT_TITLES[_metric(lessons)] if across else "chunk size"
    bound = f", {lessons.bound.says}" if lessons.bound else ""
    each = ", for each chunk size" if across else ""
    return f"Bandwidth against {against}{each}{bound}"


def _metric(lessons: Lessons) -> str:
    return lessons.bound.metric if lessons.bound else "latency_p99"


def _notes(lessons: Lessons, across: bool) -> list[str]:
    notes = [
        "Medians over attachments with their intervals; rings: the answer (several that "
        "cannot be told apart have one each)."
    ]
    if across and lessons.bound:
        notes.append("Dotted line: the bound. A point is in if its whole interval is left of it.")
    lost = sum(not _measured(lessons, cell) for cell in lessons.study.valued) if across else 0
    if lost:
        notes.append(
            f"{lost} of {len(lessons.study.valued)} points have no "
            f"{SHORT_TITLES[_metric(lessons)]} and are not drawn."
        )
    notes += drawing.hollow(cell.median for cell in lessons.study.valued)
    return [*notes, *lessons.study.remarks]


def _measured(lessons: Lessons, cell: Values) -> bool:
    latency = lessons.latencies.get(id(cell))
    return latency is not None and latency.kind != "none"


def _panel(lessons: Lessons, ax: Axes, panel: Key, across: bool) -> None:
    of, unit = lessons.study, lessons.study.fitting()
    chosen = {
        lesson.levels: lesson.choice for lesson in lessons.lessons if lesson.question == "chunk"
    }
    processes = of.levels("processes") or [""]
    time = (
        units.fitting(
            "time", [lessons.latencies[id(c)].median for c in of.valued if _measured(lessons, c)]
        )
        if across
        else None
    )
    scales = _Scales(time, unit)
    for key, cells in of.series("chunk").items():
        if tuple(p for p in key if p[0] != "processes") != panel:
            continue
        level = dict(key).get("processes", processes[0])
        index = processes.index(level) if level in processes else 0
        shown = [cell for cell in cells if _measured(lessons, cell)] if across else list(cells)
        label = f"{level:g}" if not isinstance(level, str) else None
        _line(lessons, ax, shown, chosen.get(key, ()), index, scales, label)
    ax.set_yscale("log")
    if across:
        from matplotlib.ticker import NullFormatter

        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        sizes = [float(level) for level in of.levels("chunk") if not isinstance(level, str)]
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [of.label("chunk", size) for size in sizes])
        ax.xaxis.minorticks_off()
    if time and lessons.bound:
        ax.axvline(lessons.bound.seconds / time.divisor, color="black", linestyle=":", linewidth=1)
    title = textwrap.wrap(of.describe(panel) if panel else "", TITLE_WIDTH)
    ax.set_title("\n".join(title), fontsize=drawing.SMALL)
    ax.set_ylabel(unit.label, fontsize=drawing.SMALL)
    ax.set_xlabel(
        f"{SHORT_TITLES[_metric(lessons)]}, {time.label}" if time else "chunk size",
        fontsize=drawing.SMALL,
    )


@dataclass(frozen=True)
class _Scales:
    """The units of a panel; without `time` the x axis has chunk sizes."""

    time: Unit | None
    bandwidth: Unit


def _line(
    lessons: Lessons,
    ax: Axes,
    cells: Sequence[Values],
    choice: Sequence[Level],
    index: int,
    scales: _Scales,
    label: str | None,
) -> None:
    if not cells:
        return
    time, scale = scales.time, scales.bandwidth.divisor
    second, shade = time.divisor if time else 1.0, drawing.colour(index)
    medians = [cell.median for cell in cells]
    latency = [lessons.latencies[id(cell)] for cell in cells] if time else []
    numbers = [cell.number("chunk") for cell in cells]
    x = [m.median / second for m in latency] or numbers
    drawing.line(ax, x, medians, scale, index, label=label, across=latency, x_scale=second)
    y = [m.median / scale for m in medians]
    for cell, a, b in zip(cells, x, y, strict=True):
        if time:
            ax.annotate(
                lessons.study.label("chunk", cell.level("chunk")),
                (a, b),
                fontsize=5.5,
                textcoords="offset points",
                xytext=(4, -7),
                color=shade,
            )
        if cell.number("chunk") in choice:
            ax.plot(
                [a],
                [b],
                marker="o",
                markersize=10,
                markerfacecolor="none",
                markeredgecolor="black",
                linestyle="none",
            )
