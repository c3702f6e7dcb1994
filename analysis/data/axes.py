"""The dimensions of a campaign's matrix: factors coded over its rows, and which of them vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis.data.columns import Array, Codes, Level, Mask, coded, combined
from fsmatrix.analysis.data.factors import roles
from fsmatrix.analysis.data.summary import NOT_FACTORS
from fsmatrix.analysis.units import is_size

COMPANIONS = ("runs", "attachments", "attachment", "run", "attachment_id", "block")


@dataclass(frozen=True)
class Axis:
    """One dimension."""

    name: str
    levels: list[Level]
    codes: Codes  # [row]; -1 where a row has no place along it


def factor_columns(ds: xr.Dataset, factors: Mapping[str, str]) -> dict[str, Axis]:
    """Every factor (with its variable), and engine and phase, coded over all rows of a campaign."""
    names = {name: column for name, column in factors.items() if name not in NOT_FACTORS}
    names |= {name: name for name in ("engine", "phase") if name in ds.variables}
    return {name: Axis(name, *coded(ds.variables[column].values)) for name, column in names.items()}


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
