"""One HDF5 file as a Dataset: its variables read when they are looked at, or all at once.

By h5py and not by xarray's own reader (`engine="h5netcdf"`, which gives the same): that asks
each of some 120 variables for what only a writer needs, half a second of every command.
"""

from __future__ import annotations

import io
from typing import Any

import h5py
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from fsmatrix.analysis.data import columns

# what netCDF-4 notes for itself
_NOTED = {"NAME", "coordinates", "_Encoding"}
_REFERENCES = {"CLASS", "DIMENSION_LIST", "REFERENCE_LIST"}  # slow to read
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class _Stored(BackendArray):
    """The values of a variable, read from the file at each look."""

    def __init__(self, stored: h5py.Dataset) -> None:
        self.shape, self.dtype, self._stored = stored.shape, stored.dtype, stored

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._stored.__getitem__
        )

    def __deepcopy__(self, memo: Any) -> _Stored:
        return self


def read_variables(file: h5py.File) -> xr.Dataset:
    """The variables of a file, none of them read yet; equal texts will share one object."""
    stored = {name: one for name, one in file.items() if isinstance(one, h5py.Dataset)}
    scales = {_address(one.id): name for name, one in stored.items() if _is_scale(one)}
    variables: dict[str, xr.Variable] = {}
    own = _read(file.attrs)
    coordinates = set(_words(own))
    for name, one in stored.items():
        noted = _read(one.attrs)
        if not bytes(noted.get("NAME", b"")).startswith(_NO_VARIABLE):
            variables[name] = _variable(name, one, noted, scales)
            coordinates |= set(_words(noted))
    attributes = {name: value for name, value in _plain(own).items() if name[0] != "_"}
    named = {name: variables.pop(name) for name in [*variables] if name in coordinates}
    ds = xr.Dataset(variables, named, attributes)
    ds.set_close(file.close)
    return ds


def _is_scale(stored: h5py.Dataset) -> bool:
    return bool(h5py.h5ds.is_scale(stored.id))


def _address(stored: h5py.h5d.DatasetID) -> int:
    """What tells it from others of its file; its name takes half a millisecond to find."""
    return int(h5py.h5o.get_info(stored).addr)


def _variable(
    name: str, stored: h5py.Dataset, noted: dict[str, Any], scales: dict[int, str]
) -> xr.Variable:
    dims = [name] if _is_scale(stored) else [scales[_address(dim[0].id)] for dim in stored.dims]
    data = indexing.LazilyIndexedArray(_Stored(stored))
    variable = xr.Variable(dims, data, _plain(noted))
    if columns.is_text(variable) and variable.ndim == 1:
        return columns.deferred(
            dims[0],
            variable.shape[0],
            object,
            lambda: columns.shared_texts(variable),
            variable.attrs,
        )
    return variable


def _read(attributes: h5py.AttributeManager) -> dict[str, Any]:
    """All that are no references."""
    return {name: attributes[name] for name in attributes if name not in _REFERENCES}


def _words(attributes: dict[str, Any]) -> list[str]:
    """Names of the coordinates that an attribute lists."""
    return str(attributes.get("coordinates", "")).split()


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes of the user; one value alone as such, as netCDF's writers store it as an array."""
    return {
        name: value[0] if getattr(value, "shape", ()) == (1,) else value
        for name, value in attributes.items()
        if name not in _NOTED
    }


def loaded(ds: xr.Dataset) -> xr.Dataset:
    """All values of a Dataset in memory, and its file closed."""
    with ds:
        whole: xr.Dataset = ds.load()
    return whole


def read_whole(image: io.BytesIO) -> xr.Dataset:
    """The campaign file that `image` holds."""
    return loaded(read_variables(h5py.File(image, "r")))


FILE_NAME, PUBLISHED = "campaign.h5", "published:"  # the latter and a table of results/published
LARGE = 64 << 20  # bytes of a file that is read only as far as it is looked at
RAGGED = ("worker", "latency", "interval", "iteration", "finding")
SIZES = {f"{dim}_{part}" for dim in RAGGED for part in ("first", "size")}
INDEXES = {"environment_index": "environment", "case_index": "case", "latency_kind": "kind"}
