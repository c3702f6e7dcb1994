"""The first screen: who is ahead in each cell, patterns as rows, the other factors as columns.

A cell says in colour, mark and words who leads, by how much and how sure; nothing is in colour
alone.  It opens its evidence: every value as a dot, the intervals, and what the audits doubt.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.analysis.comparison.compared import sortable
from fsmatrix.analysis.data.cells import Cell, sort_key
from fsmatrix.analysis.data.factors import several
from fsmatrix.analysis.draw.panels import ROW_NAMES, X_NAMES, groups
from fsmatrix.analysis.lessons.standings import Standing, Standings, level_words
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import Level, Unit, fitting, level_text, text
from fsmatrix.results.units import plural

# The colour of a cell: the leader's, saturated where proven, pale where likely.
#
# Text on it has a contrast of at least 4.5 (WCAG 2.1, 1.4.3).


STEPS = (1.25, 2.0)  # margins from which a colour is one step stronger
PROVEN = (0.6, 0.8, 1.0)  # share of the leader's colour for each step
LIKELY = (0.14, 0.2, 0.26)
SHARED = 0.5  # of the share, where several lead: one text must be legible on each of their colours
GREY, WHITE, INK = "#d5d9de", "#ffffff", "#000000"
HATCHED = "repeating-linear-gradient(45deg, #fff 0 5px, #b9c0c8 5px 7px)"
OTHER = "#888888"  # a target without a colour


@dataclass(frozen=True)
class Shade:
    """CSS values."""

    background: str
    text: str
    border: str  # the leader's own colour


def shade(cell: Standing, colours: Mapping[str, str]) -> Shade:
    """The colours of a cell; of several leaders a part each."""
    if cell.state is Certainty.INVALID:
        return Shade(HATCHED, INK, "#8c959f")
    if cell.state is Certainty.EQUAL:
        return Shade(GREY, INK, "#8c959f")
    if not cell.leaders:
        return Shade(WHITE, INK, "#8c959f")
    share = strength(cell)
    own = [colours.get(name, OTHER) for name in cell.leaders]
    if len(own) == 1:
        background = mixed(own[0], share)
        return Shade(background, legible(background), own[0])
    mix = [mixed(colour, share * SHARED) for colour in own]
    width = 100 / len(mix)
    stops = ", ".join(f"{c} {i * width:.0f}% {(i + 1) * width:.0f}%" for i, c in enumerate(mix))
    return Shade(f"linear-gradient(115deg, {stops})", INK, own[0])


def strength(cell: Standing) -> float:
    """Share of the leader's colour: by how much it leads, and how sure."""
    step = sum(cell.margin >= least for least in STEPS)
    return (PROVEN if cell.state is Certainty.PROVEN else LIKELY)[step]


