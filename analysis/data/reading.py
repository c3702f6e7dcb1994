"""One HDF5 file as a Dataset: its variables read when they are looked at, or all at once.

By h5py and not by xarray's own reader (`engine="h5netcdf"`, which gives the same): that asks each
of some 120 variables for what only a writer needs, half a second of every command.
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
_NOTED = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "coordinates", "_Encoding"}
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
    variables: dict[str, xr.Variable] = {}
    coordinates = set(_words(file.attrs))
    for name, stored in file.items():
        if isinstance(stored, h5py.Dataset) and not _is_bare(stored):
            variables[name] = _variable(name, stored)
            coordinates |= set(_words(stored.attrs))
    attributes = {name: value for name, value in _plain(file.attrs).items() if name[0] != "_"}
    named = {name: variables.pop(name) for name in [*variables] if name in coordinates}
    ds = xr.Dataset(variables, named, attributes)
    ds.set_close(file.close)
    return ds


def _is_bare(stored: h5py.Dataset) -> bool:
    """Whether it only says how long a dimension is."""
    return bool(stored.attrs.get("NAME", b"").startswith(_NO_VARIABLE))


def _variable(name: str, stored: h5py.Dataset) -> xr.Variable:
    dims = [name] if h5py.h5ds.is_scale(stored.id) else [_of_scale(dim) for dim in stored.dims]
    data = indexing.LazilyIndexedArray(_Stored(stored))
    variable = xr.Variable(dims, data, _plain(stored.attrs))
    if columns.is_text(variable) and variable.ndim == 1:
        return columns.deferred(
            dims[0],
            variable.shape[0],
            object,
            lambda: columns.shared_texts(variable),
            variable.attrs,
        )
    return variable


def _of_scale(dim: Any) -> str:
    """The name of a dimension."""
    return str(dim[0].name).rpartition("/")[2]


def _words(attributes: h5py.AttributeManager) -> list[str]:
    """Names of the coordinates that an attribute lists."""
    return str(attributes.get("coordinates", "")).split()


def _plain(attributes: h5py.AttributeManager) -> dict[str, Any]:
    """Attributes of the user; one value alone as such, as netCDF's writers store it as an array."""
    found = {name: value for name, value in attributes.items() if name not in _NOTED}
    return {
        name: value[0] if getattr(value, "shape", ()) == (1,) else value
        for name, value in found.items()
    }


def loaded(ds: xr.Dataset) -> xr.Dataset:
    """All values of a Dataset in memory, and its file closed."""
    with ds:
        whole: xr.Dataset = ds.load()
    return whole


def read_whole(image: io.BytesIO) -> xr.Dataset:
    """The campaign file that `image` holds."""
    return loaded(read_variables(h5py.File(image, "r")))
