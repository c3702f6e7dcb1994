"""One HDF5 file as a Dataset: its variables read when they are looked at, or all at once."""

from __future__ import annotations

import io

import h5netcdf  # type: ignore[import-untyped]
import h5py
import xarray as xr
from xarray.backends import H5NetCDFStore

from fsmatrix.analysis.data import columns


def read_variables(file: h5py.File) -> xr.Dataset:
    """The variables of a file, none of them read yet; equal texts will share one object."""
    store = H5NetCDFStore(h5netcdf.File(file, "r"))
    ds = xr.open_dataset(
        store,
        cache=False,
        mask_and_scale=False,
        decode_times=False,
        decode_timedelta=False,
        concat_characters=False,
    )
    texts = {name: v for name, v in ds.variables.items() if columns.is_text(v) and v.ndim == 1}
    shared = ds.assign({name: _text(variable) for name, variable in texts.items()})

    def close() -> None:
        ds.close()
        file.close()

    shared.set_close(close)
    return shared


def _text(variable: xr.Variable) -> xr.Variable:
    attributes = {key: value for key, value in variable.attrs.items() if key != "_Encoding"}
    return columns.deferred(
        str(variable.dims[0]),
        variable.shape[0],
        object,
        lambda: columns.shared_texts(variable),
        attributes,
    )


def loaded(ds: xr.Dataset) -> xr.Dataset:
    """All values of a Dataset in memory, and its file closed."""
    with ds:
        whole: xr.Dataset = ds.load()
    return whole


def read_whole(image: io.BytesIO) -> xr.Dataset:
    """The campaign file that `image` holds."""
    return loaded(read_variables(h5py.File(image, "r")))
