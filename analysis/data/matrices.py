"""The matrix of a campaign: one metric over all factors that vary, as an N-dimensional array.

A cell is a combination of levels.  Its value is the median of the medians of its attachments
(mountings of a target), since runs inside one attachment are not independent.  Runs count as
they do in summary.py: of the newest attempt, ok, without a finding that makes them invalid, not
of a reference target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from fsmatrix.analysis.data.cells import values_of
from fsmatrix.analysis.data.columns import (
    Array,
    Codes,
    Level,
    Mask,
    Places,
    coded,
    combined,
    is_text,
)
from fsmatrix.analysis.data.factors import roles
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.summary import NOT_FACTORS, Excluded
from fsmatrix.analysis.units import (
    METRICS,
    UNITS,
    Metric,
    Quantity,
    Unit,
    is_size,
    level_text,
    more_is_better,
)

COMPANIONS = ("runs", "attachments", "attachment", "run", "attachment_id", "block")

Statistic = Literal["median", "mean", "min", "max"]
By = Literal["cell", "attachment", "run"]
SI: dict[Quantity, str] = {
    "bandwidth": "B s-1",
    "rate": "s-1",
    "transactions": "s-1",
    "events": "s-1",
    "time": "s",
}
DECIMAL: dict[Quantity, tuple[Unit, ...]] = {  # beside those that units.py chooses from
    "bandwidth": (
        Unit("B/s", 1.0), Unit("kB/s", 1e3), Unit("MB/s", 1e6), Unit("GB/s", 1e9),
        Unit("Mb/s", 1e6 / 8), Unit("Gb/s", 1e9 / 8),
    ),
    "rate": (Unit("1/s", 1.0), Unit("1/min", 1 / 60)),
    "time": (Unit("us", 1e-6),),
}  # fmt: skip
MOST_CELLS = 20_000_000  # 160 MB for one array


@dataclass(frozen=True)
class Axis:
    """One dimension."""

    name: str
    levels: list[Level]
    codes: Places  # [row]; -1 where a row has no place along it


def factor_columns(ds: xr.Dataset, factors: Mapping[str, str]) -> dict[str, Axis]:
    """Every factor (with its variable), and engine and phase, coded over all rows of a campaign."""
    names = {name: column for name, column in factors.items() if name not in NOT_FACTORS}
    names |= {name: name for name in ("engine", "phase") if name in ds.variables}
    axes = {}
    for name, column in names.items():
        levels, codes = coded(ds.variables[column].values)
        axes[name] = Axis(name, levels, codes.astype(np.int32))
    return axes


def dimension(factor: str) -> str:
    """The name of a factor's dimension: its own, unless a companion has that."""
    return f"factor_{factor}" if factor in COMPANIONS else factor


def axes_of(
    columns: Mapping[str, Axis], kept: Mask, timed: Mask, dims: Sequence[str] | None
) -> list[Axis]:
    """The dimensions: `dims`, or else what varies, the target last.

    What varies is found among the different combinations of levels (factors.roles), so that a
    factor that follows another one is no dimension, nor is a phase that follows a factor (the
    pattern).  Engine and cache state stay dimensions even if each target has its own, so that
    nobody compares across them unaware.
    """
    use = np.flatnonzero(kept)
    first = use[combined([axis.codes[use] for axis in columns.values()], use.size)[0]]
    if dims is not None:
        unknown = [name for name in dims if name not in columns]
        if unknown:
            raise ValueError(f"no factor {unknown[0]!r}: there are {', '.join(sorted(columns))}")
        return [pruned(columns[name], first) for name in dict.fromkeys(dims)]
    few = {name: np.array(axis.levels)[axis.codes[first]] for name, axis in columns.items()}
    axes = [pruned(columns[name], first) for name in roles(few, timed[first])[0]]
    axes = [axis for axis in axes if axis.name != "target" or len(axis.levels) > 1]
    free = [axis for axis in axes if axis.name not in ("phase", "target", "engine", "cache")]
    phase = next((axis for axis in axes if axis.name == "phase"), None)
    if phase and any(along(phase, axis, first) is not None for axis in free):
        axes.remove(phase)
    return axes


