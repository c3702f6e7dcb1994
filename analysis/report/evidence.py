"""What a cell of the first screen stands on: its values as dots, the ratios, the doubts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from fsmatrix.analysis import units
from fsmatrix.analysis.data.study import Values
from fsmatrix.analysis.report.matrix import Box
from fsmatrix.analysis.report.shades import OTHER
from fsmatrix.analysis.standings.standing import Pair
from fsmatrix.analysis.standings.standings import Standing
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.words import lead
from fsmatrix.analysis.units import Unit, brief

WIDE, ROW, TOP, LABEL = 360, 24, 6, 96  # of the drawing, in its own units
MOST_LETTERS = 15  # of a target's name beside its dots
MOST_PAIRS = 12  # those of the best targets
STEEP = 8.0  # largest over smallest value, from which the axis is logarithmic


@dataclass(frozen=True)
class Evidence:
    """One cell, opened."""

    number: int
    title: str
    drawing: Markup  # inline SVG
    pairs: tuple[str, ...]
    doubts: tuple[str, ...]
    lost: tuple[str, ...]


def evidence(box: Box, cell: Standing, colours: Mapping[str, str]) -> Evidence:
    """The evidence of a cell; `colours` of the targets."""
    return Evidence(
        number=box.number,
        title=box.says,
        drawing=_drawing(cell, colours),
        pairs=_pairs(cell),
        doubts=cell.doubts,
        lost=tuple(f"{name}: {why}" for name, why in cell.lost),
    )


def _pairs(cell: Standing) -> tuple[str, ...]:
    sentences = [pair_says(oriented) for oriented in _oriented(cell)]
    more = len(sentences) - MOST_PAIRS
    return (
        *sentences[:MOST_PAIRS],
        *([f"{more} more pairs: fsmatrix compare"] if more > 0 else []),
    )


def _oriented(cell: Standing) -> Iterator[tuple[Pair, str]]:
    """Each pair, seen from the target that is ahead; those with the best medians first."""
    place = {values.cell.target: i for i, values in enumerate(cell.values)}
    for pair in sorted(cell.pairs, key=lambda p: sorted((place[p.a], place[p.b]))):
        yield pair, pair.ahead or max((pair.a, pair.b), key=pair.over)


def pair_says(seen: tuple[Pair, str]) -> str:
    """ "xfs is 25 times as fast as btrfs (95 % sure: 20 to 31), in all 6 blocks: proven"."""
    pair, first = seen
    ratio, interval = pair.over(first), pair.cell.ratio
    sentence = f"{first} is {lead(ratio, True, pair.other(first))}"
    low, high = pair.span(first)
    if interval.kind == "interval":
        sentence += f" (95 % sure: {brief(low)} to {brief(high)} times)"
    wins, blocks = pair.blocks(first)
    if blocks > 1:
        sentence += f", ahead in {'all ' if wins == blocks else f'{wins} of '}{blocks} blocks"
    if pair.state is Certainty.EQUAL:
        return f"{sentence}: no difference larger than {100 * pair.cell.verdict.x:.3g} %"
    if pair.state is Certainty.UNDECIDED and interval.kind != "interval":
        return f"{sentence}: too few blocks to tell"
    return f"{sentence}: {'may be chance' if pair.state is Certainty.UNDECIDED else pair.state}"


def _drawing(cell: Standing, colours: Mapping[str, str]) -> Markup:
    """A row of dots for each target, its median and its interval, on one axis."""
    every = [float(v) for values in cell.values for v in values.values]
    if not every:
        return Markup("")
    unit = units.fitting(cell.metric.quantity, [value.median.median for value in cell.values])
    scale = _Scale.of(every)
    height = TOP + ROW * len(cell.values) + 20
    parts = [_row(i, values, scale, unit, colours) for i, values in enumerate(cell.values)]
    parts.append(_axis(scale, unit, TOP + ROW * len(cell.values)))
    words = "; ".join(
        f"{values.cell.target} {', '.join(units.text(v, unit) for v in values.values)}"
        for values in cell.values
    )
    return Markup(
        '<svg class="dots" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{parts}</svg>'
    ).format(
        w=WIDE,
        h=height,
        label=f"{cell.metric.title} in {unit.label}: {words}",
        parts=Markup("").join(parts),
    )


@dataclass(frozen=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Scale:
        low, high = min(values), max(values)
        logarithmic = low > 0 and high / low > STEEP
        return cls(low if logarithmic else min(low, 0.0), high, logarithmic)

    def x(self, value: float) -> float:
        """Place of a value, within the drawing."""
        room = WIDE - LABEL - 12
        if self.high <= self.low:
            return LABEL + room / 2
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return round(LABEL + 4 + (room - 8) * (at - low) / (high - low), 1)


def _row(place: int, cell: Values, scale: _Scale, unit: Unit, colours: Mapping[str, str]) -> Markup:
    y = TOP + ROW * place + ROW / 2
    name = cell.cell.target
    colour = colours.get(name, OTHER)
    short = name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…"
    shapes = [Markup('<text x="0" y="{y}">{name}</text>').format(y=y + 4, name=short)]
    median = cell.median
    if math.isfinite(median.low) and math.isfinite(median.high):
        shapes.append(
            Markup('<line x1="{a}" x2="{b}" y1="{y}" y2="{y}" class="span" stroke="{c}"/>').format(
                a=scale.x(median.low), b=scale.x(median.high), y=y, c=colour
            )
        )
    for block, value in zip(cell.blocks, cell.values, strict=True):
        words = f"block {block}: {units.text(float(value), unit)} {unit.label}"
        shapes.append(
            Markup(
                '<circle cx="{x}" cy="{y}" r="3.2" fill="{c}"><title>{t}</title></circle>'
            ).format(x=scale.x(float(value)), y=y, c=colour, t=words)
        )
    shapes.append(
        Markup('<line x1="{x}" x2="{x}" y1="{a}" y2="{b}" class="middle"/>').format(
            x=scale.x(median.median), a=y - 8, b=y + 8
        )
    )
    return Markup("").join(shapes)


def _axis(scale: _Scale, unit: Unit, y: float) -> Markup:
    first, last = units.text(scale.low, unit), units.text(scale.high, unit)
    how = ", log scale" if scale.logarithmic else ""
    return Markup(
        '<line x1="{a}" x2="{b}" y1="{y}" y2="{y}" class="axis"/>'
        '<text x="{a}" y="{t}" class="tick">{first}</text>'
        '<text x="{m}" y="{t}" class="tick" text-anchor="middle">{unit}</text>'
        '<text x="{b}" y="{t}" class="tick" text-anchor="end">{last}</text>'
    ).format(
        a=LABEL,
        b=WIDE - 8,
        m=(LABEL + WIDE - 8) / 2,
        y=y,
        t=y + 14,
        first=first,
        last=last,
        unit=escape(unit.label + how),
    )
