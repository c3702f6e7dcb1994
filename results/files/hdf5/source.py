"""Reading the groups of an open HDF5 file that was checked (hdfcheck.py), by h5py's low level."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from fsmatrix.results.files.hdf5.check import ATTRIBUTE_SIZE, ATTRIBUTE_TEXT
from fsmatrix.results.files.hdf5.hdf import TEXT_MEMORY

# spares h5py making a type for each reading (4 x faster for small arrays)
MEMORY_TYPES = {
    "d": h5py.h5t.NATIVE_DOUBLE,
    "l": h5py.h5t.NATIVE_INT64,
    "b": h5py.h5t.NATIVE_INT8,
}


class Source:
    """A group that is being read.  KeyError for what is not there."""

    def __init__(self, group: h5py.Group) -> None:
        self._id = group.id

    def __contains__(self, name: str) -> bool:
        return name.encode() in self._id

    def group(self, name: str) -> Source:
        """A group inside this one."""
        return Source(h5py.Group(h5py.h5g.open(self._id, name.encode())))

    def attributes(self) -> dict[str, Any]:
        """All attributes: str, numbers, arrays."""
        count = h5py.h5a.get_num_attrs(self._id)
        found: dict[str, Any] = {}
        length = 0
        for index in range(count):
            attribute = h5py.h5a.open(self._id, index=index)
            value = found[attribute.name.decode()] = _attribute(attribute)
            length += len(value) if isinstance(value, str) else 0
            if length > ATTRIBUTE_TEXT:
                raise ValueError("the attributes are too long")
        return found

    def array(self, name: str) -> Any:
        """The values of a variable of numbers."""
        return self._values(name)[1]

    def texts(self, name: str) -> list[str]:
        """The values of a variable of strings with one dimension."""
        values = self._values(name)[1]
        if values.dtype.kind != "O":  # of a fixed length they may be packed, and become anything
            raise ValueError(f"{name} is not made of strings")
        return [value.decode() for value in values.tolist()]

    def given(self, name: str) -> tuple[Any, Any]:
        """The values of a variable, and its attribute `given` (None without one)."""
        dataset, values = self._values(name)
        mask = h5py.h5a.open(dataset, b"given") if h5py.h5a.exists(dataset, b"given") else None
        return values, None if mask is None else _attribute(mask)

    def _values(self, name: str) -> tuple[h5py.h5d.DatasetID, Any]:
        dataset = h5py.h5d.open(self._id, name.encode())
        values = np.empty(dataset.shape, dtype=dataset.dtype)
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values, _memory_type(values.dtype))
        return dataset, values


def _memory_type(dtype: np.dtype[Any]) -> Any:
    if dtype.char == "O":
        is_text = dtype.metadata is not None and dtype.metadata.get("vlen") is str
        return TEXT_MEMORY if is_text else None
    return MEMORY_TYPES.get(dtype.char)


def _attribute(attribute: h5py.h5a.AttrID) -> Any:
    if attribute.get_storage_size() > ATTRIBUTE_SIZE:
        raise ValueError(f"the attribute {attribute.name!r:.80} is too large")
    values = np.empty(attribute.shape, dtype=attribute.dtype)
    if values.dtype.kind == "O" and values.size != 1:
        raise ValueError(f"the attribute {attribute.name!r:.80} is no single string")
    attribute.read(values, _memory_type(values.dtype))
    value = values[()]
    return value.decode() if isinstance(value, bytes) else value
