"""Reads traces: header and tables at once, operations in blocks; nothing of a file is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fsmatrix.results.files import hdf, hdf_check, safefile
from fsmatrix.traces.model import (
    ABSENT,
    BLOCK,
    COLUMNS,
    FORMAT,
    VERSION,
    Columns,
    Files,
    Header,
    TraceError,
    name_problem,
    problem,
)

MOST_FILES = 1 << 24  # a table of them, and the player's slots, stay in memory
# A chunk has 64 Ki values of at most 8 bytes: what is stored in so many bytes need not be tried.
LIMITS = hdf_check.Limits(objects=64, depth=2, unpacked=1 << 50, inflate_from=600 << 10)
TABLES: Mapping[str, str] = {
    "files/names": "u1",
    "files/ends": "u8",
    "files/size": "i8",
    "files/directory": "u1",
    "slots/file": "u4",
    "threads/process": "u8",
    "threads/thread": "u8",
    "threads/rank": "u8",
}


class Trace:
    """An open trace, as model.Operations.  Made by `opened`."""

    def __init__(self, path: Path, file: h5py.File) -> None:
        self.path = path
        self._file = file
        self.header = _header(path, file)
        tables = {name: _table(path, file, name, kind) for name, kind in TABLES.items()}
        _check_tables(path, tables)
        self.files = _files(tables)
        self.slots: npt.NDArray[np.uint32] = tables["slots/file"]  # file of each slot
        self.threads: npt.NDArray[np.uint64] = np.column_stack(  # [thread, (process, id, rank)]
            [tables[f"threads/{name}"] for name in ("process", "thread", "rank")]
        )
        self._data = {name: _column(path, file, name, dtype) for name, dtype in COLUMNS.items()}
        self.operations = int(self._data["kind"].shape[0])
        if any(data.shape[0] != self.operations for data in self._data.values()):
            raise TraceError(path, "damaged: its columns have different lengths")

    def blocks(
        self,
        columns: Sequence[str] = tuple(COLUMNS),
        first: int = 0,
        stop: int | None = None,
        block: int = BLOCK,
    ) -> Iterator[Columns]:
        """Operations first, first + 1, ... stop - 1, checked, `block` of them at a time."""
        stop = self.operations if stop is None else min(stop, self.operations)
        after = 0
        for begin in range(first, stop, block):
            end = min(begin + block, stop)
            try:
                part = {name: self._data[name][begin:end] for name in columns}
            except hdf.HDF5_ERRORS as error:
                raise TraceError(self.path, f"damaged: {str(error)[:200]}") from error
            wrong = problem(part, len(self.slots), len(self.threads), after)
            if wrong is not None:
                raise TraceError(self.path, f"operation {begin + wrong[0]} has {wrong[1]}")
            if "time" in part:
                after = int(part["time"][-1])
            yield part


@contextmanager
def opened(path: Path | str) -> Iterator[Trace]:
    """The trace at `path`.  ResultError for what is none, is damaged, or is of a newer format."""
    path = Path(path)
    try:
        handle = safefile.descriptor(path, follow=True)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error
    with ExitStack() as closing:
        raw = closing.enter_context(os.fdopen(handle, "rb"))
        try:
            file = closing.enter_context(h5py.File(raw, "r"))
            size = os.fstat(handle).st_size
            hdf_check.check(path, file, size, lambda at, n: os.pread(handle, n, at), LIMITS)
            trace = Trace(path, file)
        except hdf.HDF5_ERRORS as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise  # of another file
            raise TraceError(path, f"not a trace, or damaged: {str(error)[:200]}") from error
        yield trace


def _header(path: Path, file: h5py.File) -> Header:
    attributes = file.attrs
    if attributes.get("format") != FORMAT:
        raise TraceError(path, "an HDF5 file, but not a trace of fsmatrix")
    version = int(attributes["version"])
    if version != VERSION:
        raise TraceError(path, f"has format {version}; this fsmatrix reads {VERSION}")
    try:
        command, unseen, facts = (
            json.loads(str(attributes[name])) for name in ("command", "unseen", "facts")
        )
        return Header(
            source=str(attributes["source"]),
            command=tuple(str(word) for word in command),
            timed=bool(attributes["timed"]),
            anonymised=bool(attributes["anonymised"]),
            unseen={str(what): int(count) for what, count in unseen.items()},
            facts=dict(facts),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TraceError(path, f"damaged: its header cannot be understood: {error}") from error


def _table(path: Path, file: h5py.File, name: str, kind: str) -> npt.NDArray[Any]:
    data = _dataset(path, file, name, kind)
    if data.shape[0] * data.dtype.itemsize > MOST_FILES * 256:
        raise TraceError(path, f"its table {name} is longer than the longest that is read")
    return np.asarray(data[:])


def _column(path: Path, file: h5py.File, name: str, dtype: np.dtype[Any]) -> h5py.Dataset:
    return _dataset(path, file, f"operations/{name}", dtype.str)


def _dataset(path: Path, file: h5py.File, name: str, kind: str) -> h5py.Dataset:
    data = file.get(name)
    if not isinstance(data, h5py.Dataset) or data.dtype != np.dtype(kind) or data.ndim != 1:
        raise TraceError(path, f"damaged: {name} is missing, or has another type")
    if data.chunks is not None and data.chunks[0] > BLOCK:  # HDF5 makes room for a whole one
        raise TraceError(path, f"damaged: {name} has chunks of more than {BLOCK} values")
    if not _whole(data):
        raise TraceError(path, f"damaged: {name} has more values than the file holds")
    return data


def _whole(data: h5py.Dataset) -> bool:
    """Whether all values are stored: HDF5 makes up the others, as many as a file asks for."""
    count = data.shape[0]
    if data.chunks is None:
        return bool(data.id.get_storage_size() >= count * data.dtype.itemsize)
    return bool(data.id.get_num_chunks() >= -(-count // data.chunks[0]))


def _files(tables: Mapping[str, npt.NDArray[Any]]) -> Files:
    names, ends, size, directory = (
        tables[f"files/{name}"] for name in ("names", "ends", "size", "directory")
    )
    return Files(names.tobytes(), ends, size, directory.astype(bool))


def _check_tables(path: Path, tables: Mapping[str, npt.NDArray[Any]]) -> None:
    ends, names = tables["files/ends"], tables["files/names"]
    lengths = {len(tables[f"files/{name}"]) for name in ("ends", "size", "directory")}
    threads = {len(tables[f"threads/{name}"]) for name in ("process", "thread", "rank")}
    if len(lengths) > 1 or len(threads) > 1 or 0 in threads:
        raise TraceError(path, "damaged: its tables have different lengths")
    if len(ends) > MOST_FILES or len(tables["slots/file"]) > MOST_FILES:
        raise TraceError(path, f"has more than {MOST_FILES} files or slots")
    ordered = len(ends) == 0 or bool(np.all(ends[1:] > ends[:-1]))
    if not ordered or (int(ends[-1]) if len(ends) else 0) != len(names):
        raise TraceError(path, "damaged: its names do not fit their table")
    if np.any(tables["slots/file"] >= len(ends)) or np.any(tables["files/size"] < ABSENT):
        raise TraceError(path, "damaged: a slot has no file, or a file a negative size")
    seen = set()
    for name in _files(tables).names():
        if reason := name_problem(name):
            raise TraceError(path, reason)
        seen.add(name)
    if len(seen) < len(ends):
        raise TraceError(path, "damaged: a path occurs twice in its table")
