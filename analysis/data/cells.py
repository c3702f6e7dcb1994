"""One cell of a campaign: a combination of levels, a phase and a target, with its values.

Beside them what IOR and mdtest say of their own iterations, as medians over the runs of a cell.
Both take the rate of each iteration and print the largest, the smallest, the mean and the
standard deviation of these rates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import Array, Codes, Mask, coded, combined
from fsmatrix.analysis.data.factors import ROLES
from fsmatrix.analysis.data.load import Rows
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_cells, per_group, split
from fsmatrix.analysis.units import METRICS, Level, own_metric
from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json

COUNT = iterations.OWN + "iterations"


@dataclass(frozen=True)
class OwnSummary:
    """What the engine says of the iterations in the runs of a cell: medians over the runs."""

    engine: str
    metric: str  # bandwidth or iops
    runs: int
    iterations: float  # of one run
    maximum: float  # SI units, as the following
    minimum: float
    mean: float
    stddev: float
    counted: float  # operations that its rates count / those that were done; NaN if not known
    rows: Codes  # along `run`

    def to_dict(self) -> dict[str, Json]:
        """The numbers."""
        return {name: value for name, value in vars(self).items() if name != "rows"}


def own_of_cells(ds: xr.Dataset, kept: Codes, group_of: Codes) -> dict[int, OwnSummary]:
    """Group -> what its engine says of the iterations of its rows `kept`, [row along `run`].

    Only of groups in which a run has several; nothing of files of before.
    """
    if COUNT not in ds:
        return {}
    several = ds[COUNT].values[kept] > 1
    rows, group = kept[several], group_of[several]
    if not rows.size:
        return {}
    names = ("engine", "phase", *iterations.OWN_VARIABLES)
    values = {name: ds[name].values[rows] for name in names} | {"counted": _counted(ds, rows)}
    order = np.argsort(group, kind="stable")
    summaries = {}
    for places in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        own = _summary({name: column[places] for name, column in values.items()}, rows[places])
        if own is not None:
            summaries[int(group[places[0]])] = own
    return summaries


def _summary(values: Mapping[str, Array], rows: Codes) -> OwnSummary | None:
    engine = str(values["engine"][0])
    metric = own_metric(engine, str(values["phase"][0]))
    median = {
        name: float(np.median(values[name])) for name in (*iterations.OWN_VARIABLES, "counted")
    }
    rates = {
        field: median[f"{iterations.OWN}{metric}_{name}"]
        for field, name in (
            ("maximum", "max"),
            ("minimum", "min"),
            ("mean", "mean"),
            ("stddev", "stddev"),
        )
    }
    if np.isnan(list(rates.values())).any():
        return None
    return OwnSummary(
        engine=engine,
        metric=metric,
        runs=rows.size,
        iterations=median[COUNT],
        counted=median["counted"] if metric == "iops" else np.nan,
        rows=rows,
        **rates,
    )


def _counted(ds: xr.Dataset, rows: Codes) -> Array:
    """Operations that the printed rates count / those that were done, of each row; NaN: unknown."""
    printed, seconds, done = (
        ds[iterations.PREFIX + name].values for name in ("iops", "seconds", "operations")
    )
    shares = []
    for place in places_of(ds, rows):
        all_done = done[place].sum()
        counted = (printed[place] * seconds[place]).sum()
        shares.append(counted / all_done if all_done else np.nan)
    return np.array(shares)


def places_of(ds: xr.Dataset, rows: Codes) -> list[slice]:
    """The iterations of each of these rows along `run`, along `iteration`."""
    first, size = (ds[f"iteration_{part}"].values[rows].tolist() for part in ("first", "size"))
    return [slice(start, start + many) for start, many in zip(first, size, strict=True)]


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
    def open_loop(self) -> bool:
        """Whether its rate was given, so that it has no throughput that could be compared."""
        return not self.metrics["iops"].runs and bool(self.metrics["offered_rate"].runs)

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