def mixed(colour: str, share: float) -> str:
    """So much of a colour, the rest white; "#rrggbb"."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


def legible(background: str) -> str:
    """Dark or white text, whichever has the larger contrast."""
    return max((INK, WHITE), key=lambda text: contrast(text, background))


def contrast(first: str, two: str) -> float:
    """Contrast of two colours, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((_luminance(first), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


MOST_COLUMNS = 12  # beside each other, on a printed page too; more are wrapped by group
VALUES = "grey numbers: medians, and from the smallest to the largest value of a block"
MOST_VALUES = 5  # targets whose values a cell says; more are counted
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
    values: tuple[str, ...] = ()  # of each target, where only they can be said


@dataclass(frozen=True)
class Head:
    """One level above columns."""

    text: str
    span: int


@dataclass(frozen=True)
class Band:
    """Columns that stand beside each other."""

    conditions: str
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
    def lost(self) -> bool:
        """Whether a target has no valid value in a cell where others are compared."""
        return any(cell.lost and cell.state != Certainty.INVALID for _, cell in self.cells)

    @property
    def doubtful(self) -> str:
        """Which cells have warnings: "", "some" (marked) or "all" (said once)."""
        flags = {bool(cell.doubts) for _, cell in self.cells}
        return "" if True not in flags else "some" if False in flags else "all"

    @property
    def valued(self) -> bool:
        """Whether some cells can only say their values."""
        return any(box.values for box, _ in self.cells)

    @property
    def states(self) -> list[Certainty]:
        """Those that there are, for the legend."""
        present = {box.state for box, _ in self.cells}
        return [state for state in Certainty if state in present]


def picture(
    standings: Standings,
    colours: Mapping[str, str],
    columns: int = MOST_COLUMNS,
    called: Mapping[str, str] | None = None,
) -> Picture:
    """The matrix of these standings, so many columns beside each other.

    `colours` of the targets; `called`: what they are called in the cells, if not by their names.
    """
    draw = _Drawing(standings, colours, columns, called or {}, {})
    bands = [band for part in _parts(standings) for band in draw.bands(part)]
    boxes = draw.boxes
    return Picture(tuple(bands), tuple(boxes.values()), max(len(standings.cells) - len(boxes), 0))


@dataclass(frozen=True)
class _Part:
    """Cells of one workload, engine, cache and device state."""

    conditions: str
    rows: tuple[str, ...]  # factors
    columns: tuple[str, ...]
    cells: tuple[Standing, ...]


def _parts(standings: Standings) -> Iterator[_Part]:
    by_levels = {_place(cell.levels, standings.names): cell for cell in standings.cells}
    for group in groups(standings.summary):
        places = (_place(cell.levels, standings.names) for cell in _sorted(group.cells, standings))
        lines = [by_levels[key] for key in dict.fromkeys(places) if key in by_levels]
        layout = group.layout
        rows = tuple(name for name in layout.columns if name in standings.names)
        columns = [name for name in (*layout.rows, layout.x) if name in standings.names]
        order = (*X_NAMES, *ROW_NAMES)
        columns.sort(key=lambda n: order.index(n) if n in order else len(order))
        if lines:
            yield _Part(group.title, rows, tuple(columns), tuple(lines))


def _sorted(cells: Sequence[Cell], standings: Standings) -> list[Cell]:
    return sorted(cells, key=lambda cell: sort_key(cell, standings.names))


def _place(levels: Mapping[str, Level], names: Sequence[str]) -> tuple[str, ...]:
    """A key in which missing levels are alike."""
    key = (levels.get(name, "") for name in names)
    return tuple(repr(level if level == level else "") for level in key)


@dataclass(frozen=True)
class _Drawing:
    """Makes the bands of all parts, and numbers their cells."""

    standings: Standings
    colours: Mapping[str, str]
    columns: int
    called: Mapping[str, str]
    boxes: dict[int, tuple[Box, Standing]]

    def bands(self, part: _Part) -> Iterator[Band]:
        """The rows of a part, its columns wrapped."""
        rows = list(dict.fromkeys(_texts(cell, part.rows) for cell in part.cells))
        columns = sorted(
            {_texts(cell, part.columns): cell for cell in part.cells}.items(),
            key=lambda item: [sortable(item[1].levels[name]) for name in part.columns],
        )
        at = {(_texts(c, part.rows), _texts(c, part.columns)): c for c in part.cells}
        title = self.standings.summary.cluster.title
        for keys in _wrapped([key for key, _ in columns], self.columns):
            lines = [
                (", ".join(row), tuple(self._box(at.get((row, key))) for key in keys))
                for row in rows
            ]
            filled = tuple(line for line in lines if any(line[1]))
            if filled:
                heads = tuple(tuple(_heads(keys, depth)) for depth in range(len(part.columns)))
                yield Band(part.conditions, tuple(title(n) for n in part.columns), heads, filled)

    def _box(self, cell: Standing | None) -> Box | None:
        if cell is None or len(self.boxes) >= MOST_CELLS:
            return None
        who, how_much = short(cell, self.called)
        box = Box(
            number=len(self.boxes) + 1,
            mark=cell.state.mark,
            who=who,
            how_much=how_much,
            says=says(cell),
            state=cell.state,
            shade=shade(cell, self.colours),
            lost=bool(cell.lost),
            doubtful=bool(cell.doubts),
            values=medians(cell, self.called) if is_untold(cell) else (),
        )
        self.boxes[box.number] = box, cell
        return box


def _texts(cell: Standing, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(level_text(name, cell.levels[name]) for name in names)


def _wrapped(keys: Sequence[tuple[str, ...]], most: int) -> Iterator[list[tuple[str, ...]]]:
    """Columns in bands of at most so many, those of one first level together if they fit."""
    band: list[tuple[str, ...]] = []
    for _, group in itertools.groupby(keys, key=lambda key: key[:1]):
        rest = list(group)
        if band and len(band) + len(rest) > most:
            yield band
            band = []
        while len(rest) > most:
            yield rest[:most]
            rest = rest[most:]
        band += rest
    if band:
        yield band


def _heads(keys: Sequence[tuple[str, ...]], depth: int) -> Iterator[Head]:
    """Levels of one factor, each over the columns that it holds for."""
    for key, group in itertools.groupby(keys, key=lambda key: key[: depth + 1]):
        yield Head(key[depth], len(list(group)))


def short(cell: Standing, called: Mapping[str, str] | None = None) -> tuple[str, str]:
    """(who is ahead, by how much) in the fewest characters; `called` as in `picture`."""
    first = " | ".join((called or {}).get(name, name) for name in cell.order.leaders)
    if cell.leaders:
        return first, words.short(cell.margin)
    if cell.state is Certainty.EQUAL:
        return "equal", ""
    if cell.state is Certainty.INVALID:
        return "failed" if all("failed" in why for _, why in cell.lost) else "invalid", ""
    if len(cell.values) < 2:
        return "one target", ""
    if is_untold(cell):
        return f"{plural(cell.blocks, 'block')}, {_unit(cell).label}", ""
    return first if len(cell.order.groups) > 1 else Certainty.UNDECIDED, ""


def is_untold(cell: Standing) -> bool:
    """Whether it has too few blocks for an interval of any ratio."""
    compared = len(cell.values) > 1 and cell.state is Certainty.UNDECIDED
    return compared and not any(pair.cell.ratio.kind == "interval" for pair in cell.pairs)


def medians(cell: Standing, called: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Each target's median and the range of its values: "xfs 450 (430–470)"; the best first."""
    unit, lines = _unit(cell), []
    apart = _apart(cell)
    for value in cell.values:
        name, low, high = value.cell.target, value.values.min(), value.values.max()
        spread = f" ({text(low, unit)}–{text(high, unit)})" * (value.values.size > 1)
        which = "".join(f" {level_words(n, value.level(n))}" for n in apart)
        shown = (called or {}).get(name, name) + which
        lines.append(f"{shown} {text(value.median.median, unit)}{spread}")
    more = len(lines) - MOST_VALUES
    return (*lines[:MOST_VALUES], *([f"and {more} more"] if more > 0 else []))


def _apart(cell: Standing) -> list[str]:
    """Factors of which one target has several levels in a cell, as versions of a system."""
    by_target: dict[str, list[Mapping[str, Level]]] = defaultdict(list)
    for value in cell.values:
        by_target[value.cell.target].append(value.cell.levels)
    return list(dict.fromkeys(name for own in by_target.values() for name in several(own)))


def _unit(cell: Standing) -> Unit:
    return fitting(cell.metric.quantity, [value.median.median for value in cell.values])


def says(cell: Standing) -> str:
    """A cell in words: "seq-read, 4 KiB: xfs is ahead by ×25, proven"."""
    start = f"{cell.named}: " if cell.named else ""
    if cell.leaders:
        verb = "is" if len(cell.leaders) == 1 else "are"
        who = " and ".join(cell.leaders)
        return f"{start}{who} {verb} ahead by {words.short(cell.margin)}, {cell.state}"
    if cell.state is Certainty.EQUAL:
        return f"{start}no difference that matters"
    if cell.state is Certainty.INVALID:
        return start + "; ".join(f"{name}: {why}" for name, why in cell.lost)
    if len(cell.order.groups) > 1:
        behind = [name for group in cell.order.groups[1:] for name in group]
        return f"{start}who is ahead may be chance, but not {' or '.join(behind)}"
    if is_untold(cell):
        blocks, values = plural(cell.blocks, "block"), "; ".join(medians(cell))
        return f"{start}{blocks}, too little data: {values}; {_unit(cell).label}"
    if short(cell)[0] == Certainty.UNDECIDED:
        return f"{start}the difference may be chance"
    return f"{start}{short(cell)[0]}, too little data"
