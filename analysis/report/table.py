"""The report's tables in the terminal (`fsmatrix show`): one column per target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.doubts import far_sentences, warning_sentences
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.report.pivot import Entry, Pivot, PivotPart, pivots
from fsmatrix.analysis.units import METRICS, labelled, own_metric
from fsmatrix.results.units import plural

MAIN = ("bandwidth", "iops")  # of whose values those far off are named


def in_terminal(summary: Summary, metrics: Sequence[str] = ()) -> Group:
    """Tables of a summary with their legend: of these metrics, or the usual ones."""
    shown = tables(summary, metrics) if metrics else usual_tables(summary)
    return Group(*shown, legend(summary))


def tables(summary: Summary, metrics: Sequence[str]) -> Iterator[Table]:
    """Tables of these metrics (names of units.METRICS), in their order."""
    by_name = {pivot.metric: pivot for pivot in pivots(summary)}
    for name in metrics:
        if name in by_name:
            for part in by_name[name].parts:
                yield _table(by_name[name], part)


def usual_tables(summary: Summary) -> Iterator[Table]:
    """Bandwidth and latency; operations per second of what moves no bytes (metadata).

    Also where all is judged by them (replays): direct ones may move more than was asked for.
    """
    by_name = {pivot.metric: pivot for pivot in pivots(summary)}
    judged = {
        own_metric(str(cell.levels.get("engine", "")), str(cell.levels.get("phase", "")))
        for cell in summary.cells
    }
    moved: set[tuple[str, tuple[str, ...]]] = set()
    for name in ("bandwidth", "iops", "latency_mean"):
        if name not in by_name:
            continue
        for part in by_name[name].parts:
            lines = list(part.lines)
            if name == "bandwidth":
                moved |= {(part.conditions, line.levels) for line in lines}
            elif name == "iops" and judged != {"iops"}:
                lines = [line for line in lines if (part.conditions, line.levels) not in moved]
            if lines:
                yield _table(by_name[name], replace(part, lines=tuple(lines)))


def legend(summary: Summary) -> Text:
    """What brackets and marks mean, what is in doubt, and what is not in the tables."""
    kinds = {median.kind for cell in summary.cells for median in cell.metrics.values()}
    lines = []
    if "interval" in kinds:
        lines.append("[–]: the median lies in this range (95 % sure)")
    if "range" in kinds:
        lines.append(
            "*: fewer than 6 attachments: the range of the values; nothing can be proven from it"
        )
    if "one session" in kinds:
        lines.append("†: one attachment, how another would differ is not known")
    named = [(_named(cell, summary), cell) for cell in summary.cells]
    if any(cell.worst_finding in ("warning", "invalid") for cell in summary.cells):
        lines.append("!, !!: runs with findings of severity warning, invalid (see the report)")
    lines += [
        f"~ {line}"
        for metric in METRICS.values()
        for line in far_sentences(
            (
                (name, cell.metrics[metric.name])
                for name, cell in named
                if metric.name in cell.metrics
            ),
            metric,
        )
        if metric.name in MAIN
    ]
    return Text("\n".join([*lines, *doubts(summary)]), style="dim")


def doubts(summary: Summary) -> list[str]:
    """What is in doubt, and what is not in the medians."""
    lines = [text for text in (summary.cluster.setting, summary.cluster.explanation) if text]
    lines += warning_sentences([(_named(cell, summary), cell) for cell in summary.cells])
    if summary.invalid_runs and not summary.invalid_included:
        verb = "is" if summary.invalid_runs == 1 else "are"
        audits = sorted({audit for cell in summary.cells for audit in cell.invalid_by})
        runs = plural(summary.invalid_runs, "invalid run")
        runs += f" ({', '.join(audits)})" * bool(audits)
        any_value = any(median.runs for cell in summary.cells for median in cell.metrics.values())
        lines.append(
            f"{runs} {verb} not in the medians" if any_value else f"{runs}: there is no valid value"
        )
    if summary.references and not summary.references_shown:
        lines.append(f"reference left out: {', '.join(summary.references)}")
    return lines


def _named(cell: Cell, summary: Summary) -> str:
    return ", ".join(
        labelled(name, level)
        for name in summary.varying
        if (level := cell.levels[name]) == level and level != ""
    )


def _table(pivot: Pivot, part: PivotPart) -> Table:
    title = f"{pivot.title} in {part.unit}, {pivot.better}"
    if part.conditions:
        title += f" ({part.conditions})"
    result = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for index, name in enumerate(part.factors):
        widest = max(len(line.levels[index]) for line in part.lines)
        result.add_column(Text(name), overflow="fold", min_width=widest)
    for name in part.columns:
        result.add_column(Text(name), justify="right", no_wrap=True)
    for line in part.lines:
        levels = [Text(level) for level in line.levels]
        result.add_row(*levels, *(_entry(entry) for entry in line.entries))
    return result


def _entry(entry: Entry | None) -> Text:
    if entry is None:
        return Text("")
    if entry.absent:
        return Text(entry.absent, style="red" if "failed" in entry.absent else "dim")
    marks = " ~" * entry.far + {"warning": " !", "invalid": " !!"}.get(entry.severity, "")
    text = Text(f"{entry.median}{entry.mark}", style="bold" if entry.clear else "")
    text.append(marks, style="yellow")
    text.append(f" [{entry.low}–{entry.high}]", style="dim")
    return text
