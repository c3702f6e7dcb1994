"""Open campaign files: one or many, as one xarray.Dataset in long form, and as columns."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from fsmatrix.analysis.data import columns
from fsmatrix.analysis.data.columns import Columns, Mask
from fsmatrix.analysis.data.reading import (
    FILE_NAME,
    INDEXES,
    LARGE,
    PUBLISHED,
    RAGGED,
    SIZES,
    loaded,
    read_variables,
)
from fsmatrix.analysis.steps import step
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.workloads import ENOUGH
from fsmatrix.results.files import campaignread, schema
from fsmatrix.results.files.hdf import HDF5_ERRORS
from fsmatrix.results.files.safefile import ResultError

# Together they are a run; imports of two texts may have the same case.
OF_A_RUN = ("case_index", "environment_index", "repetition", "attempt")
NEEDED = (
    "run_id", "phase", "target", "status", "attachment", "block", "last_attempt", "worst_finding",
    "error",
)  # fmt: skip

Array = columns.Array
Paths = str | Path | Sequence[str | Path]
Upgrade = Callable[[xr.Dataset], xr.Dataset]
UPGRADES: dict[int, Upgrade] = {}  # schema version -> brings a Dataset of it to the next one


@dataclass(frozen=True)
class Rows:
    """Columns of the rows of a campaign, each of shape [row]; strings are str objects.

    Here, and only here, is said which rows count.
    """

    columns: Mapping[str, Array]  # of `rows`: read when they are first asked for
    factors: Mapping[str, str]  # factor -> its column

    def __len__(self) -> int:
        name = "last_attempt" if "last_attempt" in self.columns else "run_id"  # cheaper to read
        return int(self.columns[name].size)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def factor(self, name: str) -> Array:
        """The levels of a factor, shape [row]."""
        return self.columns[self.factors[name]]

    @functools.cached_property
    def current(self) -> Mask:
        """Rows of the newest attempt at their run."""
        return np.asarray(self["last_attempt"] != 0)

    @functools.cached_property
    def failed(self) -> Mask:
        """Rows of runs that did not end well."""
        return np.asarray(self["status"] != "ok")

    @functools.cached_property
    def invalid(self) -> Mask:
        """Rows of runs that ended well and that a finding calls invalid."""
        return np.asarray((self["worst_finding"] == "invalid") & ~self.failed)

    @functools.cached_property
    def timed(self) -> Mask:
        """Rows with a phase: a run that failed before its first one has none."""
        return np.asarray(self["phase"] != "")

    @functools.cached_property
    def reference(self) -> Mask:
        """Rows of reference targets: those whose coordinate `reference` is true."""
        if "reference" not in self.factors:
            return np.zeros(len(self), dtype=bool)
        levels, place = columns.coded(self.factor("reference"))
        flags = [str(level).lower() in ("true", "1", "1.0") for level in levels]
        return np.array(flags, dtype=bool)[place]

    @functools.cached_property
    def counting(self) -> Mask:
        """Rows that count: of the newest attempt, which ended well and is valid, with a phase."""
        return self.current & ~self.failed & ~self.invalid & self.timed

    def where(self, keep: Mask) -> Rows:
        """The rows where `keep`, shape [row], is true."""
        if isinstance(self.columns, Columns):
            return Rows(self.columns.where(keep), self.factors)
        return Rows({name: array[keep] for name, array in self.columns.items()}, self.factors)


def open_campaign(paths: Paths, lazy: bool | None = None) -> xr.Dataset:
    """All runs of the campaign files `paths` as one Dataset in long form (docs/results.md).

    A path is a file, a directory that holds campaign.h5, or `published:<name>` (a table of
    results/published).  `lazy`: variables are read when they are looked at and the file stays
    open until the Dataset goes; otherwise all is read and the file closed.  None: lazy for
    files above 64 MiB.  A run that is in several files counts once.  ValueError without a
    path; ResultError (which file, and why) for a missing, damaged, foreign or newer one.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    if not listed:
        raise ValueError("no campaign file given")
    step(f"reading {', '.join(Path(path).name for path in listed)}")
    ds = [_opened(path, lazy) for path in listed]
    return ds[0] if len(ds) == 1 else join(ds)


def rows(ds: xr.Dataset) -> Rows:
    """Every variable of dimension `run` as a column; ValueError if `ds` is no campaign or empty."""
    if ds.attrs.get("format") == schema.CAMPAIGN_FORMAT and ds.sizes.get("run", 0) == 0:
        raise ValueError("there are no runs in this campaign")
    missing = [name for name in NEEDED if name not in ds.variables]
    if missing:
        raise ValueError(f"not a campaign: no variable {', '.join(missing)}")
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    factors = _json(ds.attrs.get("factors"), {})
    return Rows(
        Columns(names, lambda name: ds.variables[name].values),
        {str(k): str(v) for k, v in factors.items() if v in names},
    )


