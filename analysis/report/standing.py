"""The report's first screen in the terminal (`fsmatrix show`): it fits 80 columns."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

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
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.results.evidence.stored import JsonObject

WIDTH = 80
LONGEST = 20  # characters of a cell; with longer ones targets are called A, B, ...
LONGEST_VALUES = 30  # the same, of a line of values
NARROW = 10  # to which titles of factors are wrapped
GAP = 2
STYLES: dict[str, str] = {
    Certainty.PROVEN: "bold", Certainty.LIKELY: "", Certainty.INVALID: "red",
    Certainty.EQUAL: "dim", Certainty.UNDECIDED: "dim",
}  # fmt: skip


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
        yield _table(band, stub, drawn.doubtful == "some", colour)
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


def _table(band: Band, stub: int, marked: bool, colour: Mapping[str, str]) -> Table:
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
