"""Open campaign files: one or many, as one xarray.Dataset in long form, and as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.results import schema

FILE_NAME = "campaign.h5"
RAGGED = ("worker", "latency", "interval", "finding")
INDEXES = {"environment_index": "environment", "case_index": "case", "latency_kind": "kind"}
NEEDED = (
    "run_id", "phase", "target", "status", "attachment", "block", "last_attempt", "worst_finding",
    "error",
)  # fmt: skip

Array = npt.NDArray[Any]
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Rows:
    """Columns of the rows of a campaign, each of shape [row]; strings are str."""

    columns: Mapping[str, Array]
    factors: Mapping[str, str]  # factor -> its column

    def __len__(self) -> int:
        return int(self.columns["run_id"].size)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def factor(self, name: str) -> Array:
        """The levels of a factor, shape [row]."""
        return self.columns[self.factors[name]]

    def where(self, keep: npt.NDArray[np.bool_]) -> Rows:
        """The rows where `keep`, shape [row], is true."""
        return Rows({name: array[keep] for name, array in self.columns.items()}, self.factors)


def open_campaign(paths: Paths) -> xr.Dataset:
    """All runs of the campaign files `paths` (files, or directories that hold campaign.h5).

    The files are read and closed.  A run that is in several files counts once.
    schema.ResultError (which file, and why) for a missing, damaged, foreign or newer one.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    if not listed:
        raise ValueError("no campaign file given")
    datasets = [_read(Path(path)) for path in listed]
    return datasets[0] if len(datasets) == 1 else join(datasets)


def rows(ds: xr.Dataset) -> Rows:
    """Every variable of dimension `run` as a column; ValueError if `ds` is no campaign or empty."""
    if ds.attrs.get("format") == schema.CAMPAIGN_FORMAT and ds.sizes.get("run", 0) == 0:
        raise ValueError("there are no runs in this campaign")
    missing = [name for name in NEEDED if name not in ds.variables]
    if missing:
        raise ValueError(f"not a campaign: no variable {', '.join(missing)}")
    columns = {
        str(name): _plain(variable.values)
        for name, variable in ds.variables.items()
        if variable.dims == ("run",)
    }
    factors = _json(ds.attrs.get("factors"), {})
    return Rows(columns, {str(k): str(v) for k, v in factors.items() if v in columns})


