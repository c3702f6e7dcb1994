"""The study's tables as text, for the page and the terminal: families against years or sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsmatrix.analysis.studies.io500.ranges import SCORES, Row, ValueRange
from fsmatrix.analysis.studies.io500.result import Io500Study
from fsmatrix.analysis.studies.io500.submissions import CLASSES, NO_CLASS
from fsmatrix.analysis.studies.io500.words import MARK
from fsmatrix.analysis.units import MISSING, number

MEASURE = "score"  # that is shown by year and by client nodes


@dataclass(frozen=True)
class Grid:
    """A table: a heading, columns, lines of text; the first column names the family."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def grids(study: Io500Study, fewest: int = 1, ranges: bool = True) -> list[Grid]:
    """Families with at least `fewest` submissions; `ranges`: smallest and largest too."""
    names = [row.key[0] for row in study.families if row.submissions >= fewest]
    sizes = [name for _, _, name in CLASSES] + [NO_CLASS]
    years = sorted({row.key[1] for row in study.years})
    what = "median [smallest–largest] (submissions)" if ranges else "median (submissions)"

    def text(value_range: ValueRange) -> str:
        return _range(value_range, ranges)

    return [
        _families(study, fewest),
        _crossed(f"Score by year, {what}; {MARK}", study.years, names, years, text),
        _crossed(f"Score by client nodes, {what}; {MARK}", study.sizes, names, sizes, text),
    ]


def _families(study: Io500Study, fewest: int) -> Grid:
    head = ("family", "submissions", "systems", "years", "client nodes")
    return Grid(
        f"Families, median [smallest–largest]; {MARK}",
        (*head, *SCORES),
        tuple(
            (
                row.key[0],
                str(row.submissions),
                str(row.systems),
                _ends(row.years),
                _ends(row.nodes),
                *(_range(row.ranges[name], True, False) for name in SCORES),
            )
            for row in study.families
            if row.submissions >= fewest
        ),
    )


def ratios(study: Io500Study, fewest: int = 1) -> Grid:
    """Hard over easy of the families."""
    chosen = [row for row in study.ratios if row.submissions >= fewest]
    names = tuple(chosen[0].ranges) if chosen else ()
    return Grid(
        f"Hard over easy, median [smallest–largest] (submissions); {MARK}",
        ("family", *names),
        tuple((row.key[0], *(_range(row.ranges[name], True) for name in names)) for row in chosen),
    )


def _crossed(
    title: str,
    rows: Sequence[Row],
    names: Sequence[str],
    columns: Sequence[str],
    text: Callable[[ValueRange], str],
) -> Grid:
    texts = {row.key: text(row.ranges[MEASURE]) for row in rows}
    kept = [column for column in columns if any((name, column) in texts for name in names)]
    lines = [(name, *(texts.get((name, column), "") for column in kept)) for name in names]
    return Grid(title, ("family", *kept), tuple(lines))


def _range(value_range: ValueRange, ends: bool, count: bool = True) -> str:
    if value_range.median is None or value_range.low is None or value_range.high is None:
        return MISSING
    spread = (
        f" [{number(value_range.low)}–{number(value_range.high)}]"
        if ends and value_range.submissions > 1
        else ""
    )
    return f"{number(value_range.median)}{spread}" + (
        f" ({value_range.submissions})" if count else ""
    )


def _ends(ends: tuple[int, int] | None) -> str:
    if ends is None:
        return MISSING
    return f"{ends[0]}" if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"
