"""How often one level is another, over a third factor: the speed-up under less memory.

The ratios are those of a comparison (compare.py), with its rules on what belongs together; here
they are put in the order of one numeric factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.compare import DEFAULTS, compare
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import ComparisonOptions
from fsmatrix.analysis.data.roles import Key
from fsmatrix.analysis.questions.curves import described
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.units import brief
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


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