def pruned(axis: Axis, among: npt.NDArray[np.int64]) -> Axis:
    """Only the levels that these rows have; a run without a phase has no place on that axis."""
    used = np.unique(axis.codes[among])
    if axis.name == "phase":
        used = np.array([code for code in used if axis.levels[code] != ""], dtype=np.int64)
    place = np.full(len(axis.levels), -1, dtype=np.int64)
    place[used] = np.arange(used.size)
    return Axis(axis.name, [axis.levels[code] for code in used], place[axis.codes])


def coordinates_of(axes: Sequence[Axis], columns: Mapping[str, Axis], kept: Mask) -> dict[str, Any]:
    """Levels of the dimensions; of factors that follow one; of factors with one level."""
    result: dict[str, Any] = {}
    for axis in axes:
        unit = {"units": "B"} if is_size(axis.name) else {}
        result[dimension(axis.name)] = (dimension(axis.name), np.array(axis.levels), unit)
    use = np.flatnonzero(kept)
    use = use[combined([axis.codes[use] for axis in columns.values()], use.size)[0]]
    for name in sorted(set(columns) - {axis.name for axis in axes}):
        axis = pruned(columns[name], use)
        if len(axis.levels) == 1:
            result[dimension(name)] = axis.levels[0]
            continue
        for owner in sorted(axes, key=lambda owner: owner.name == "target", reverse=True):
            levels = along(axis, owner, use)
            if levels is not None:
                result[dimension(name)] = (dimension(owner.name), levels)
                break
    return result


def along(axis: Axis, owner: Axis, among: npt.NDArray[np.int64]) -> Array | None:
    """The level for each level of its owner, among these rows; None if one has several.

    A level of the owner without any has "" or NaN.
    """
    use = among[(axis.codes[among] >= 0) & (owner.codes[among] >= 0)]
    code = np.full(len(owner.levels), len(axis.levels), dtype=np.int64)
    code[owner.codes[use]] = axis.codes[use]
    if (axis.codes[use] != code[owner.codes[use]]).any():
        return None
    textual = any(isinstance(level, str) for level in axis.levels)
    if not textual and (code < len(axis.levels)).all():
        return np.array(axis.levels)[code]
    return np.array([*axis.levels, "" if textual else np.nan])[code]


@dataclass(frozen=True)
class Chosen:
    """The rows that count, and their places."""

    rows: npt.NDArray[np.int64]  # [value] row of the campaign
    cells: Codes  # [value] flat number of the cell
    attachments: Codes  # [value]
    values: npt.NDArray[np.float64]  # [value] in display units


