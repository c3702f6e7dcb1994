"""Tables of medians: one row per combination of levels, one column per target.

Of more targets than fit beside each other (`Summary.many_targets`) the target is one more level of
a row, and there is one column: rows x targets would grow with their square, and be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Cell, sort_key
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.draw.charts import NOT_MEASURED, why_absent
from fsmatrix.analysis.draw.panels import CellGroup, groups, same
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import MARKS, METRICS, Level, Metric, Unit, level_text, metric_of

MEDIAN = "median"  # the column of all targets, where they are too many for one each


@dataclass(frozen=True)
class Entry:
    """What a table shows of one cell."""

    median: str
    low: str
    high: str
    mark: str  # "", "*" (a range), "†" (within one session)
    severity: str  # worst finding
    explanation: str
    clear: bool  # its interval lies on the better side of all others in its row
    absent: str  # why there is no median
    far: bool = False  # a value is far from all others of the cell


@dataclass(frozen=True)
class PivotRow:
    """One row: levels, and an entry (or none) per column."""

    levels: tuple[str, ...]
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class PivotPart:
    """Rows that may be compared: one workload, engine, cache and device state."""

    title: str  # of the metric
    conditions: str
    unit: str
    factors: tuple[str, ...]
    columns: tuple[str, ...]  # targets; MEDIAN alone where the target is a factor
    lines: tuple[PivotRow, ...]


@dataclass(frozen=True)
class Pivot:
    """The table of one metric."""

    metric: str
    title: str
    better: str
    parts: tuple[PivotPart, ...]


def pivots(summary: Summary) -> list[Pivot]:
    """One table per metric that has values; no part without values.

    Transactions of databases, and events of an analysis, have one of their own.
    """
    grouped = groups(summary)
    result = []
    for metric in METRICS.values():
        parts = tuple(
            _part(group, () if summary.many_targets else summary.targets, group.metric(metric.name))
            for group in grouped
            if any(cell.metrics[metric.name].runs for cell in group.cells)
        )
        better = "more is better" if metric.more_is_better else "less is better"
        for title in dict.fromkeys(part.title for part in parts):
            of_title = tuple(part for part in parts if part.title == title)
            result.append(Pivot(metric.name, title, better, of_title))
    return result


def _part(group: CellGroup, targets: Sequence[str], metric: Metric) -> PivotPart:
    factors = (*group.layout.factors, *(() if targets else ("target",)))
    unit = units.fitting(metric.quantity, [c.metrics[metric.name].median for c in group.cells])
    lines: dict[tuple[Level, ...], dict[str, Cell]] = {}
    for cell in sorted(group.cells, key=lambda cell: sort_key(cell, factors)):
        key = tuple(same(cell.levels[name]) for name in factors)
        row = lines.setdefault(key, {})
        column = cell.target if targets else MEDIAN
        if column in row:
            raise AssertionError(f"two cells of {cell.target} in one row: {key} of {factors}")
        row[column] = cell
    columns = tuple(targets) or (MEDIAN,)
    marked = not group.cluster.one_machine
    pivot_rows = (_line(row, factors, columns, metric, unit, marked) for row in lines.values())
    return PivotPart(
        title=metric.title,
        conditions=group.title,
        unit=unit.label,
        factors=tuple(group.cluster.title(name) for name in factors),
        columns=columns,
        lines=tuple(line for line in pivot_rows if _says_something(line)),
    )


def _says_something(line: PivotRow) -> bool:
    """A number, or why a run gave none; not only that there is no such metric (metadata)."""
    return any(entry is not None and entry.absent != NOT_MEASURED for entry in line.entries)


def _line(
    row: dict[str, Cell],
    factors: Sequence[str],
    columns: Sequence[str],
    metric: Metric,
    unit: Unit,
    marked: bool,
) -> PivotRow:
    """`marked`: what is clear of all others in its row is told."""
    some = next(iter(row.values()))
    medians = {target: cell.metrics[metric.name] for target, cell in row.items()}
    return PivotRow(
        levels=tuple(level_text(name, some.levels[name]) for name in factors),
        entries=tuple(
            _entry(
                row[target],
                metric,
                unit,
                marked and _clear(target, medians, metric.more_is_better),
            )
            if target in row
            else None
            for target in columns
        ),
    )


def _entry(cell: Cell, metric: Metric, unit: Unit, clear: bool) -> Entry:
    median = cell.metrics[metric.name]
    runs = f"{cell.runs} runs in {cell.attachments} attachments"
    return Entry(
        median=units.text(median.median, unit),
        low=units.text(median.low, unit),
        high=units.text(median.high, unit),
        mark=MARKS.get(median.kind, ""),
        severity=cell.worst_finding,
        explanation="; ".join(text for text in (runs, median.says, cell.notes) if text),
        clear=clear,
        absent=why_absent(cell, metric.name),
        far=bool(median.far),
    )


def _clear(target: str, medians: dict[str, Median], more_is_better: bool) -> bool:
    """Whether the target's interval lies beyond the intervals of all other targets."""
    medians_of_target = medians[target]
    others = [median for name, median in medians.items() if name != target]
    if not others or not all(median.decides for median in medians.values()):
        return False
    if more_is_better:
        return all(medians_of_target.low > other.high for other in others)
    return all(medians_of_target.high < other.low for other in others)


@dataclass(frozen=True)
class CellRow:
    """One cell in the list of all cells; each text with a key to sort by."""

    cell: Cell
    levels: tuple[tuple[str, Level], ...]
    medians: tuple[tuple[str, Level], ...]


def cell_table(summary: Summary) -> tuple[list[str], list[str], list[CellRow]]:
    """(titles of the factors, titles of the metrics, rows): medians alone, in fitting units."""
    chosen: dict[Metric, Unit] = {}
    for name in METRICS:
        for metric in dict.fromkeys(_metric(cell, name) for cell in summary.cells):
            cells = [cell for cell in summary.cells if _metric(cell, name) == metric]
            values = [cell.metrics[name].median for cell in cells]
            if any(value == value for value in values):
                chosen[metric] = units.fitting(metric.quantity, values)
    rows = [
        CellRow(
            cell,
            tuple((level_text(n, cell.levels[n]), cell.levels[n]) for n in summary.varying),
            tuple(
                _sortable(
                    cell.metrics[metric.name].median
                    if _metric(cell, metric.name) == metric
                    else float("nan"),
                    unit,
                )
                for metric, unit in chosen.items()
            ),
        )
        for cell in summary.cells
    ]
    titles = [_title(units.short_title(metric), unit) for metric, unit in chosen.items()]
    return [summary.cluster.title(name) for name in summary.varying], titles, rows


def _title(title: str, unit: Unit) -> str:
    """With the unit, which is not repeated: "mean latency, ms", "IOPS"."""
    return title if unit.label == title else f"{title}, {unit.label}"


def _metric(cell: Cell, name: str) -> Metric:
    return metric_of(name, [cell.levels])


def _sortable(value: float, unit: Unit) -> tuple[str, Level]:
    return units.text(value, unit), value if value == value else ""
