"""The schema's version, its errors, and how text and JSON are stored.  See docs/results.md."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.files.safefile import ResultError

SCHEMA_VERSION = 1
RUN_FORMAT = "fsmatrix run"
NODES_FORMAT = "fsmatrix nodes"
CAMPAIGN_FORMAT = "fsmatrix campaign"
STORE_FORMAT = "fsmatrix store"

ESCAPE = "json:"


class NewerSchemaError(ResultError):
    """Made by a newer fsmatrix than this one."""

    def __init__(self, path: Path | str, schema: int) -> None:
        super().__init__(
            path,
            f"made by a newer fsmatrix (schema {schema}, this one reads up to {SCHEMA_VERSION})",
        )
        self.schema = schema


class ForeignFileError(ResultError):
    """A file of somebody else's: not HDF5, or HDF5 with other contents."""


class DamagedFileError(ResultError):
    """A file of ours that is truncated or damaged."""


class InvalidRecordError(ResultError):
    """What is to be stored, or was, is no record: contradicting shapes, values of wrong types."""


def to_json(value: Any) -> str:
    """ASCII JSON; numpy values and what is `Stored` become plain.  TypeError for anything else.

    NaN and infinities are written as Python's json does (NaN, Infinity).
    """
    return json.dumps(value, separators=(",", ":"), default=_plain)


def from_json(text: str) -> Any:
    """Inverse of `to_json`; ValueError for other text."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Stored):
        return value.document()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON-able: {value!r:.80}")


def encode_text(text: str) -> str:
    """Text as HDF5 can hold it: with NUL or lone surrogates as `json:"..."`."""
    if text.startswith(ESCAPE) or "\0" in text or not _encodable(text):
        return ESCAPE + json.dumps(text)
    return text


def decode_text(text: str) -> str:
    """Inverse of `encode_text`."""
    if text.startswith(ESCAPE):
        return str(from_json(text[len(ESCAPE) :]))
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# Columns of the campaign file that grow while runs are streamed in.
#
# Numbers go to disk in blocks.  Strings and levels are coded: memory holds one small integer
# per row and each different value once; when all is known they become fixed-length strings
# or numbers.


BLOCK = 256  # rows that are buffered
CHUNK = 4096  # elements of one HDF5 chunk
MISSING = 0  # code of "no value"
SPAN = 65536  # rows decoded at once, fewer of long strings
DECODED = 64 << 20  # bytes of decoded rows


def create(
    file: h5py.File, name: str, dtype: Any, attributes: Mapping[str, Any], size: int = 0
) -> h5py.Dataset:
    """An extendable, compressed variable with one dimension."""
    fixed = np.dtype(dtype).kind != "O"
    dataset = file.create_dataset(
        name,
        shape=(size,),
        maxshape=(None,),
        dtype=dtype,
        chunks=(CHUNK,),
        compression=1 if fixed else None,
        shuffle=fixed,
    )
    for key, value in attributes.items():
        dataset.attrs[key] = value
    return dataset


class Appender:
    """A dataset that takes values in blocks."""

    def __init__(
        self, file: h5py.File, name: str, dtype: Any, attributes: Mapping[str, Any]
    ) -> None:
        self.dataset = create(file, name, dtype, attributes)
        self._dtype = self.dataset.dtype
        self._single: list[Any] = []
        self._parts: list[Any] = []
        self._waiting = 0

    def append(self, value: Any) -> None:
        """Add one value; it is written when the buffer is full."""
        self._single.append(value)
        if len(self._single) >= BLOCK:
            self._gather()

    def extend(self, values: Any) -> None:
        """Several values; they are kept until a block is full."""
        if self._single:
            self._gather()
        if len(values):
            self._parts.append(np.asarray(values, dtype=self._dtype))
            self._waiting += len(values)
        if self._waiting >= CHUNK or len(self._parts) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write the values that wait in the buffer."""
        if self._single:
            self._gather()
        if not self._waiting:
            return
        first = self.dataset.shape[0]
        self.dataset.resize((first + self._waiting,))
        self.dataset[first:] = np.concatenate(self._parts)
        self._parts.clear()
        self._waiting = 0

    def _gather(self) -> None:
        values, self._single = self._single, []
        self.extend(values)


class Coded:
    """A column of strings or levels, coded while it grows.  Code 0: no value."""

    def __init__(self, rows: int = 0) -> None:
        self._codes = array("i", bytes(4 * rows))
        self._index: dict[tuple[type, Any], int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def append(self, value: str | int | float | None) -> None:
        """One value; None or "" for none."""
        self._codes.append(self.code(value))

    def code(self, value: str | int | float | None) -> int:
        """The code of a value, made if it is new."""
        if value is None or value == "" or value != value:
            return MISSING
        return self._index.setdefault((type(value), value), len(self._index) + 1)

    def write(self, file: h5py.File, name: str, attributes: Mapping[str, Any]) -> h5py.Dataset:
        """The final variable: int64, float64 or fixed-length UTF-8 strings."""
        values = [value for _, value in self._index]
        table = self._table(values)
        if table.dtype.kind == "S":
            attributes = {**attributes, "_Encoding": "utf-8"}
        dataset = create(file, name, table.dtype, attributes, len(self))
        for first, codes in self._spans(max(1, min(SPAN, DECODED // table.dtype.itemsize))):
            dataset[first : first + len(codes)] = table[codes]
        return dataset

    def _table(self, values: list[Any]) -> npt.NDArray[Any]:
        """The values by code, as integers, floats or encoded texts."""
        types = {kind for kind, _ in self._index}
        gaps = MISSING in self._codes
        if types == {int} and not gaps:
            return np.array([0, *values], dtype=np.int64)
        if types and types <= {int, float}:
            return np.array([float("nan"), *values], dtype=np.float64)
        return np.array([b"", *(encode_text(str(v)).encode() for v in values)])

    def _spans(self, span: int) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        codes = np.frombuffer(self._codes, dtype=np.int32)
        for first in range(0, len(codes), span):
            yield first, codes[first : first + span]


class Table:
    """Different texts, each stored once; `code` gives the row."""

    def __init__(self, file: h5py.File, name: str, attributes: Mapping[str, Any]) -> None:
        self.column = Appender(file, name, h5py.string_dtype(), attributes)
        self._rows: dict[str, int] = {}

    def code(self, key: str, text: str) -> int:
        """Row of `text`; texts are the same if `key` (a digest) is."""
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            self.column.append(encode_text(text))
        return self._rows[key]