def runs_of(data: Rows) -> columns.Codes:
    """The number of each row's run, shape [row], in the order of their first rows.

    By its numbers where there are some: a million ids take a second to read.
    """
    if all(name in data.columns for name in OF_A_RUN):
        return columns.combined([data[name] for name in OF_A_RUN], len(data))[1]
    return columns.coded(data["run_id"])[1]


def join(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Several campaigns one after the other; ragged arrays and indexes keep their meaning.

    Variables are put together when they are looked at.
    """
    start: dict[str, int] = {}
    moved = []
    for ds in datasets:
        moved.append((ds, _shifts(start)))
        for dim, length in ds.sizes.items():
            start[str(dim)] = start.get(str(dim), 0) + length
    names = list(dict.fromkeys(str(name) for ds in datasets for name in ds.variables))
    variables: dict[str, xr.Variable] = {}
    for name in names:
        owner = next(ds for ds in datasets if name in ds.variables).variables[name]
        if owner.dims == ("bin",):
            variables[name] = owner
        elif len(owner.dims) == 1:
            variables[name] = _joined(name, str(owner.dims[0]), moved, owner)
    coordinates = {str(name) for ds in datasets for name in ds.coords} & set(variables)
    whole = xr.Dataset(variables, attrs=_joined_attributes(datasets))
    return _once(whole.set_coords(sorted(coordinates)))


def campaign_json(ds: xr.Dataset) -> dict[str, Json]:
    """What the campaign says about itself (name, id, seed, order...); empty without."""
    value = _json(ds.attrs.get("campaign"), {})
    return value if isinstance(value, dict) else {}


def campaigns_json(ds: xr.Dataset) -> list[dict[str, Json]]:
    """What several joined campaigns say about themselves, each as `campaign_json`; none of one."""
    value = _json(ds.attrs.get("campaigns"), [])
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def left_out(ds: xr.Dataset) -> list[dict[str, str]]:
    """Files that `collect` could not read: {"file", "reason"}."""
    value = _json(ds.attrs.get("left_out"), [])
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def environments(ds: xr.Dataset) -> list[dict[str, Json]]:
    """The different environments, in the order of `environment_index`."""
    if "environment_json" not in ds:
        return []
    values = [_json(text, {}) for text in columns.plain(ds["environment_json"].values)]
    return [value if isinstance(value, dict) else {} for value in values]


def _opened(given: str | Path, lazy: bool | None) -> xr.Dataset:
    if str(given).startswith(PUBLISHED):
        from fsmatrix.analysis.data.publications import published

        return published(str(given).removeprefix(PUBLISHED))
    folder = Path(given).is_dir()
    file = Path(given) / FILE_NAME if folder else Path(given)
    if not file.is_file():
        raise ResultError(file, "no such file (`fsmatrix collect` makes it)")
    try:
        opened_file = campaignread.opened(file, follow=not folder)
        large = max(opened_file.size, opened_file.unpacked) > LARGE
        ds = without_offered(_upgraded(read_variables(opened_file.file)))
        ds = ds if (large if lazy is None else lazy) else loaded(ds)
        ds.encoding["source"] = str(file)
        return ds
    except ResultError:
        raise
    except HDF5_ERRORS as error:
        raise schema.DamagedFileError(file, f"cannot be read as HDF5: {error}") from error


def _upgraded(ds: xr.Dataset) -> xr.Dataset:
    """A Dataset of an older schema as one of this version."""
    opened = ds
    for number in range(int(ds.attrs.get("schema_version", 0)), schema.SCHEMA_VERSION):
        if number not in UPGRADES:
            raise ValueError(f"schema {number} is not known")
        ds = UPGRADES[number](ds)
    upgraded = ds.assign_attrs(schema_version=schema.SCHEMA_VERSION)
    upgraded.set_close(opened.close)
    return upgraded


def _shifts(start: Mapping[str, int]) -> dict[str, int]:
    """Variables that count rows of other dimensions -> by how much they move in a join."""
    shift = {f"{name}_first": start.get(name, 0) for name in RAGGED}
    shift |= {f"{name}_run": start.get("run", 0) for name in RAGGED}
    return shift | {name: start.get(dim, 0) for name, dim in INDEXES.items()}


def _joined(
    name: str,
    dim: str,
    parts: Sequence[tuple[xr.Dataset, Mapping[str, int]]],
    model: xr.Variable,
) -> xr.Variable:
    sizes = [ds.sizes.get(dim, 0) for ds, _ in parts]
    filled = [(ds, size) for (ds, _), size in zip(parts, sizes, strict=True) if size]
    variables = [ds.variables[name] for ds, _ in filled if name in ds.variables] or [model]
    gaps = len(variables) < len(filled) and name not in SIZES  # no rows in files of before
    textual = any(columns.is_text(variable) for variable in variables)
    kinds = [object] if textual else [v.dtype for v in variables] + [np.dtype(float)] * gaps
    dtype = np.result_type(*kinds)

    def read() -> Array:
        values = np.full(sum(sizes), "" if textual else np.nan if gaps else 0, dtype=dtype)
        first = 0
        for (ds, shift), size in zip(parts, sizes, strict=True):
            if size and name in ds.variables:
                own = ds.variables[name].values
                if textual and not columns.is_text(ds.variables[name]):
                    own = own.astype(str)
                values[first : first + size] = own + shift[name] if name in shift else own
            first += size
        return values

    return columns.deferred(dim, sum(sizes), dtype, read, model.attrs)


def _joined_attributes(datasets: Sequence[xr.Dataset]) -> dict[str, Json]:
    factors: dict[str, Json] = {}
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
    size = ds.sizes.get("run", 0)
    group = columns.combined([columns.coded(ds[name].values)[1] for name in names], size)[1]
    keep = ~pd.Series(group).duplicated().to_numpy()
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


def _json(text: Any, default: Any) -> Any:
    if not isinstance(text, str) or not text:
        return default
    try:
        return schema.from_json(text)
    except ValueError:
        return default


# What of an open loop is no result: its throughput was asked for, not reached; and no latency
# counts where it did not follow.


OPEN_LOOP = ("offered_rate", "achieved_rate", "unplayed", "case_id", "phase", "latency_of")
LATENCIES = ("mean", "min", "max", "p50", "p95", "p99", "p99_9")  # the histogram stays
RATES = ("bandwidth", "iops", "io_bandwidth", "first_finisher_rate")


def open_loops(ds: xr.Dataset) -> Mask:
    """Rows [run] of phases whose operations came at a rate that the campaign gave."""
    if "offered_rate" not in ds.variables:
        return np.zeros(ds.sizes.get("run", 0), dtype=bool)
    return np.asarray(np.isfinite(ds.variables["offered_rate"].values))


def saturated_points(ds: xr.Dataset) -> Mask:
    """Rows [run] of phases that were saturated in any run of their case.

    Other variables are read only where there are some.
    """
    none = np.zeros(ds.sizes.get("run", 0), dtype=bool)
    if any(name not in ds.variables for name in OPEN_LOOP):
        return none
    offered, achieved, unplayed = (ds.variables[name].values for name in OPEN_LOOP[:3])
    with np.errstate(invalid="ignore"):
        saturated = (achieved < ENOUGH * offered) | (unplayed > 0)
    if not saturated.any():
        return none
    codes = [columns.coded(ds.variables[name].values)[1] for name in ("case_id", "phase")]
    point = columns.combined(codes, saturated.size)[1]
    return np.isin(point, point[saturated])


def without_offered(ds: xr.Dataset) -> xr.Dataset:
    """The campaign without what its open loops did not measure.

    They have no throughput: it is what was offered (`achieved_rate` says how much of it was
    reached).  That of a search for a capacity is the capacity that it found.  Saturated points
    have no latency: a saturated run has none in the file, and those of the others would be of the
    lucky ones only.
    """
    opened = open_loops(ds)
    if not opened.any():
        return ds
    none: Any = np.nan
    instead = dict.fromkeys(RATES, (opened, none))
    if "capacity" in ds.variables:
        capacity, moved, done = (ds[name].values for name in ("capacity", "bytes", "operations"))
        instead["iops"] = (opened, capacity)
        with np.errstate(invalid="ignore", divide="ignore"):
            instead["bandwidth"] = (opened, capacity * moved / done)
    if (saturated := saturated_points(ds)).any():
        instead |= {f"latency_{part}": (saturated, none) for part in LATENCIES}
        instead["latency_of"] = (saturated, "")
    left = ds.assign(
        {
            name: ("run", np.where(place, value, ds[name].values), ds[name].attrs)
            for name, (place, value) in instead.items()
            if name in ds.variables
        }
    )
    left.set_close(ds.close)
    return left
