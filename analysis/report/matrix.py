"""The first screen: who is ahead in each cell, patterns as rows, the other factors as columns.

A cell says in colour, mark and words who leads, by how much and how sure; nothing is in colour
alone.  It opens its evidence: every value as a dot, the intervals, and what the audits doubt.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.analysis.report.layout import ROW_NAMES, X_NAMES, groups
from fsmatrix.analysis.report.shades import Shade, shade
from fsmatrix.analysis.standings.standing import MARKS, ahead_by
from fsmatrix.analysis.standings.standings import Standing, Standings
from fsmatrix.analysis.summary import Cell, sort_key
from fsmatrix.analysis.units import Level, level_text

MOST_COLUMNS = 12  # beside each other, on a printed page too; more are wrapped by group
MOST_CELLS = 600  # of the picture; more are counted


@dataclass(frozen=True)
class Box:
    """One cell of the picture."""

    number: int  # of its evidence
    mark: str
    who: str
    how_much: str
    says: str  # all of it in words
    state: str
    shade: Shade
    lost: bool  # a target has no valid value here
    doubtful: bool  # audits warn here


@dataclass(frozen=True)
class Head:
    """One level above columns."""

    text: str
    span: int


@dataclass(frozen=True)
class Band:
    """Columns that stand beside each other."""

    conditions: str
    row_title: str
    titles: tuple[str, ...]  # of the factors above the columns
    heads: tuple[tuple[Head, ...], ...]  # for each of these factors
    rows: tuple[tuple[str, tuple[Box | None, ...]], ...]


@dataclass(frozen=True)
class Picture:
    """The matrix of a campaign."""

    bands: tuple[Band, ...]
    cells: tuple[tuple[Box, Standing], ...]  # in the order of their numbers
    more: int  # cells that are not drawn

    @property
    def doubtful(self) -> str:
        """Which cells have warnings: "", "some" (marked) or "all" (said once)."""
        flags = {bool(cell.doubts) for _, cell in self.cells}
        return "" if True not in flags else "some" if False in flags else "all"

    @property
    def states(self) -> list[str]:
        """Those that there are, for the legend."""
        found = {box.state for box, _ in self.cells}
        return [state for state in MARKS if state in found]


def picture(found: Standings, colours: Mapping[str, str]) -> Picture:
    """The matrix of these standings; `colours` of the targets."""
    numbers = itertools.count(1)
    boxes: dict[int, tuple[Box, Standing]] = {}
    bands: list[Band] = []
    for part in _parts(found):
        bands += _bands(part, found, colours, numbers, boxes)
    return Picture(tuple(bands), tuple(boxes.values()), max(len(found.cells) - len(boxes), 0))


@dataclass(frozen=True)
class _Part:
    """Cells of one workload, engine, cache and device state."""

    conditions: str
    rows: tuple[str, ...]  # factors
    columns: tuple[str, ...]
    cells: tuple[Standing, ...]


def _parts(found: Standings) -> Iterator[_Part]:
    by_levels = {_place(cell.levels, found.names): cell for cell in found.cells}
    for group in groups(found.summary):
        places = (_place(cell.levels, found.names) for cell in _sorted(group.cells, found))
        mine = [by_levels[key] for key in dict.fromkeys(places) if key in by_levels]
        layout = group.layout
        rows = tuple(name for name in layout.columns if name in found.names)
        columns = [name for name in (*layout.rows, layout.x) if name in found.names]
        order = (*X_NAMES, *ROW_NAMES)
        columns.sort(key=lambda n: order.index(n) if n in order else len(order))
        if mine:
            yield _Part(group.title, rows, tuple(columns), tuple(mine))


def _sorted(cells: Sequence[Cell], found: Standings) -> list[Cell]:
    return sorted(cells, key=lambda cell: sort_key(cell, found.names))


def _place(levels: Mapping[str, Level], names: Sequence[str]) -> tuple[str, ...]:
    """A key in which missing levels are alike."""
    found = (levels.get(name, "") for name in names)
    return tuple(repr(level if level == level else "") for level in found)


def _bands(
    part: _Part, found: Standings, colours: Mapping[str, str], numbers: Iterator[int],
    boxes: dict[int, tuple[Box, Standing]],
) -> Iterator[Band]:  # fmt: skip
    def texts(cell: Standing, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(level_text(name, cell.levels[name]) for name in names)

    rows = list(dict.fromkeys(texts(cell, part.rows) for cell in part.cells))
    columns = sorted(
        {texts(cell, part.columns): cell for cell in part.cells}.items(),
        key=lambda item: [_order(item[1].levels[name]) for name in part.columns],
    )
    at = {(texts(c, part.rows), texts(c, part.columns)): c for c in part.cells}
    title = found.summary.cluster.title
    for keys in _wrapped([key for key, _ in columns]):
        made = []
        for row in rows:
            line: list[Box | None] = []
            for key in keys:
                cell = at.get((row, key))
                if cell is None or len(boxes) >= MOST_CELLS:
                    line.append(None)
                    continue
                box = _box(next(numbers), cell, colours)
                boxes[box.number] = box, cell
                line.append(box)
            if any(line):
                made.append((", ".join(row), tuple(line)))
        if made:
            heads = tuple(tuple(_heads(keys, depth)) for depth in range(len(part.columns)))
            yield Band(part.conditions, ", ".join(title(n) for n in part.rows),
                       tuple(title(n) for n in part.columns), heads, tuple(made))  # fmt: skip


def _order(level: Level) -> tuple[int, float, str]:
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")


def _wrapped(keys: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Columns in bands of at most MOST_COLUMNS, those of one first level together if they fit."""
    band: list[tuple[str, ...]] = []
    for _, group in itertools.groupby(keys, key=lambda key: key[:1]):
        mine = list(group)
        if band and len(band) + len(mine) > MOST_COLUMNS:
            yield band
            band = []
        while len(mine) > MOST_COLUMNS:
            yield mine[:MOST_COLUMNS]
            mine = mine[MOST_COLUMNS:]
        band += mine
    if band:
        yield band


