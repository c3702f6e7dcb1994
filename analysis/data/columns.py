"""Columns of a campaign that are read when somebody looks at them, and equal values coded.

A text column of a campaign file has few different values: as objects that rows share it
costs 8 bytes per row instead of some hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from fsmatrix.results.files import schema

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Level = str | int | float
SPAN = 1 << 16  # rows of text that are decoded at once


class Deferred(BackendArray):
    """One dimension, read whole at the first look and kept.  For `xr.Variable` (see `deferred`)."""

    def __init__(self, size: int, dtype: npt.DTypeLike, read: Callable[[], Array]) -> None:
        self.shape = (size,)
        self.dtype = np.dtype(dtype)
        self._read = read
        self._values: Array | None = None

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._part
        )

    def __deepcopy__(self, memo: Any) -> Deferred:
        return self

    def _part(self, key: tuple[Any, ...]) -> Array:
        if self._values is None:
            self._values = self._read()
        return np.asarray(self._values[key])


def deferred(
    dim: str,
    size: int,
    dtype: npt.DTypeLike,
    read: Callable[[], Array],
    attributes: Mapping[Any, Any] | None = None,
) -> xr.Variable:
    """A variable that calls `read` (gives shape [size]) when its values are first used."""
    data = indexing.LazilyIndexedArray(Deferred(size, dtype, read))
    return xr.Variable((dim,), data, attributes)


class Columns(Mapping[str, Array]):
    """Name -> array of shape [row], made by `plain` of what `read` gives when first asked for."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Array]) -> None:
        self._names = dict.fromkeys(names)
        self._read = read
        self._kept: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._kept:
            self._kept[name] = plain(self._read(name))
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without reading it

    def where(self, keep: npt.NDArray[np.bool_]) -> Columns:
        """The rows where `keep` is true; whole columns are not kept for it."""
        return Columns(self._names, lambda name: self._read(name)[keep])


def is_text(variable: xr.Variable | xr.DataArray) -> bool:
    """Whether its values are strings (an empty or undecoded column of them too)."""
    return variable.dtype.kind in "OSTU"


def shared_texts(variable: xr.Variable) -> Array:
    """The texts of a variable of bytes or str, shape [row], as objects that equal rows share."""
    size = variable.shape[0]
    values = np.empty(size, dtype=object)
    shared: dict[str, str] = {}
    for first in range(0, size, SPAN):
        part = variable[first : first + SPAN].values
        starts, lengths = _stretches(part)
        values[first : first + SPAN] = np.repeat(_objects(_decoded(part[starts]), shared), lengths)
    return values


def _objects(texts: Iterable[str], shared: dict[str, str]) -> Array:
    """The texts, one object for all that are equal; `shared`: those of before."""
    made = [shared.setdefault(text, text) for text in texts]
    values = np.empty(len(made), dtype=object)
    values[:] = made
    return values


def _decoded(part: Array) -> list[str]:
    """Texts of bytes (UTF-8) or str."""
    if part.dtype.kind == "S":
        try:
            return [str(text) for text in part.astype(str).tolist()]  # ASCII, at once
        except UnicodeDecodeError:
            pass
    return [
        text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        for text in part.tolist()
    ]


def plain(values: Array) -> Array:
    """Strings as str, decoded, objects that equal rows share; other values as they are."""
    if values.dtype.kind not in "OSTU":
        return values
    starts, lengths = _stretches(values)
    return np.repeat(_objects(map(schema.decode_text, _decoded(values[starts])), {}), lengths)


def _stretches(*columns: Array) -> tuple[Codes, Codes]:
    """(first rows, lengths) of the stretches of rows that are alike in every column.

    Rows of one case lie together in a campaign file: there are far fewer stretches than rows.
    """
    size = columns[0].shape[0]
    other = np.zeros(max(size - 1, 0), dtype=bool)
    for column in columns:
        other |= column[1:] != column[:-1]
    starts = np.flatnonzero(np.append(True, other)[:size])
    return starts, np.diff(np.append(starts, size))


def coded(values: Array) -> tuple[list[Level], Codes]:
    """Different values, sorted, and the index of each row's: shape [row].  NaN is one value.

    As `factors.codes`, without sorting the rows (50 x faster for a million texts).
    """
    starts, lengths = _stretches(values)
    codes, distinct = pd.factorize(values[starts], use_na_sentinel=False)
    levels, place = np.unique(plain(np.asarray(distinct)), return_inverse=True)
    return levels.tolist(), np.repeat(place.astype(np.int64)[codes], lengths)


def combined(columns: list[Codes], rows: int) -> tuple[Codes, Codes]:
    """(first row of each different combination of codes, combination of each row [row]).

    Combinations are numbered in the order of their first rows.
    """
    starts, lengths = _stretches(np.zeros(rows, dtype=np.int8), *columns)
    group = np.zeros(starts.size, dtype=np.int64)
    for column in columns:
        own = column[starts]
        mixed = group * (int(own.max(initial=0)) + 1) + own
        group = np.asarray(pd.factorize(mixed)[0], dtype=np.int64)
    first = np.unique(group, return_index=True)[1]
    return starts[first], np.repeat(group, lengths)
