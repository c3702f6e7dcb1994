"""The report in the terminal (`fsmatrix show`): its first screen in 80 columns, and tables."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.doubts import far_sentences, warning_sentences
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.draw.charts import colours
from fsmatrix.analysis.lessons.first_screen import extremes, sentences
from fsmatrix.analysis.lessons.standings import Standing, Standings
from fsmatrix.analysis.report.matrix import (
    VALUES,
    Band,
    Box,
    Picture,
    is_untold,
    medians,
    picture,
    short,
)
from fsmatrix.analysis.report.pivot import Entry, Pivot, PivotPart, pivots
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import METRICS, labelled, own_metric
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.units import plural

MAIN = ("bandwidth", "iops")  # of whose values those far off are named

WIDTH = 80
LONGEST = 20  # characters of a cell; with longer ones targets are called A, B, ...
LONGEST_VALUES = 30  # the same, of a line of values
NARROW = 10  # to which titles of factors are wrapped
GAP = 2
STYLES: dict[str, str] = {
    Certainty.PROVEN: "bold", Certainty.LIKELY: "", Certainty.INVALID: "red",
    Certainty.EQUAL: "dim", Certainty.UNDECIDED: "dim",
}  # fmt: skip


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


def standing(standings: Standings, plan: JsonObject, place: str) -> Iterator[Table | Text]:
    """Matrix, legend, three sentences and a line for each target; arguments as `sentences`."""
    colour, letters = colours(standings.summary), _letters(standings)
    whole = picture(standings, colour)
    widest = max((_width(cell, letters) for cell in standings.cells), default=0)
    stub = max((len(name) for band in whole.bands for name, _ in band.rows), default=0)
    stub = max(stub, NARROW)
    marks = len(" ×") * whole.lost + len(" !") * (whole.doubtful == "some")
    room = max((WIDTH - stub) // (widest + marks + GAP), 1)
    drawn = picture(standings, colour, room, letters)
    for band in drawn.bands:
        yield _band_table(band, stub, drawn.doubtful == "some", colour)
    yield Text(_legend(drawn, letters), style="dim")
    lines = sentences(standings, plan, place)
    said = (lines.answer, lines.against, lines.todo)
    yield Text("\n".join(["", *filter(None, said)]))
    yield Text(f"  {lines.command}", no_wrap=True, overflow="ignore")  # to be pasted
    if drawn.more:
        yield Text(f"{drawn.more} more cells: fsmatrix compare shows them.")
    many = len(standings.targets) > 2  # of two the answer has said it
    ends = [extreme.says for extreme in extremes(standings)] if many else []
    yield Text("\n".join(["", *ends, ""] if ends else [""]))


def _letters(standings: Standings) -> dict[str, str]:
    """What targets are called in the cells, where their names are too long."""
    if all(_width(c, {}) <= (LONGEST_VALUES if is_untold(c) else LONGEST) for c in standings.cells):
        return {}
    return dict(zip(standings.targets, string.ascii_uppercase, strict=False))


def _width(cell: Standing, letters: Mapping[str, str]) -> int:
    values = medians(cell, letters) if is_untold(cell) else ()
    return max(map(cell_len, [_text(cell.state.mark, *short(cell, letters)), *values]))


def _text(mark: str, who: str, how_much: str) -> str:
    return f"{mark} {who.replace(' | ', '|')} {how_much}".strip()


def _legend(drawn: Picture, letters: Mapping[str, str]) -> str:
    lines = [f"{state.mark} {state}: {state.meaning}" for state in drawn.states]
    if letters:
        lines.append(", ".join(f"{letter} {name}" for name, letter in letters.items()))
    lines += [VALUES] * drawn.valued
    lines += ["× a target without a valid run there"] * drawn.lost
    lines += ["! warnings there"] * (drawn.doubtful == "some")
    return "\n".join(lines)


def _band_table(band: Band, stub: int, marked: bool, colour: Mapping[str, str]) -> Table:
    """One band; titles of factors are wrapped, their levels stand beside the last line."""
    title = Text(f"Who is ahead{', ' * bool(band.conditions)}{band.conditions}", style="bold")
    table = Table(
        title=title,
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, GAP, 0, 0),
    )
    wrapped = [textwrap.wrap(name, stub) for name in band.titles]
    table.add_column(
        Text("\n".join(line for lines in wrapped for line in lines), style="dim"), no_wrap=True
    )
    levels = [_spread(line) for line in band.heads]
    for place in range(len(band.rows[0][1])):
        head = [
            [""] * (len(lines) - 1) + [texts[place]]
            for lines, texts in zip(wrapped, levels, strict=True)
        ]
        table.add_column(Text("\n".join(line for lines in head for line in lines)), no_wrap=True)
    for name, boxes in band.rows:
        table.add_row(Text(name), *(_cell(box, marked, colour) for box in boxes))
    return table


def _spread(line: Sequence[Any]) -> list[str]:
    """The text of a head over its first column, blanks over the others."""
    return [head.text if i == 0 else "" for head in line for i in range(head.span)]


def _cell(box: Box | None, marked: bool, colour: Mapping[str, str]) -> Text:
    if box is None:
        return Text("")
    own = box.shade.border if box.shade.border in colour.values() else ""
    text = Text(_text(box.mark, box.who, box.how_much), style=f"{STYLES[box.state]} {own}".strip())
    if box.lost and box.state != Certainty.INVALID:
        text.append(" ×", style="red")
    if box.doubtful and marked:
        text.append(" !", style="yellow")
    for line in box.values:
        text.append(f"\n{line}", style="dim")
    return text
