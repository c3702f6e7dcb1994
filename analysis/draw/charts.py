"""Bar charts of medians with their intervals, as plotly figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.draw.panels import (
    BAR_GAP,
    INK,
    CellGroup,
    Key,
    Layout,
    Page,
    axis,
    frame,
    groups,
    levels,
    safe,
    x_levels,
)
from fsmatrix.analysis.units import MARKS, METRICS, Metric, level_text
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.workloads import SATURATED

# Okabe and Ito's palette (colour-blind safe) without black, then three of Paul Tol's
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c8c1e",
    "#882255", "#332288", "#44AA99",
)  # fmt: skip
MOST_COLUMNS = 4
MOST_ROWS = 3
NOT_MEASURED = "not measured"
OPEN_LOOP = "rate given"
TOO_FEW = "too few operations"


@dataclass(frozen=True)
class Chart:
    """One figure: bars of one metric, and what must be said beside it (plain text)."""

    metric: str
    title: str
    conditions: str
    remarks: tuple[str, ...]
    data: tuple[dict[str, Json], ...]
    layout: dict[str, Json]

    def figure(self) -> Any:
        """The chart as plotly.graph_objects.Figure, for notebooks."""
        import plotly.graph_objects as go

        return go.Figure(data=list(self.data), layout=self.layout)


def colours(summary: Summary) -> dict[str, str]:
    """Colour of each target: the same in all charts of a report."""
    names = [name for name in summary.targets if name not in summary.references]
    names += summary.references
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def charts(summary: Summary, metrics: Sequence[str] = tuple(METRICS)) -> list[Chart]:
    """Charts of the given metrics, in their order; none for a metric without values.

    None of many targets: colours would repeat, and panels hold one bar each.
    """
    if summary.many_targets:
        return []
    grouped = groups(summary)
    return [
        chart
        for name in metrics
        for group in grouped
        for chart in _of_group(summary, group, group.metric(name))
    ]


def _of_group(summary: Summary, group: CellGroup, metric: Metric) -> Iterator[Chart]:
    """Charts of the panels that have values; the last one says which panels have none."""
    valued = [cell for cell in group.cells if cell.metrics[metric.name].runs]
    if not valued:
        return
    unit = units.fitting(metric.quantity, [c.metrics[metric.name].median for c in valued])
    layout = group.layout
    columns, rows = _keys(group, valued, layout.columns), _keys(group, valued, layout.rows)
    pages = [
        Page(
            group,
            metric,
            unit,
            columns[first_column : first_column + MOST_COLUMNS],
            rows[first_row : first_row + MOST_ROWS],
            summary.targets,
            colours(summary),
            summary.references,
        )
        for first_column in range(0, len(columns), MOST_COLUMNS)
        for first_row in range(0, len(rows), MOST_ROWS)
    ]
    empty = [k for k in _keys(group, group.cells, layout.columns) if k not in columns]
    empty += [k for k in _keys(group, group.cells, layout.rows) if k not in rows]
    for page in pages:
        yield _chart(page, empty if page is pages[-1] else [])


def _keys(group: CellGroup, cells: Sequence[Cell], factors: Sequence[str]) -> list[Key]:
    """Different combinations of levels, in the order of the levels."""
    place = {f: {repr(v): i for i, v in enumerate(levels(cells, f))} for f in factors}
    keys = {
        tuple(place[f][repr(cell.levels[f])] for f in factors): _key(group, cell, factors)
        for cell in cells
    }
    return [keys[order] for order in sorted(keys)]


def _key(group: CellGroup, cell: Cell, factors: Sequence[str]) -> Key:
    return tuple(group.cluster.label(name, cell.levels[name]) for name in factors)


def _chart(page: Page, empty: Sequence[Key]) -> Chart:
    data: list[dict[str, Json]] = []
    layout = frame(page)
    shown: list[Cell] = []
    titles = [(row, column) for row in page.rows for column in page.columns]
    for panel, (row, column) in enumerate(titles, 1):
        cells = [
            cell
            for cell in page.group.cells
            if _key(page.group, cell, page.group.layout.columns) == column
            and _key(page.group, cell, page.group.layout.rows) == row
        ]
        shown += cells
        data += [_bars(page, target, cells, panel) for target in page.targets]
        layout["annotations"] += _absences(page, cells, panel)
        if not any(cell.metrics[page.metric.name].runs for cell in cells):
            layout[axis("yaxis", panel)]["showticklabels"] = False
    return Chart(
        metric=page.metric.name,
        title=page.metric.title,
        conditions=page.group.title,
        remarks=_remarks(shown, page, empty),
        data=tuple(data),
        layout=layout,
    )


def _bars(page: Page, target: str, panel_cells: Sequence[Cell], panel: int) -> dict[str, Json]:
    cells = [cell for cell in panel_cells if cell.target == target]
    medians = [cell.metrics[page.metric.name] for cell in cells]
    scale = page.unit.divisor
    reference = " (reference)" if target in page.references else ""
    return {
        "type": "bar",
        "xaxis": axis("x", panel),
        "yaxis": axis("y", panel),
        "name": safe(target + reference),
        "legendgroup": safe(target),
        "showlegend": panel == 1,
        "offsetgroup": safe(target),
        "x": [_x(cell, page.group.layout) for cell in cells] or [x_levels(page)[0]],
        "y": [_finite(m.median / scale) for m in medians] or [None],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "thickness": 1.2,
            "width": 4,
            "color": INK,
            "array": [_finite((m.high - m.median) / scale) for m in medians],
            "arrayminus": [_finite((m.median - m.low) / scale) for m in medians],
        },
        "marker": {
            "color": page.colours[target],
            "pattern": {
                "shape": [_hatch(cell) for cell in cells],
                "size": 6,
                "solidity": 0.25,
                "fillmode": "overlay",
                "fgcolor": "#ffffff",
            },
        },
        "text": [
            units.text(m.median, page.unit) + MARKS.get(m.kind, "") if m.runs else ""
            for m in medians
        ],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "textfont": {"size": 10.5},
        "constraintext": "none",
        "hovertext": [_hover(page, cell) for cell in cells],
        "hoverinfo": "text",
    }


def _absences(page: Page, cells: Sequence[Cell], panel: int) -> Iterator[dict[str, Json]]:
    """What stands where a bar would be: why there is none."""
    order = x_levels(page)
    count = len(page.targets)
    for cell in cells:
        why = why_absent(cell, page.metric.name)
        if not why:
            continue
        place = page.targets.index(cell.target) - (count - 1) / 2
        yield {
            "text": why,
            "hovertext": _hover(page, cell),
            "showarrow": False,
            "textangle": -90,
            "x": order.index(_x(cell, page.group.layout)) + place * (1 - BAR_GAP) / count,
            "y": 0.02,
            "xref": axis("x", panel),
            "yref": f"{axis('y', panel)} domain",
            "yanchor": "bottom",
            "font": {"size": 11, "color": page.colours[cell.target]},
        }


def why_absent(cell: Cell, metric: str) -> str:
    """Why a cell has no median of a metric; empty if it has one."""
    if cell.metrics[metric].runs:
        return ""
    if cell.runs:
        if "latency" not in metric:
            return OPEN_LOOP if cell.open_loop else NOT_MEASURED
        return SATURATED if SATURATED in cell.findings else TOO_FEW
    return "invalid" if cell.invalid else "failed"


def _hatch(cell: Cell) -> str:
    return {"invalid": "x", "warning": "/"}.get(cell.worst_finding, "")


def _hover(page: Page, cell: Cell) -> str:
    median = cell.metrics[page.metric.name]
    where = _key(page.group, cell, page.group.layout.factors)
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


def _remarks(cells: Sequence[Cell], page: Page, empty: Sequence[Key]) -> tuple[str, ...]:
    """What the whiskers and marks of this chart mean."""
    medians = [cell.metrics[page.metric.name] for cell in cells]
    kinds = {median.kind for median in medians}
    lines = []
    if "interval" in kinds:
        lines.append("Whiskers: the median lies in this range (95 % sure).")
    if "range" in kinds:
        lines.append(
            "Whiskers of medians with *: range of fewer than 6 attachments; nothing can "
            "be proven of it; pointing at a bar shows how sure it is."
        )
    if "one session" in kinds:
        lines.append(
            "Whiskers of medians with †: one attachment; how another would differ is not known."
        )
    if any(cell.worst_finding in ("warning", "invalid") for cell in cells):
        lines.append("Hatched: a finding of severity warning (lines) or invalid (crossed).")
    reasons = {why_absent(cell, page.metric.name) for cell in page.group.cells}
    if empty:
        names = "; ".join(", ".join(key) for key in empty)
        why = ", ".join(sorted(reasons - {""}))
        lines.append(f"Without a value and not drawn: {names} ({why}).")
    if page.group.cluster.explanation:
        lines.append(page.group.cluster.explanation)
    if SATURATED in reasons:
        lines.append("saturated: the offered rate was not reached, so that no latency counts.")
    if TOO_FEW in reasons:
        lines.append("A percentile q is shown only with at least 10/(1-q) operations in a run.")
    return tuple(lines)


def _finite(value: float) -> float | None:
    return value if value == value else None
