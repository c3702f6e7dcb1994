"""Which factor goes where in a chart or table of medians: chosen from what varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.cluster import Cluster
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.units import METRICS, Level, Metric, labelled, metric_of

# never mixed in one chart or table; what goes past the page cache may also move whole blocks
APART = ("workload", "engine", "cache", "direct", "device_state")
COLUMNS = ("pattern", "rw", "phase")  # rw: fio's word for a pattern
X_NAMES = ("chunk", "chunk_size", "bs", "transfer_size", "block_size", "size")
ROW_NAMES = ("processes_per_node", "processes")
STEEP = 8.0  # a factor that changes medians more than this would flatten its neighbours
MOST_ROWS = 6


@dataclass(frozen=True)
class Layout:
    """Roles of the factors of one group of cells; the target is always the colour."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    x: str  # empty: one bar per target
    logarithmic: bool

    @property
    def factors(self) -> tuple[str, ...]:
        """All factors with a role, in the order in which a reader looks for them."""
        return (*self.columns, *self.rows, *((self.x,) if self.x else ()))


@dataclass(frozen=True)
class CellGroup:
    """Cells that may stand in one chart."""

    conditions: tuple[tuple[str, Level], ...]  # what they share and other groups do not
    cells: tuple[Cell, ...]
    layout: Layout
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def title(self) -> str:
        """The conditions in words; empty if there is one group only."""
        return ", ".join(
            f"workload {level}" if name == "workload" else labelled(name, level)
            for name, level in self.conditions
        )

    def metric(self, name: str) -> Metric:
        """A metric as readers of these cells know it."""
        return metric_of(name, (cell.levels for cell in self.cells))


def groups(summary: Summary) -> list[CellGroup]:
    """Cells apart by what is never mixed, each with its layout."""
    apart = [name for name in APART if name in summary.varying]
    members: dict[tuple[Level, ...], list[Cell]] = defaultdict(list)
    for cell in summary.cells:
        members[tuple(same(cell.levels[name]) for name in apart)].append(cell)
    rest = [name for name in summary.varying if name not in apart and name != "target"]
    return [
        CellGroup(
            tuple((name, level) for name, level in zip(apart, key, strict=True) if level != ""),
            tuple(cells),
            choose(cells, rest),
            summary.cluster,
        )
        for key, cells in members.items()
    ]


def same(level: Level) -> Level:
    """A level that equals itself: NaN, of cells without that factor, is no key."""
    return level if level == level else ""


def choose(cells: Sequence[Cell], factors: Iterable[str]) -> Layout:
    """Roles for those of `factors` that vary within `cells`.

    Pattern and phase: columns; chunk size: x; processes: rows; the rest joins the rows.  If
    the factor on x changes the medians so much that small bars would vanish beside large
    ones, it changes places with the rows; if it has too many levels for that, the axis is
    logarithmic.
    """
    varying = [name for name in factors if len(levels(cells, name)) > 1]
    columns = [name for name in COLUMNS if name in varying]
    if "phase" in columns and any(_implied(cells, name, "phase") for name in columns[:-1]):
        columns.remove("phase")
    rest = [name for name in varying if name not in COLUMNS]
    x = next((name for name in (*X_NAMES, *ROW_NAMES) if name in rest), rest[0] if rest else "")
    rows = [name for name in rest if name != x]
    rows.sort(key=lambda name: name not in ROW_NAMES)
    if not x or steepness(cells, x, factors) <= STEEP:
        return Layout(tuple(columns), tuple(rows), x, False)
    gentle = [name for name in rows if steepness(cells, name, factors) <= STEEP]
    if len(levels(cells, x)) > MOST_ROWS or (rows and not gentle):
        return Layout(tuple(columns), tuple(rows), x, True)
    other = gentle[0] if gentle else ""
    return Layout(tuple(columns), (x, *(n for n in rows if n != other)), other, False)


def levels(cells: Iterable[Cell], factor: str) -> list[Level]:
    """Levels of a factor in the order of the cells' sorting: missing, numbers, texts."""
    by_text: dict[str, Level] = {repr(cell.levels[factor]): cell.levels[factor] for cell in cells}
    return sorted(
        by_text.values(),
        key=lambda v: (1, 0.0, v) if isinstance(v, str) else (0, v if v == v else -np.inf, ""),
    )


def steepness(cells: Iterable[Cell], factor: str, factors: Iterable[str]) -> float:
    """How much a factor changes medians: largest / smallest over its levels.

    The median over all combinations of the other factors, the largest over the metrics.
    """
    others = [name for name in (*factors, "target") if name != factor]
    members: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        members[tuple(repr(cell.levels[name]) for name in others)].append(cell)
    worst = 1.0
    for metric in METRICS:
        ratios = []
        for group in members.values():
            values = [cell.metrics[metric].median for cell in group]
            positive = [value for value in values if value > 0]
            if len(positive) > 1:
                ratios.append(max(positive) / min(positive))
        worst = max([worst, float(np.median(ratios))] if ratios else [worst])
    return worst


def _implied(cells: Iterable[Cell], owner: str, owned: str) -> bool:
    pairs = {(repr(c.levels[owner]), repr(c.levels[owned])) for c in cells}
    return len(pairs) == len({pair[0] for pair in pairs})