def matrix(
    ds: xr.Dataset,
    metric: str,
    *,
    unit: str | None = None,
    statistic: Statistic = "median",
    dims: Sequence[str] | None = None,
    by: By = "cell",
    include: Collection[Excluded] = (),
) -> xr.DataArray:
    """A metric as an array with one dimension for each factor that varies.

    `dims`: the dimensions in this order, instead of all factors, phase and engine that vary
    and the target.  `unit`: a display unit (Mb/s, GiB/s, ms, ...) instead of the SI unit.
    `statistic` is taken within each attachment, then over attachments.  `by`: "attachment" or
    "run" keep a last dimension of attachments (their medians) or runs, in the order of blocks,
    with `attachment_id` and `block` beside each; where a cell has fewer there is NaN.
    `include` as for `summary.summarise`.

    Coordinates `runs` and `attachments` count what each cell is made of; factors of one level
    are coordinates without a dimension, factors that follow another one lie along it.  Cells
    without a value are NaN.  ValueError for an unknown name or unit, no runs, or a factor,
    engine or cache state that varies inside a cell.
    """
    if statistic not in get_args(Statistic):
        raise ValueError(f"statistic {statistic!r}: one of {', '.join(get_args(Statistic))}")
    if by not in get_args(By):
        raise ValueError(f"by {by!r}: one of {', '.join(get_args(By))}")
    data = rows(ds)
    shown = unit_of(ds, metric, unit)
    columns = factor_columns(ds, data.factors)
    kept = data.current & (~data.reference | ("reference" in include))
    counting = kept & ~data.failed & data.timed & (~data.invalid | ("invalid" in include))
    axes = axes_of(columns, kept, data.timed, dims)
    shape = _shape(axes)
    chosen = _chosen(data, metric, axes, counting, shown.divisor)
    _refuse_mixing(chosen, columns, [axis.name for axis in axes])
    names = [dimension(axis.name) for axis in axes]
    coordinates = coordinates_of(axes, columns, kept)
    runs, attachments, reduced = _reduced(chosen, statistic, math.prod(shape))
    coordinates |= {
        "runs": (names, runs.reshape(shape)),
        "attachments": (names, attachments.reshape(shape)),
    }
    attributes = {
        "units": shown.label,
        "long_name": _title(ds, metric),
        "statistic": _statistic_text(statistic, by),
        "invalid_rows": int((data.invalid & kept).sum()),
        "failed_rows": int((kept & data.failed).sum()),
    }
    if by == "cell":
        return xr.DataArray(reduced.reshape(shape), coordinates, names, metric, attributes)
    values, companions = _ragged(data, chosen, by, statistic, shape)
    coordinates |= {name: ([*names, by], array) for name, array in companions.items()}
    return xr.DataArray(values, coordinates, [*names, by], metric, attributes)


def unit_of(ds: xr.Dataset, metric: str, unit: str | None) -> Unit:
    """The unit to show a metric in; ValueError for an unknown metric or unit."""
    numbers = [
        str(name)
        for name, variable in ds.variables.items()
        if variable.dims == ("run",) and not is_text(variable)
    ]
    if metric not in numbers:
        metrics = ", ".join(name for name in METRICS if name in numbers)
        raise ValueError(f"no metric {metric!r} in this campaign: it has {metrics}, ...")
    stored = str(ds[metric].attrs.get("units", "1"))
    if unit is None or unit == stored:
        return Unit(stored, 1.0)
    quantities = [quantity for quantity, label in SI.items() if label == stored]
    choices = [choice for quantity in quantities for _, choice in UNITS[quantity]]
    choices += [choice for quantity in quantities for choice in DECIMAL.get(quantity, ())]
    for choice in choices:
        if unit == choice.label:
            return choice
    allowed = ", ".join(choice.label for choice in choices) or "none"
    raise ValueError(f"{metric} cannot be shown in {unit!r}: possible are {allowed}")


def metric_in(ds: xr.Dataset, name: str) -> Metric:
    """A known metric, or any variable of runs, with its quantity by its unit; ValueError if none.

    What is no rate and no time is a `number`.
    """
    unit_of(ds, name, None)
    if name in METRICS:
        return METRICS[name]
    stored = str(ds[name].attrs.get("units", ""))
    quantities: list[Quantity] = [q for q, label in SI.items() if label == stored]
    quantity = quantities[0] if quantities else "number"
    return Metric(name, _title(ds, name), quantity, more_is_better(name) and quantity != "time")


def _shape(axes: Sequence[Axis]) -> tuple[int, ...]:
    shape = tuple(len(axis.levels) for axis in axes)
    if math.prod(shape) > MOST_CELLS:
        sizes = ", ".join(f"{axis.name} {len(axis.levels)}" for axis in axes)
        raise ValueError(
            f"{math.prod(shape)} cells ({sizes}) are too many: select levels first, or name `dims`"
        )
    return shape


def _chosen(
    data: Rows, metric: str, axes: Sequence[Axis], counting: Mask, divisor: float
) -> Chosen:
    values = values_of(data, metric)
    there = np.flatnonzero(counting & ~np.isnan(values))
    cells = np.zeros(there.size, dtype=np.int64)
    for axis in axes:
        cells = cells * len(axis.levels) + axis.codes[there]
    attachments = np.asarray(pd.factorize(data["attachment"][there])[0], dtype=np.int64)
    return Chosen(there, cells, attachments, values[there] / divisor)


