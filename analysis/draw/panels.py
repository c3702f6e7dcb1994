"""The frame of a chart: panels in columns and rows, their axes and titles.

Text from a campaign is escaped here (`safe`): plotly reads some HTML in labels.
"""

from __future__ import annotations

import html
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.cluster import Cluster
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.units import METRICS, Level, Metric, Unit, labelled, level_text, metric_of
from fsmatrix.results.evidence.stored import Json

# Which factor goes where in a chart or table of medians: chosen from what varies.


# never mixed in one chart or table; what goes past the page cache may also move whole blocks
APART = ("workload", "engine", "cache", "direct", "device_state")
COLUMNS = ("pattern", "rw", "phase")  # rw: fio's word for a pattern
X_NAMES = ("chunk", "chunk_size", "bs", "transfer_size", "block_size", "size")
ROW_NAMES = ("processes_per_node", "processes")
STEEP = 8.0  # a factor that changes medians more than this would flatten its neighbours
MOST_ROWS = 6


@dataclass(frozen=True)
class Layout:
    """Roles of the factors of one group of cells; the target is always the colour."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    x: str  # empty: one bar per target
    logarithmic: bool

    @property
    def factors(self) -> tuple[str, ...]:
        """All factors with a role, in the order in which a reader looks for them."""
        return (*self.columns, *self.rows, *((self.x,) if self.x else ()))


@dataclass(frozen=True)
class CellGroup:
    """Cells that may stand in one chart."""

    conditions: tuple[tuple[str, Level], ...]  # what they share and other groups do not
    cells: tuple[Cell, ...]
    layout: Layout
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def title(self) -> str:
        """The conditions in words; empty if there is one group only."""
        return ", ".join(
            f"workload {level}" if name == "workload" else labelled(name, level)
            for name, level in self.conditions
        )

    def metric(self, name: str) -> Metric:
        """A metric as readers of these cells know it."""
        return metric_of(name, (cell.levels for cell in self.cells))


def groups(summary: Summary) -> list[CellGroup]:
    """Cells apart by what is never mixed, each with its layout."""
    apart = [name for name in APART if name in summary.varying]
    members: dict[tuple[Level, ...], list[Cell]] = defaultdict(list)
    for cell in summary.cells:
        members[tuple(same(cell.levels[name]) for name in apart)].append(cell)
    rest = [name for name in summary.varying if name not in apart and name != "target"]
    return [
        CellGroup(
            tuple((name, level) for name, level in zip(apart, key, strict=True) if level != ""),
            tuple(cells),
            choose(cells, rest),
            summary.cluster,
        )
        for key, cells in members.items()
    ]


def same(level: Level) -> Level:
    """A level that equals itself: NaN, of cells without that factor, is no key."""
    return level if level == level else ""


def choose(cells: Sequence[Cell], factors: Iterable[str]) -> Layout:
    """Roles for those of `factors` that vary within `cells`.

    Pattern and phase: columns; chunk size: x; processes: rows; the rest joins the rows.  If
    the factor on x changes the medians so much that small bars would vanish beside large
    ones, it changes places with the rows; if it has too many levels for that, the axis is
    logarithmic.
    """
    varying = [name for name in factors if len(levels(cells, name)) > 1]
    columns = [name for name in COLUMNS if name in varying]
    if "phase" in columns and any(_implied(cells, name, "phase") for name in columns[:-1]):
        columns.remove("phase")
    rest = [name for name in varying if name not in COLUMNS]
    x = next((name for name in (*X_NAMES, *ROW_NAMES) if name in rest), rest[0] if rest else "")
    rows = [name for name in rest if name != x]
    rows.sort(key=lambda name: name not in ROW_NAMES)
    if not x or steepness(cells, x, factors) <= STEEP:
        return Layout(tuple(columns), tuple(rows), x, False)
    gentle = [name for name in rows if steepness(cells, name, factors) <= STEEP]
    if len(levels(cells, x)) > MOST_ROWS or (rows and not gentle):
        return Layout(tuple(columns), tuple(rows), x, True)
    other = gentle[0] if gentle else ""
    return Layout(tuple(columns), (x, *(n for n in rows if n != other)), other, False)


def levels(cells: Iterable[Cell], factor: str) -> list[Level]:
    """Levels of a factor in the order of the cells' sorting: missing, numbers, texts."""
    by_text: dict[str, Level] = {repr(cell.levels[factor]): cell.levels[factor] for cell in cells}
    return sorted(
        by_text.values(),
        key=lambda v: (1, 0.0, v) if isinstance(v, str) else (0, v if v == v else -np.inf, ""),
    )


def steepness(cells: Iterable[Cell], factor: str, factors: Iterable[str]) -> float:
    """How much a factor changes medians: largest / smallest over its levels.

    The median over all combinations of the other factors, the largest over the metrics.
    """
    others = [name for name in (*factors, "target") if name != factor]
    members: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        members[tuple(repr(cell.levels[name]) for name in others)].append(cell)
    worst = 1.0
    for metric in METRICS:
        ratios = []
        for group in members.values():
            values = [cell.metrics[metric].median for cell in group]
            positive = [value for value in values if value > 0]
            if len(positive) > 1:
                ratios.append(max(positive) / min(positive))
        worst = max([worst, float(np.median(ratios))] if ratios else [worst])
    return worst


