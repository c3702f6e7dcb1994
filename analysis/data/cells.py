"""One cell of a campaign: a combination of levels, a phase and a target, with its values."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.analysis.data.columns import Codes, Mask, coded, combined
from fsmatrix.analysis.data.load import Rows
from fsmatrix.analysis.data.own_iterations import OwnSummary
from fsmatrix.analysis.data.roles import ROLES
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_cells, per_group, split
from fsmatrix.analysis.units import METRICS, Level


@dataclass(frozen=True)
class Cell:
    """One combination of levels, one phase, one target."""

    levels: Mapping[str, Level]  # factor -> level; with target, engine and phase
    runs: int  # that the medians are of: ok and not invalid
    attachments: int
    failed: int  # runs of this combination that failed or timed out
    invalid: int  # runs left out because a finding says that they are invalid
    worst_finding: str
    findings: tuple[str, ...]  # audits, by name
    metrics: Measured  # of the same rows as `runs`
    invalid_by: tuple[str, ...] = ()  # audits that say so, by name
    doubts: tuple[str, ...] = ()  # audits that warn of runs that the medians are of, by name
    own: OwnSummary | None = None  # what the engine says of its iterations in these runs

    def values(self, metric: str) -> Values:
        """Its values of one metric."""
        return Values(self, self.metrics[metric], *self.metrics.values_of(metric))

    @property
    def rows(self) -> Codes:
        """The rows of the campaign that the medians are of."""
        return self.metrics.counted.rows[self.metrics.group]

    @property
    def target(self) -> str:
        """Name of the target."""
        return str(self.levels.get("target", ""))

    @property
    def notes(self) -> str:
        """What a reader must know: failed and invalid runs, findings."""
        parts = [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.invalid} invalid"] if self.invalid else []
        named = self.invalid_by or self.findings
        parts += [f"{self.worst_finding}: {', '.join(named)}"] if named else []
        return "; ".join(parts)


OfAttachments = tuple[Floats, tuple[str, ...], tuple[int, ...]]  # values, names, blocks


@dataclass(frozen=True)
class Values:
    """A cell's values of one metric, SI units: the median of each attachment."""

    cell: Cell
    median: Median
    values: Floats  # [attachment]
    attachments: tuple[str, ...]
    blocks: tuple[int, ...]  # the block of each attachment

    def level(self, name: str) -> Level:
        """The level of a role or a factor; "" if it has none."""
        for factor in ROLES.get(name, (name,)):
            level = self.cell.levels.get(factor, "")
            if level != "" and level == level:
                return level
        return ""

    def number(self, role: str) -> float:
        """The level of a numeric role; NaN if it has none."""
        level = self.level(role)
        return float("nan") if isinstance(level, str) else float(level)


class Counted:
    """The rows of a campaign that count: what each cell has of a metric, taken when it is asked.

    `rows` [row]: the row's number in the campaign; `group` [row]: the number of its cell, of
    `size`; `used` [row]: whether it counts.
    """

    def __init__(self, data: Rows, rows: Codes, group: Codes, used: Mask, size: int) -> None:
        self._data, self._rows, self._used, self._size = data, rows, used, size
        cell = group[used]
        self._names, owner = coded(data["attachment"])
        self._blocks = np.zeros(len(self._names), dtype=np.int64)
        self._blocks[owner] = data["block"]
        first, self._pair = combined([owner[used], cell], cell.size)
        self._cell, self._owner = cell[first], owner[used][first]  # of each attachment in a cell
        self.runs, self.attachments = (
            np.bincount(where, minlength=size).tolist() for where in (cell, self._cell)
        )
        self._medians: dict[str, list[Median]] = {}
        self._values: dict[str, list[OfAttachments]] = {}

    @functools.cached_property
    def rows(self) -> list[Codes]:
        """The rows of the campaign that each cell's medians are of."""
        return split(self._rows[self._used], self._cell[self._pair], self._size)

    def medians(self, metric: str) -> list[Median]:
        """`medians.of_runs` of each cell."""
        if metric not in self._medians:
            values = values_of(self._data, metric)[self._used]
            self._medians[metric] = of_cells(values, self._pair, self._cell, self._size)
        return self._medians[metric]

    def values(self, metric: str) -> list[OfAttachments]:
        """What each cell's median is of."""
        if metric not in self._values:
            values = values_of(self._data, metric)[self._used]
            kept, middle = per_group(np.where(np.isfinite(values), values, np.nan), self._pair)
            places = split(np.arange(kept.size), self._cell[kept], self._size)
            owners = self._owner[kept]
            self._values[metric] = [
                (
                    middle[place],
                    tuple(str(self._names[owner]) for owner in owners[place]),
                    tuple(self._blocks[owners[place]].tolist()),
                )
                for place in places
            ]
        return self._values[metric]


@dataclass(frozen=True, repr=False)
class Measured(Mapping[str, Median]):
    """Metric -> median of one cell; of any variable of runs, those of METRICS are listed."""

    counted: Counted
    group: int

    def __getitem__(self, metric: str) -> Median:
        return self.counted.medians(metric)[self.group]

    def __iter__(self) -> Iterator[str]:
        return iter(METRICS)

    def __len__(self) -> int:
        return len(METRICS)

    def __repr__(self) -> str:
        return repr(dict(self))

    def values_of(self, metric: str) -> OfAttachments:
        """The values that the median is of."""
        return self.counted.values(metric)[self.group]


def values_of(part: Rows, metric: str) -> Floats:
    """A metric's values; a phase that moved no bytes has no bandwidth."""
    if metric not in part.columns:
        return np.full(len(part), np.nan)
    values = part[metric].astype(np.float64)
    if metric == "bandwidth" and "bytes" in part.columns:
        values = np.where(part["bytes"] == 0, np.nan, values)
    return values


def sort_key(cell: Cell, varying: Sequence[str]) -> tuple[tuple[int, float, str], ...]:
    """Order of cells by these factors: missing levels, then numbers, then texts."""
    key = []
    for name in varying:
        level = cell.levels[name]
        if isinstance(level, str):
            key.append((2 if level else 0, 0.0, level))
        else:
            key.append((1, level, "") if level == level else (0, 0.0, ""))
    return tuple(key)
