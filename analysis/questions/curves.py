"""A metric over one numeric factor, a line for each combination of whatever else varies.

IOR over tasks per block size, transactions over warehouses per file system, IOPS over devices per
host adapter: the same question.  Points are medians over attachments with their intervals.

Or the ratio of two levels over that factor: the speed-up under less memory, by the ratios of a
comparison and its rules on what belongs together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.compare import DEFAULTS, compare
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.doubts import doubts_of
from fsmatrix.analysis.data.factors import Key, follows_in, same, varying_beside
from fsmatrix.analysis.data.metric_cells import Study, ratio_of, study
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import Level, brief
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 10  # colours: then the dashes change


@dataclass(frozen=True)
class CurveLine:
    """One line; its cells in the order of the factor.  SI units."""

    key: Key
    levels: tuple[float, ...]
    cells: tuple[Values, ...]

    @property
    def best(self) -> int:
        """Place of the highest median."""
        return max(range(len(self.cells)), key=lambda i: self.cells[i].median.median)


@dataclass(frozen=True)
class Curves:
    """All lines of one metric; `panel`: factors whose levels have panels of their own."""

    metric: str
    title: str
    unit: str
    divisor: float
    along: str
    panel: tuple[str, ...]
    lines: tuple[CurveLine, ...]
    of: Study
    remarks: tuple[str, ...] = ()

    @property
    def says(self) -> list[str]:
        """Each line's ends, and where it is highest."""
        return [*(self._sentence(line) for line in self.lines), *self.remarks, *self.of.remarks]

    def _sentence(self, line: CurveLine) -> str:
        first, last, best = line.cells[0], line.cells[-1], line.best
        low, high, top = (units.level_text(self.along, line.levels[i]) for i in (0, -1, best))
        name = units.factor_title(self.along)
        where = f"{described(line.key)}: " if line.key else ""
        text = f"{where}{self.title} {self._number(first.median)} at {name} {low}"
        if len(line.cells) == 1:
            return f"{text}, one level only."
        r = ratio_of(last, first)
        sure = f" [{brief(r.low)}, {brief(r.high)}]" if r.decides else " (no interval)"
        return (
            f"{text}, {self._number(last.median)} at {high}: {brief(r.ratio)} times{sure}; "
            f"highest at {top}{self._dip(line)}."
        )

    def _dip(self, line: CurveLine) -> str:
        """A lowest point between the ends, and the doubts about it; "" if an end is the lowest."""
        place = min(range(len(line.cells)), key=lambda i: line.cells[i].median.median)
        if place in (0, len(line.cells) - 1):
            return ""
        cell = line.cells[place]
        reasons = doubts_of(cell.cell, cell.median, self.of.metric)
        doubt = f" (in doubt: {', '.join(reasons)})" if reasons else ""
        level = units.level_text(self.along, line.levels[place])
        return f", lowest at {level}: {self._number(cell.median)}{doubt}"

    def _number(self, median: Median) -> str:
        return f"{units.number(median.median / self.divisor)} {self.unit}"

    def table(self) -> pd.DataFrame:
        """One row per point."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **dict(line.key),
                    self.along: x,
                    f"median, {self.unit}": c.median.median / self.divisor,
                    f"low, {self.unit}": c.median.low / self.divisor,
                    f"high, {self.unit}": c.median.high / self.divisor,
                    "kind": c.median.kind,
                    "attachments": c.median.independent,
                }
                for line in self.lines
                for x, c in zip(line.levels, line.cells, strict=True)
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        lines = [
            {
                "levels": dict(line.key),
                self.along: line.levels,
                "medians": [c.median for c in line.cells],
            }
            for line in self.lines
        ]
        data: dict[str, Json] = plain(
            {"metric": self.metric, "along": self.along, "lines": lines, "says": self.says}
        )
        return data

    def figure(self) -> Figure:
        """One panel for each level of `panel`."""
        from fsmatrix.analysis.draw import drawing

        panels = list(dict.fromkeys(_only(line.key, self.panel) for line in self.lines))
        notes = ["Medians over attachments with their intervals."]
        notes += drawing.hollow(c.median for line in self.lines for c in line.cells)
        figure, axes = drawing.frame(
            1,
            len(panels),
            title="",
            notes=[*notes, *self.remarks, *self.of.remarks],
            width=3.0 if len(panels) > 2 else 3.6,
            height=2.9,
        )
        figure.suptitle(
            f"{self.title} over {units.factor_title(self.along)}", x=0.01, ha="left", fontsize=11
        )
        names = list(dict.fromkeys(_without(line.key, self.panel) for line in self.lines))
        for ax, panel in zip(axes[0], panels, strict=True):
            for line in self.lines:
                if _only(line.key, self.panel) == panel:
                    self._line(ax, line, names.index(_without(line.key, self.panel)))
            ax.set_title(described(panel), fontsize=8)
            ax.set_xlabel(units.factor_title(self.along), fontsize=8)
            ax.set_ylim(bottom=0)
        axes[0][0].set_ylabel(self.unit, fontsize=8)
        drawing.legend(figure, axes)
        return figure

    def _line(self, ax: Axes, line: CurveLine, index: int) -> None:
        from fsmatrix.analysis.draw import drawing

        drawing.line(
            ax,
            line.levels,
            [cell.median for cell in line.cells],
            self.divisor,
            index,
            label=described(_without(line.key, self.panel)) or None,
            dashes=("-", "--", ":")[index // MOST_LINES % 3],
        )
        if units.is_size(self.along):
            ax.set_xscale("log", base=2)
        texts = [units.level_text(self.along, x) for x in line.levels]
        ax.set_xticks(line.levels, texts, rotation=45 if units.is_size(self.along) else 0)


def curves(
    ds: xr.Dataset,
    metric: str,
    along: Sequence[str],
    *,
    panel: Sequence[str] = (),
    title: str = "",
    unit: tuple[str, float] | None = None,
    where: Mapping[str, Level] | None = None,
) -> Curves:
    """Lines over the first factor of `along` that varies; `unit` is (label, SI value of it).

    ValueError without such a factor, and where a line would have several cells at one level.
    """
    of = study(ds, metric, where)
    there = [name for name in along if len(numbers(of.valued, name)) > 0]
    varied = [name for name in there if len(set(numbers(of.valued, name))) > 1]
    if not there:
        raise ValueError(f"no factor {' or '.join(along)} in this campaign")
    factor = (varied or there)[0]
    drawn_lines = lines(of.valued, factor)
    shown = unit or _unit(ds, of)
    apart = tuple(n for n in panel if len({dict(line.key).get(n, "") for line in drawn_lines}) > 1)
    return Curves(metric, title or of.metric.title, *shown, factor, apart, tuple(drawn_lines), of)


def numbers(cells: Sequence[Values], name: str) -> list[float]:
    """The numeric levels that cells have of a factor."""
    levels = [cell.cell.levels.get(name, "") for cell in cells]
    return [float(v) for v in levels if not isinstance(v, str) and math.isfinite(v)]


def lines(cells: Sequence[Values], along: str) -> list[CurveLine]:
    """Cells that agree in all but `along`, sorted by it."""
    cells = [cell for cell in cells if numbers([cell], along)]
    apart = varying_beside([cell.cell.levels for cell in cells], [along])
    apart = [n for i, n in enumerate(apart) if not any(_same(cells, n, o) for o in apart[:i])]
    groups: dict[Key, list[Values]] = {}
    for cell in cells:
        groups.setdefault(tuple((n, cell.cell.levels[n]) for n in apart), []).append(cell)
    curve_lines = []
    for key in sorted(groups, key=repr):
        ordered = sorted(groups[key], key=lambda c: numbers([c], along)[0])
        levels = tuple(numbers([c], along)[0] for c in ordered)
        if any(same(a, b) for a, b in itertools.pairwise(levels)):
            raise ValueError(f"several cells of one {along} in {described(key) or 'all'}")
        curve_lines.append(CurveLine(key, levels, tuple(ordered)))
    return curve_lines


def described(key: Key) -> str:
    """A key in words."""
    return ", ".join(units.labelled(name, level) for name, level in key if level != "")


def _without(key: Key, names: Sequence[str]) -> Key:
    return tuple(pair for pair in key if pair[0] not in names)


def _only(key: Key, names: Sequence[str]) -> Key:
    return tuple(pair for pair in key if pair[0] in names)


def _same(cells: Sequence[Values], name: str, owner: str) -> bool:
    """Whether two factors change together."""
    levels = [cell.cell.levels for cell in cells]
    return follows_in(levels, name, owner) and follows_in(levels, owner, name)


def _unit(ds: xr.Dataset, of: Study) -> tuple[str, float]:
    shown = of.fitting()
    label = shown.label or str(ds[of.metric.name].attrs.get("units", "") or "1")
    return label, shown.divisor


@dataclass(frozen=True)
class Point:
    """One cell of the comparison at one level; `key`: what else tells cells apart."""

    key: Key
    level: float
    cell: Compared


@dataclass(frozen=True)
class Speedup:
    """The ratio of two levels over a factor `along`; above 1, `of` has the better number."""

    comparison: Comparison
    along: str
    points: tuple[Point, ...]  # by key, then by level

    @property
    def of(self) -> str:
        """The level whose speed-up it is."""
        return self.comparison.a

    @property
    def over(self) -> str:
        """The level that it is compared with."""
        return self.comparison.b

    def times(self, cell: Compared) -> tuple[float, float, float]:
        """Speed-up and its interval: the ratio of rates; of times it is turned round."""
        r = cell.ratio
        if self.comparison.metric.more_is_better:
            return r.ratio, r.low, r.high
        return 1 / r.ratio, 1 / r.high, 1 / r.low

    @property
    def says(self) -> list[str]:
        """The speed-up at each level, then what stands beside the comparison."""
        return [self._sentence(point) for point in self.points] + list(self.comparison.remarks)

    def _sentence(self, point: Point) -> str:
        value, low, high = self.times(point.cell)
        where = f"{described(point.key)}, " if point.key else ""
        ratio = point.cell.ratio
        sure = (
            f" ({100 * ratio.level:.3g} % sure: {brief(low)} to {brief(high)})"
            if ratio.decides
            else ""
        )
        doubts = f" (in doubt: {'; '.join(point.cell.doubts)})" if point.cell.doubts else ""
        return (
            f"{where}{self._level(point.level)}: {self.of} is {brief(value)} times as fast as "
            f"{self.over}{sure}: {self.comparison.word(point.cell.kind)}{doubts}."
        )

    def _level(self, level: float) -> str:
        return f"{units.factor_title(self.along)} {units.level_text(self.along, level)}"

    def table(self) -> pd.DataFrame:
        """One row per level and whatever else tells cells apart."""
        import pandas as pd

        rows = []
        for point in self.points:
            value, low, high = self.times(point.cell)
            rows.append(
                {
                    **dict(point.key),
                    self.along: point.level,
                    "speed-up": value,
                    "low": low,
                    "high": high,
                    "verdict": self.comparison.word(point.cell.kind),
                }
            )
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        data: dict[str, Json] = plain(
            {
                "of": self.of,
                "over": self.over,
                "by": self.comparison.by,
                "along": self.along,
                "metric": self.comparison.metric.name,
                "says": self.says,
                "points": [
                    {
                        "levels": dict(p.key),
                        self.along: p.level,
                        **dict(zip(("speedup", "low", "high"), self.times(p.cell), strict=True)),
                        "verdict": p.cell.kind,
                    }
                    for p in self.points
                ],
            }
        )
        return data

    def figure(self) -> Figure:
        """A line for each key, whiskers where there is an interval."""
        from fsmatrix.analysis.draw import drawing

        notes = ["Ratio of medians; whiskers: 95 % sure. Hollow: too few blocks to prove anything."]
        figure, ax = drawing.panel(
            title=f"{self.of} over {self.over}, {self.comparison.metric.title.lower()}",
            notes=[*notes, *self.comparison.remarks],
            width=4.5,
        )
        for i, key in enumerate(dict.fromkeys(point.key for point in self.points)):
            points = [(p, *self.times(p.cell)) for p in self.points if p.key == key]
            shade, sure = drawing.colour(i), all(p.cell.ratio.decides for p, *_ in points)
            for point, _, low, high in points:
                if point.cell.ratio.decides:
                    ax.plot([point.level] * 2, [low, high], color=shade)
            ax.plot(
                [p.level for p, *_ in points],
                [value for _, value, *_ in points],
                color=shade,
                marker=drawing.MARKERS[i % 8],
                label=described(key) or None,
                markerfacecolor=shade if sure else "white",
            )
        levels = sorted({point.level for point in self.points})
        if units.is_size(self.along):
            ax.set_xscale("log")
        ax.set_xticks(levels, [units.level_text(self.along, level) for level in levels])
        ax.set_xticks([], minor=True)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(units.factor_title(self.along), fontsize=8)
        ax.set_ylabel("speed-up", fontsize=8)
        drawing.legend(figure, [[ax]])
        return figure


def speedup(
    ds: xr.Dataset,
    of: str,
    over: str,
    metric: str = "bandwidth",
    *,
    along: Sequence[str],
    by: str = "target",
    options: ComparisonOptions = DEFAULTS,
) -> Speedup:
    """The ratio of `of` over `over` (levels of `by`) at each level of the first factor of `along`.

    ValueError as in compare.comparisons, and without such a factor in the cells that both have.
    """
    comparison = compare(ds, of, over, metric, by=by, options=options)
    names = {name for cell in comparison.cells for name in cell.levels}
    factor = next((name for name in along if name in names), "")
    levels = {cell.levels.get(factor, "") for cell in comparison.cells}
    if not factor or any(isinstance(level, str) for level in levels):
        numeric = "; its levels must be numbers" if factor else ""
        raise ValueError(f"no factor {' or '.join(along)} that both have{numeric}")
    apart = [
        name
        for name in sorted(names - {factor})
        if len({repr(cell.levels.get(name, "")) for cell in comparison.cells}) > 1
    ]
    points = [
        Point(tuple((n, cell.levels.get(n, "")) for n in apart), float(cell.levels[factor]), cell)
        for cell in comparison.cells
    ]
    points.sort(key=lambda point: (repr(point.key), point.level))
    return Speedup(comparison, factor, tuple(points))