def _implied(cells: Iterable[Cell], owner: str, owned: str) -> bool:
    pairs = {(repr(c.levels[owner]), repr(c.levels[owned])) for c in cells}
    return len(pairs) == len({pair[0] for pair in pairs})


WIDTH = 1180
PANEL_HEIGHT = 205
MARGIN = {"l": 64, "r": 16, "t": 62, "b": 52}
SETTING_LINE, SETTING_WIDTH = 17, 165  # what holds for the whole chart: pixels, characters
BAR_GAP = 0.14
WIDEST_BAR = 110  # pixels
GAP_X, GAP_Y = 0.042, 56  # between panels: share of the width, pixels
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GRID = "#24292f", "#e4e7eb"

Key = tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """What one chart shows: some columns and rows of the panels of a group."""

    group: CellGroup
    metric: Metric
    unit: Unit
    columns: Sequence[Key]
    rows: Sequence[Key]
    targets: Sequence[str]
    colours: Mapping[str, str]
    references: Sequence[str]


def frame(page: Page) -> dict[str, Any]:
    """The layout of a figure: size, axes and titles of its panels, no bars."""
    rows, columns = len(page.rows), len(page.columns)
    inner = rows * PANEL_HEIGHT + (rows - 1) * GAP_Y
    setting = textwrap.wrap(page.group.cluster.setting, SETTING_WIDTH)
    margin = {**MARGIN, "t": MARGIN["t"] + SETTING_LINE * len(setting)}
    layout: dict[str, Any] = {
        "width": WIDTH,
        "height": inner + margin["t"] + margin["b"],
        "margin": margin,
        "barmode": "group",
        "bargap": BAR_GAP,
        "bargroupgap": 0.04,
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "font": {"family": FONT, "size": 12, "color": INK},
        "uniformtext": {"mode": "hide", "minsize": 9},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1 + 30 / inner,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"align": "left", "bgcolor": "#ffffff", "font": {"color": INK}},
        "annotations": [_setting(setting)] if setting else [],
    }
    wide = (1 - GAP_X * (columns - 1)) / columns
    high = PANEL_HEIGHT / inner
    for r, row in enumerate(page.rows):
        top = min(1 - r * (high + GAP_Y / inner), 1.0)
        for c, column in enumerate(page.columns):
            panel = r * columns + c + 1
            left = c * (wide + GAP_X)
            layout[axis("xaxis", panel)] = _x_axis(page, panel, left, left + wide, r == rows - 1)
            layout[axis("yaxis", panel)] = _y_axis(page, panel, max(top - high, 0.0), top, c == 0)
            layout["annotations"].append(_title((*column, *row), left + wide / 2, top))
    return layout


def x_levels(page: Page) -> list[str]:
    """Labels of the x axis, escaped; one blank where no factor is on it."""
    factor = page.group.layout.x
    if not factor:
        return [" "]
    return [safe(level_text(factor, level)) for level in levels(page.group.cells, factor)]


def _x_axis(page: Page, panel: int, left: float, right: float, titled: bool) -> dict[str, Json]:
    order = x_levels(page)
    widest = WIDEST_BAR * len(page.targets) / (1 - BAR_GAP)  # of one level, pixels
    room = max(((right - left) * WIDTH / widest - len(order)) / 2, 0.0)
    return {
        "domain": [left, min(right, 1.0)],
        "anchor": axis("y", panel),
        "type": "category",
        "categoryorder": "array",
        "categoryarray": order,
        "range": [-0.5 - room, len(order) - 0.5 + room],
        "fixedrange": True,
        "linecolor": "#8c959f",
        "title": {
            "text": safe(page.group.cluster.title(page.group.layout.x)) if titled else "",
            "standoff": 6,
        },
    }


def _y_axis(page: Page, panel: int, low: float, high: float, titled: bool) -> dict[str, Json]:
    logarithmic = page.group.layout.logarithmic
    scale = ", log scale" if logarithmic else ""
    return {
        "domain": [low, high],
        "anchor": axis("x", panel),
        "gridcolor": GRID,
        "type": "log" if logarithmic else "linear",
        "nticks": 6,
        "tickformat": "~g",
        "rangemode": "tozero",
        "zerolinecolor": "#8c959f",
        "title": {"text": f"{page.unit.label}{scale}" if titled else "", "standoff": 8},
    }


def _setting(lines: Sequence[str]) -> dict[str, Json]:
    """What the storage is like in all panels, above the legend."""
    return {
        "text": "<br>".join(html.escape(line, quote=False) for line in lines),
        "x": 0,
        "y": 1,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": MARGIN["t"] - 6,
        "align": "left",
        "showarrow": False,
        "font": {"size": 12},
    }


def _title(parts: Key, x: float, y: float) -> dict[str, Json]:
    return {
        "text": f"<b>{safe(', '.join(parts))}</b>",
        "x": x,
        "y": y,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "center",
        "yanchor": "bottom",
        "yshift": 4,
        "showarrow": False,
        "font": {"size": 12},
    }


def axis(name: str, panel: int) -> str:
    """Plotly's name of a panel's axis: x, x2, x3..."""
    return name if panel == 1 else f"{name}{panel}"


def safe(text: Level) -> str:
    """Text that plotly shows as it is; without line breaks and of bounded length."""
    plain = " ".join(str(text).split())
    short = plain if len(plain) <= 120 else plain[:119] + "…"
    return html.escape(short, quote=False)