def _heads(keys: Sequence[tuple[str, ...]], depth: int) -> Iterator[Head]:
    """Levels of one factor, each over the columns that it holds for."""
    for key, group in itertools.groupby(keys, key=lambda one: one[: depth + 1]):
        yield Head(key[depth], len(list(group)))


def _box(number: int, cell: Standing, colours: Mapping[str, str]) -> Box:
    who, how_much = short(cell)
    return Box(
        number=number, mark=MARKS[cell.state], who=who, how_much=how_much, says=says(cell),
        state=cell.state, shade=shade(cell, colours), lost=bool(cell.lost),
        doubtful=bool(cell.doubts),
    )  # fmt: skip


def short(cell: Standing) -> tuple[str, str]:
    """(who is ahead, by how much) in the fewest characters."""
    if cell.leaders:
        return " | ".join(cell.leaders), ahead_by(cell.margin)
    if cell.state == "equal":
        return "equal", ""
    if cell.state == "invalid":
        return "failed" if all("failed" in why for _, why in cell.lost) else "invalid", ""
    if len(cell.values) < 2:
        return "one target", ""
    if not any(one.cell.ratio.kind == "interval" for one in cell.pairs):
        blocks = cell.blocks
        return f"{blocks} block{'s' * (blocks != 1)}", ""
    return "unclear", ""


def says(cell: Standing) -> str:
    """A cell in words: "seq-read, 4 KiB: xfs is ahead by ×25, proven"."""
    start = f"{cell.named}: " if cell.named else ""
    if cell.leaders:
        verb = "is" if len(cell.leaders) == 1 else "are"
        who = " and ".join(cell.leaders)
        return f"{start}{who} {verb} ahead by {ahead_by(cell.margin)}, {cell.state}"
    who, _ = short(cell)
    said = {"equal": "no difference that matters", "unclear": "the difference may be chance"}
    if cell.lost and cell.state == "invalid":
        return start + "; ".join(f"{name}: {why}" for name, why in cell.lost)
    return start + said.get(who, f"{who}: too little data")
