"""The frame of a chart: panels in columns and rows, their axes and titles.

Text from a campaign is escaped here (`safe`): plotly reads some HTML in labels.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.analysis.draw.layout import CellGroup, levels
from fsmatrix.analysis.units import Level, Metric, Unit, level_text
from fsmatrix.results.evidence.values import Json

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