def join(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Several campaigns one after the other; ragged arrays and indexes keep their meaning."""
    moved = []
    start: dict[str, int] = {}
    for ds in datasets:
        moved.append(_shifted(ds, start))
        for dim, length in ds.sizes.items():
            start[str(dim)] = start.get(str(dim), 0) + length
    names = list(dict.fromkeys(name for ds in moved for name in ds.variables))
    variables: dict[str, tuple[str, Array]] = {}
    for name in names:
        owner = next(ds for ds in moved if name in ds.variables)
        dims = owner[name].dims
        if dims == ("bin",):
            variables[str(name)] = ("bin", owner[name].values)
        elif len(dims) == 1:
            parts = [_part(ds, str(name), str(dims[0]), owner[name]) for ds in moved]
            variables[str(name)] = (str(dims[0]), _concatenated(parts))
    coordinates = {str(name) for ds in moved for name in ds.coords} & set(variables)
    whole = xr.Dataset(variables, attrs=_joined_attributes(datasets))
    return _once(whole.set_coords(sorted(coordinates)))


def campaign_json(ds: xr.Dataset) -> dict[str, Any]:
    """What the campaign says about itself (name, id, seed, order...); empty without."""
    value = _json(ds.attrs.get("campaign"), {})
    return value if isinstance(value, dict) else {}


def left_out(ds: xr.Dataset) -> list[dict[str, str]]:
    """Files that `collect` could not read: {"file", "reason"}."""
    value = _json(ds.attrs.get("left_out"), [])
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def environments(ds: xr.Dataset) -> list[dict[str, Any]]:
    """The different environments, in the order of `environment_index`."""
    if "environment_json" not in ds:
        return []
    values = [_json(text, {}) for text in _plain(ds["environment_json"].values)]
    return [value if isinstance(value, dict) else {} for value in values]


def _read(path: Path) -> xr.Dataset:
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise schema.ResultError(file, "no such file (`fsmatrix collect` makes it)")
    try:
        with xr.open_dataset(file, engine="h5netcdf") as ds:
            loaded = ds.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise schema.DamagedFileError(file, f"cannot be read as HDF5: {error}") from error
    if loaded.attrs.get("format") != schema.CAMPAIGN_FORMAT:
        raise schema.ForeignFileError(file, "not a campaign file of fsmatrix")
    version = int(loaded.attrs.get("schema_version", 0))
    if version > schema.SCHEMA_VERSION:
        raise schema.NewerSchemaError(file, version)
    return loaded


def _shifted(ds: xr.Dataset, start: Mapping[str, int]) -> xr.Dataset:
    shift = {f"{name}_first": start.get(name, 0) for name in RAGGED}
    shift |= {f"{name}_run": start.get("run", 0) for name in RAGGED}
    shift |= {name: start.get(dim, 0) for name, dim in INDEXES.items()}
    present = {name: by for name, by in shift.items() if by and name in ds.variables}
    return ds.assign({name: ds[name].astype(np.int64) + by for name, by in present.items()})


def _part(ds: xr.Dataset, name: str, dim: str, model: xr.DataArray) -> Array:
    if name in ds.variables:
        return _plain(ds[name].values)
    length = ds.sizes.get(dim, 0)
    textual = model.dtype.kind in "OSU"
    return np.full(length, "") if textual else np.full(length, np.nan)


def _concatenated(parts: Sequence[Array]) -> Array:
    kinds = {part.dtype.kind for part in parts if part.size}
    if "U" in kinds and len(kinds) > 1:
        parts = [part.astype(str) for part in parts]
    return np.concatenate(parts)


def _joined_attributes(datasets: Sequence[xr.Dataset]) -> dict[str, Any]:
    factors: dict[str, Any] = {}
    for ds in datasets:
        factors |= _json(ds.attrs.get("factors"), {})
    campaigns = [campaign_json(ds) for ds in datasets]
    return dict(datasets[0].attrs) | {
        "factors": json.dumps(factors),
        "left_out": json.dumps([item for ds in datasets for item in left_out(ds)]),
        "runs": sum(int(ds.attrs.get("runs", 0)) for ds in datasets),
        "campaign": json.dumps(campaigns[0]) if all(c == campaigns[0] for c in campaigns) else "",
        "campaigns": json.dumps(campaigns),
    }


def _once(ds: xr.Dataset) -> xr.Dataset:
    """Drop rows that are there twice (same run, phase, session and start)."""
    names = [name for name in ("run_id", "phase", "session", "started") if name in ds]
    keys = list(zip(*(ds[name].values.tolist() for name in names), strict=True))
    seen: dict[tuple[Any, ...], int] = {}
    keep = np.array([seen.setdefault(key, i) == i for i, key in enumerate(keys)], dtype=bool)
    if keep.all():
        return ds
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    result = ds.isel(run=np.flatnonzero(keep))
    for name in RAGGED:
        if f"{name}_run" not in ds:
            continue
        row = place[ds[f"{name}_run"].values]
        result = result.isel({name: np.flatnonzero(row >= 0)})
        result[f"{name}_run"] = (name, row[row >= 0])
        if f"{name}_size" in result:
            ends = np.cumsum(result[f"{name}_size"].values)
            result[f"{name}_first"] = ("run", ends - result[f"{name}_size"].values)
    return result


def _plain(values: Array) -> Array:
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind not in "OTU":
        return values
    values = values.astype(str)
    if np.char.startswith(values, schema.ESCAPE).any():
        return np.array([schema.decode_text(text) for text in values.tolist()], dtype=str)
    return values


def _json(text: Any, default: Any) -> Any:
    if not isinstance(text, str) or not text:
        return default
    try:
        return schema.from_json(text)
    except ValueError:
        return default