def _refuse_mixing(chosen: Chosen, columns: Mapping[str, Axis], dims: Iterable[str]) -> None:
    """ValueError if a cell holds several levels of a column that is no dimension."""
    if not chosen.rows.size:
        return
    first = np.empty(int(chosen.cells.max()) + 1, dtype=np.int64)
    first[chosen.cells[::-1]] = chosen.rows[::-1]
    for name in set(columns) - set(dims):
        codes = columns[name].codes
        other = np.flatnonzero(codes[chosen.rows] != codes[first[chosen.cells]])
        if other.size:
            row = int(chosen.rows[other[0]])
            pair = (codes[first[chosen.cells[other[0]]]], codes[row])
            levels = " and ".join(level_text(name, columns[name].levels[code]) for code in pair)
            raise ValueError(
                f"a cell would mix {name} {levels}: make {name} a dimension, or select one first"
            )


def _reduced(
    chosen: Chosen, statistic: Statistic, cells: int
) -> tuple[Codes, Codes, npt.NDArray[np.float64]]:
    """(runs, attachments, value) of every cell, each of shape [cell]."""
    medians = _per_attachment(chosen, statistic)
    owner = medians.index.get_level_values("cell")
    values = np.full(cells, np.nan)
    grouped = medians.groupby(owner).agg(statistic)
    values[grouped.index.to_numpy(dtype=np.int64)] = grouped.to_numpy()
    runs = np.bincount(chosen.cells, minlength=cells)
    return runs, np.bincount(owner.to_numpy(dtype=np.int64), minlength=cells), values


def _per_attachment(chosen: Chosen, statistic: Statistic) -> pd.Series[float]:
    """The statistic of each (cell, attachment)."""
    frame = pd.DataFrame(
        {"cell": chosen.cells, "attachment": chosen.attachments, "value": chosen.values}
    )
    return frame.groupby(["cell", "attachment"], sort=False)["value"].agg(statistic)


def _ragged(
    data: Rows, chosen: Chosen, by: By, statistic: Statistic, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float64], dict[str, Array]]:
    """Values with a last dimension of runs or attachments, and what each of them is."""
    block = data["block"][chosen.rows].astype(np.float64)
    frame = pd.DataFrame(
        {
            "cell": chosen.cells,
            "attachment": chosen.attachments,
            "value": chosen.values,
            "block": block,
            "row": chosen.rows,
        }
    )
    if by == "attachment":
        groups = frame.groupby(["cell", "attachment"], sort=False)
        frame = groups.agg(
            value=("value", statistic), block=("block", "min"), row=("row", "first")
        ).reset_index()
    frame = frame.sort_values(["cell", "block", "row"], kind="stable")
    place = frame.groupby("cell").cumcount().to_numpy()
    where = (frame["cell"].to_numpy(), place)
    whole = (math.prod(shape), int(place.max(initial=0)) + 1 if place.size else 0)
    if math.prod(whole) > MOST_CELLS:
        raise ValueError(f"{whole[0]} cells x {whole[1]} {by}s are too many: select levels first")
    values, blocks = np.full(whole, np.nan), np.full(whole, np.nan)
    names = np.full(whole, "", dtype=object)
    values[where], blocks[where] = frame["value"].to_numpy(), frame["block"].to_numpy()
    names[where] = data["attachment"][frame["row"].to_numpy()]
    final = (*shape, whole[1])
    companions = {"attachment_id": names.reshape(final), "block": blocks.reshape(final)}
    return values.reshape(final), companions


def _title(ds: xr.Dataset, metric: str) -> str:
    if metric in METRICS:
        return METRICS[metric].title
    return str(ds[metric].attrs.get("long_name", "") or metric.replace("_", " "))


def _statistic_text(statistic: Statistic, by: By) -> str:
    if by == "run":
        return "each run"
    within = f"{statistic} of each attachment's runs"
    return within if by == "attachment" else f"{statistic} over attachments of the {within}"
