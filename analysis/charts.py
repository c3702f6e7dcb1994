"""Bar charts of medians with their intervals, as plotly figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.analysis import units
from fsmatrix.analysis.layout import Group, Layout, groups, levels
from fsmatrix.analysis.panels import INK, Key, Page, axis, frame, safe
from fsmatrix.analysis.summary import Cell, Summary
from fsmatrix.analysis.units import METRICS, Metric, labelled, level_text

# Okabe and Ito's palette (colour-blind safe) without black, then three of Paul Tol's
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c8c1e",
    "#882255", "#332288", "#44AA99",
)  # fmt: skip
MOST_COLUMNS = 4
MOST_ROWS = 3


@dataclass(frozen=True)
class Chart:
    """One figure: bars of one metric, and what must be said beside it (plain text)."""

    metric: str
    title: str
    conditions: str
    remarks: tuple[str, ...]
    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]

    def figure(self) -> Any:
        """The chart as plotly.graph_objects.Figure, for notebooks."""
        import plotly.graph_objects as go  # type: ignore[import-untyped]

        return go.Figure(data=list(self.data), layout=self.layout)


def colours(summary: Summary) -> dict[str, str]:
    """Colour of each target: the same in all charts of a report."""
    names = sorted({*summary.targets, *summary.references})
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def charts(summary: Summary, metrics: Sequence[str] = tuple(METRICS)) -> list[Chart]:
    """Charts of the given metrics, in their order; none for a metric without values."""
    grouped = groups(summary)
    return [
        chart
        for name in metrics
        for group in grouped
        for chart in _of_group(summary, group, METRICS[name])
    ]


def _of_group(summary: Summary, group: Group, metric: Metric) -> Iterator[Chart]:
    cells = [cell for cell in group.cells if cell.levels.get("phase", "")]
    values = [cell.metrics[metric.name].median for cell in cells]
    if all(value != value for value in values):
        return
    unit = units.fitting(metric.quantity, values)
    layout = group.layout
    columns, rows = _keys(group.cells, layout.columns), _keys(group.cells, layout.rows)
    if layout.columns:  # failed runs have no phase: they stand in the other columns
        named = {_key(cell, layout.columns) for cell in cells}
        columns = [key for key in columns if key in named]
    for first_column in range(0, len(columns), MOST_COLUMNS):
        for first_row in range(0, len(rows), MOST_ROWS):
            page = Page(
                group, metric, unit,
                columns[first_column : first_column + MOST_COLUMNS],
                rows[first_row : first_row + MOST_ROWS],
                summary.targets, colours(summary), summary.references,
            )  # fmt: skip
            yield _chart(page)


def _keys(cells: Sequence[Cell], factors: Sequence[str]) -> list[Key]:
    """Different combinations of levels, in the order of the levels."""
    place = {f: {repr(v): i for i, v in enumerate(levels(cells, f))} for f in factors}
    found = {
        tuple(place[f][repr(cell.levels[f])] for f in factors): _key(cell, factors)
        for cell in cells
    }
    return [found[order] for order in sorted(found)]


def _key(cell: Cell, factors: Sequence[str]) -> Key:
    return tuple(labelled(name, cell.levels[name]) for name in factors)


def _chart(page: Page) -> Chart:
    data: list[dict[str, Any]] = []
    layout = frame(page)
    shown: list[Cell] = []
    panel = 0
    legend: set[str] = set()
    for row in page.rows:
        for column in page.columns:
            panel += 1
            cells = [
                cell for cell in page.group.cells
                if _key(cell, page.group.layout.columns) == column
                and _key(cell, page.group.layout.rows) == row
            ]  # fmt: skip
            shown += cells
            data += _panel(page, cells, panel, legend)
    return Chart(
        metric=page.metric.name,
        title=page.metric.title,
        conditions=page.group.title,
        remarks=_remarks(shown, page),
        data=tuple(data),
        layout=layout,
    )


def _panel(
    page: Page, cells: Sequence[Cell], panel: int, legend: set[str]
) -> Iterator[dict[str, Any]]:
    axes = {"xaxis": axis("x", panel), "yaxis": axis("y", panel)}
    lows = [cell.metrics[page.metric.name].low / page.unit.divisor for cell in cells]
    floor = min((low for low in lows if low > 0), default=1.0)
    for target in page.targets:
        mine = [cell for cell in cells if cell.target == target]
        first = target not in legend
        if mine or first:
            legend.add(target)
            yield _bars(page, target, mine, first) | axes
        absent = [(cell, why) for cell in mine if (why := why_absent(cell, page.metric.name))]
        if absent:
            base = floor if page.group.layout.logarithmic else 0.0
            yield _absent(page, target, absent, base) | axes


def _bars(page: Page, target: str, cells: Sequence[Cell], legend: bool) -> dict[str, Any]:
    medians = [cell.metrics[page.metric.name] for cell in cells]
    scale = page.unit.divisor
    reference = " (reference)" if target in page.references else ""
    return {
        "type": "bar",
        "name": safe(target + reference),
        "legendgroup": safe(target),
        "showlegend": legend,
        "offsetgroup": safe(target),
        "x": [_x(cell, page.group.layout) for cell in cells],
        "y": [_finite(m.median / scale) for m in medians],
        "error_y": {
            "type": "data", "symmetric": False, "thickness": 1.2, "width": 4, "color": INK,
            "array": [_finite((m.high - m.median) / scale) for m in medians],
            "arrayminus": [_finite((m.median - m.low) / scale) for m in medians],
        },
        "marker": {
            "color": page.colours[target],
            "pattern": {
                "shape": [_hatch(cell) for cell in cells], "size": 6, "solidity": 0.25,
                "fillmode": "overlay", "fgcolor": "#ffffff",
            },
        },
        "text": [units.text(m.median, page.unit) if m.runs else "" for m in medians],
        "textposition": "inside", "insidetextanchor": "start", "textangle": 0,
        "hovertext": [_hover(page, cell) for cell in cells],
        "hoverinfo": "text",
    }  # fmt: skip


def _absent(
    page: Page, target: str, absent: Sequence[tuple[Cell, str]], base: float
) -> dict[str, Any]:
    """What stands where a bar would be: why there is none."""
    return {
        "type": "bar", "name": safe(target), "legendgroup": safe(target), "showlegend": False,
        "offsetgroup": safe(target),
        "x": [_x(cell, page.group.layout) for cell, _ in absent],
        "y": [base] * len(absent),
        "text": [why for _, why in absent],
        "textposition": "outside", "textangle": -90, "cliponaxis": False,
        "textfont": {"color": page.colours[target], "size": 11},
        "marker": {"color": "rgba(0,0,0,0)"},
        "hovertext": [_hover(page, cell) for cell, _ in absent], "hoverinfo": "text",
    }  # fmt: skip


def why_absent(cell: Cell, metric: str) -> str:
    """Why a cell has no median of a metric; empty if it has one."""
    if cell.metrics[metric].runs:
        return ""
    if cell.runs:
        return "too few operations" if "latency" in metric else "not measured"
    return "invalid" if cell.invalid else "failed"


def _hatch(cell: Cell) -> str:
    return {"invalid": "x", "warning": "/"}.get(cell.worst_finding, "")


def _hover(page: Page, cell: Cell) -> str:
    median = cell.metrics[page.metric.name]
    where = [labelled(name, cell.levels[name]) for name in page.group.layout.factors]
    lines = [f"<b>{safe(cell.target)}</b>", *(safe(text) for text in where)]
    if median.runs:
        low, high = units.text(median.low, page.unit), units.text(median.high, page.unit)
        lines.append(f"median {units.text(median.median, page.unit)} {page.unit.label}")
        lines.append(f"{low} to {high} {page.unit.label}: {safe(median.says)}")
    else:
        lines.append(why_absent(cell, page.metric.name))
    lines.append(f"{cell.runs} runs in {cell.attachments} attachments")
    if cell.notes:
        lines.append(safe(cell.notes))
    return "<br>".join(lines)


def _x(cell: Cell, layout: Layout) -> str:
    return safe(level_text(layout.x, cell.levels[layout.x])) if layout.x else " "


def _remarks(cells: Sequence[Cell], page: Page) -> tuple[str, ...]:
    """What the whiskers and marks of this chart mean."""
    medians = [cell.metrics[page.metric.name] for cell in cells]
    kinds = {median.kind for median in medians}
    lines = []
    if "interval" in kinds:
        lines.append("Whiskers: interval of the median with a coverage of at least 95 %.")
    if "range" in kinds:
        some = "Whiskers where there are" if "interval" in kinds else "Whiskers:"
        lines.append(f"{some} fewer than 6 independent values: their range; see the coverage "
                     "by pointing at a bar; no verdict.")  # fmt: skip
    if "one session" in kinds:
        lines.append("Whiskers of cells with one attachment: within one session only.")
    if any(cell.worst_finding in ("warning", "invalid") for cell in cells):
        lines.append("Hatched: a finding of severity warning (lines) or invalid (crossed).")
    return tuple(lines)


def _finite(value: float) -> float | None:
    return value if value == value else None
