"""The summary as a table in the terminal (`fsmatrix show`)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fsmatrix.analysis import units
from fsmatrix.analysis.medians import Median
from fsmatrix.analysis.summary import Summary
from fsmatrix.analysis.units import MARKS, METRICS, level_text


def table(summary: Summary, metrics: Sequence[str]) -> Table:
    """One row per cell; `metrics` are names of units.METRICS."""
    result = Table(title="Medians [low .. high]", caption=_caption(summary), header_style="bold")
    for name in summary.varying:
        result.add_column(units.factor_title(name))
    result.add_column("runs", justify="right")
    chosen = {}
    for name in metrics:
        metric = METRICS[name]
        values = [cell.metrics[name].median for cell in summary.cells]
        chosen[name] = units.fitting(metric.quantity, values)
        result.add_column(f"{units.SHORT_TITLES[name]}\n{chosen[name].label}", justify="right")
    result.add_column("notes")
    for cell in summary.cells:
        fields = [level_text(name, cell.levels[name]) for name in summary.varying]
        fields.append(str(cell.runs))
        fields += [_median_text(cell.metrics[name], chosen[name]) for name in metrics]
        result.add_row(*(Text(printable(field)) for field in [*fields, cell.notes]))
    return result


def _median_text(median: Median, unit: units.Unit) -> str:
    if median.kind == "none":
        return units.MISSING
    low, high = units.text(median.low, unit), units.text(median.high, unit)
    mark = MARKS.get(median.kind, "")
    return f"{units.text(median.median, unit)}{mark} [{low} .. {high}]"


def printable(text: str) -> str:
    """`text` without control characters: names and messages may come from anywhere."""
    return "".join(c if c.isprintable() or c in "\n\u202f" else "\ufffd" for c in text)


def _caption(summary: Summary) -> Text:
    kinds = {median.kind for cell in summary.cells for median in cell.metrics.values()}
    lines = []
    if "interval" in kinds:
        lines.append("[..]: 95 % interval of the median over attachments")
    if "range" in kinds:
        lines.append("*: fewer than 6 attachments: the range, no verdict")
    if "one session" in kinds:
        lines.append("†: within one session only")
    if summary.invalid_runs and not summary.invalid_included:
        lines.append(f"{summary.invalid_runs} invalid runs are not in the medians")
    if summary.references and not summary.references_shown:
        lines.append(f"reference left out: {', '.join(summary.references)}")
    return Text(printable("\n".join(lines)))
