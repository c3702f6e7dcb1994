"""HDF5 as netCDF-4 reads it, made and read in memory.

A dimension is a dimension scale; one without values of its own carries netCDF's name for
that.  Small files are built in memory and written in one go: a run file costs one write,
one fsync and one rename.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fsmatrix.results.files import hdf_check, safefile
from fsmatrix.results.files.hdf_check import ATTRIBUTE_SIZE, ATTRIBUTE_TEXT
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import (
    SCHEMA_VERSION,
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
)

# A file that HDF5 may write to on a device that fills up.
#
# The HDF5 library does not survive a write that fails: closing the file fails too, and the
# process crashes later.  So no write fails here: the first error of the system is kept, what
# could not be written stays in memory until the file is closed, and whoever writes asks
# `check` often and stops.


class FaultTolerantFile:
    """A new file with the methods that h5py's driver for Python file objects calls."""

    def __init__(self, path: Path) -> None:
        """OSError if it cannot be made."""
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = 0
        self._size = 0
        self._kept: list[tuple[int, bytes]] = []
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error that the system gave."""
        if self._error is not None:
            raise self._error

    def sync(self) -> None:
        """Make the contents durable; raises what `check` raises."""
        self.check()
        os.fsync(self._handle)

    def close(self) -> None:
        """End it; HDF5 must have closed the file before."""
        os.close(self._handle)

    def write(self, data: memoryview) -> int:
        """Write at the position, or keep what cannot be written."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._handle, data[done:], self._position + done)
        except OSError as error:
            self._error = self._error or error
            self._kept.append((self._position + done, bytes(data[done:])))
        self._position += len(data)
        self._size = max(self._size, self._position)
        return len(data)

    def readinto(self, buffer: memoryview) -> int:
        """Read what was written, kept parts included; zeros where there is nothing."""
        length = len(buffer)
        content = os.pread(self._handle, length, self._position)
        buffer[:] = content + bytes(length - len(content))
        for start, data in self._kept:
            low = max(start, self._position)
            high = min(start + len(data), self._position + length)
            if low < high:
                part = data[low - start : high - start]
                buffer[low - self._position : high - self._position] = part
        self._position += length
        return length

    def read(self, size: int) -> bytes:
        """As `readinto` (h5py takes this method as the sign of a file)."""
        buffer = bytearray(size)
        self.readinto(memoryview(buffer))
        return bytes(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position as `io.RawIOBase.seek` does; returns it, bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        """The position, bytes from the beginning."""
        return self._position

    def truncate(self, size: int) -> int:
        """Set the length, bytes; the position stays."""
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            self._error = self._error or error
        self._size = size
        return size

    def flush(self) -> None:
        """Nothing to do: nothing is buffered here."""


IMAGES = itertools.count()  # for their names: HDF5 takes open files of one name for one file
LIBVER = ("earliest", "v108")
SEAL = b"fsmatrix"  # and a checksum: behind the end of the HDF5 file, where nobody minds
SEAL_SIZE = len(SEAL) + 16
SIGNATURE = b"\x89HDF\r\n\x1a\n"
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.%10d"
TEXT = h5py.string_dtype()
TEXT_TYPE = h5py.h5t.py_create(TEXT, logical=True)  # in the file
TEXT_MEMORY = h5py.h5t.py_create(TEXT)  # Python strings
SCALAR = h5py.h5s.create(h5py.h5s.SCALAR)
PACK_FROM = 512  # bytes: smaller arrays are stored as they are
# what h5py raises when it meets nonsense in a file
HDF5_ERRORS = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    ArithmeticError,
    SystemError,
)

Upgrade = Callable[[h5py.File], None]
UPGRADES: dict[int, Upgrade] = {}  # version -> brings a run file (in memory) to version + 1


class Group:
    """A group with its dimensions, while it is being written (h5py's low level: 3 x faster)."""

    def __init__(self, group: h5py.Group) -> None:
        self._id = group.id
        self._scales: dict[str, h5py.h5d.DatasetID] = {}

    def size(self, dimension: str) -> int:
        """Length of a dimension made before."""
        return int(self._scales[dimension].shape[0])

    def group(self, name: str) -> Group:
        """A new group inside this one."""
        return Group(h5py.Group(h5py.h5g.create(self._id, name.encode())))

    def dimension(self, name: str, size: int) -> None:
        """A dimension without values of its own."""
        space = h5py.h5s.create_simple((size,))
        scale = h5py.h5d.create(self._id, name.encode(), h5py.h5t.IEEE_F32BE, space)
        self._scale(name, scale, NO_VARIABLE % size)

    def coordinate(self, name: str, values: Any, attributes: Mapping[str, Any]) -> None:
        """A dimension with its values: a coordinate variable."""
        self._scale(name, self._dataset(name, values, attributes), name)

    def variable(
        self, name: str, values: Any, dims: Sequence[str], attributes: Mapping[str, Any]
    ) -> None:
        """A variable; `values` (an array or strings) has one axis per dimension of `dims`."""
        dataset = self._dataset(name, values, attributes)
        for axis, dim in enumerate(dims):
            h5py.h5ds.attach_scale(dataset, self._scales[dim], axis)

    def attributes(self, values: Mapping[str, Any]) -> None:
        """Attributes of the group: strings, numbers, arrays of numbers."""
        for name, value in values.items():
            _write_attribute(self._id, name, value)

    def _scale(self, name: str, dataset: h5py.h5d.DatasetID, label: str) -> None:
        h5py.h5ds.set_scale(dataset, label.encode())
        self._scales[name] = dataset

    def _dataset(self, name: str, values: Any, attributes: Mapping[str, Any]) -> h5py.h5d.DatasetID:
        array = _strings(values) if isinstance(values, list) else np.ascontiguousarray(values)
        kind = TEXT_TYPE if array.dtype.kind == "O" else h5py.h5t.py_create(array.dtype)
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if array.dtype.kind != "O" and array.nbytes >= PACK_FROM:
            create.set_chunk(array.shape)
            create.set_shuffle()
            create.set_deflate(1)
        space = h5py.h5s.create_simple(array.shape)
        dataset = h5py.h5d.create(self._id, name.encode(), kind, space, create)
        if array.dtype.kind == "O":
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array, TEXT_MEMORY)
        else:
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
        for key, value in attributes.items():
            _write_attribute(dataset, key, value)
        return dataset


def _strings(values: Sequence[str]) -> Any:
    array = np.empty(len(values), dtype=TEXT)
    array[:] = values
    return array


def _write_attribute(owner: Any, name: str, value: Any) -> None:
    if isinstance(value, str):
        array, kind = np.array(value, dtype=TEXT), TEXT_TYPE
    else:
        array = np.asarray(value)
        kind = h5py.h5t.py_create(array.dtype)
    space = h5py.h5s.create_simple(array.shape) if array.ndim else SCALAR
    attribute = h5py.h5a.create(owner, name.encode(), kind, space)
    if kind is TEXT_TYPE:
        attribute.write(array, TEXT_MEMORY)
    else:
        attribute.write(array)


def image(fill: Callable[[h5py.File], None]) -> bytes:
    """The bytes of an HDF5 file that `fill` makes, without touching a disk."""
    with h5py.File(
        f"image-{next(IMAGES)}",
        "w",
        driver="core",
        backing_store=False,
        block_size=1 << 16,
        libver=LIBVER,
    ) as file:
        fill(file)
        file.flush()
        data = bytes(file.id.get_file_image())
    return data + SEAL + _digest(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=SEAL_SIZE - len(SEAL)).digest()


def _check_seal(path: Path, data: bytes) -> None:
    """The HDF5 library may crash on damaged files, so it only sees what is as it was written.

    A file without seal was cut (HDF5 notices) or changed by another HDF5 program.
    """
    body, seal = data[:-SEAL_SIZE], data[-SEAL_SIZE:]
    if seal.startswith(SEAL) and seal != SEAL + _digest(body):
        raise DamagedFileError(path, "damaged: its contents do not fit its checksum")


@contextmanager
def reading(path: Path, kind: str) -> Iterator[h5py.File]:
    """The file at `path` as a copy in memory, upgraded to this schema.

    `kind` is the `format` that it must have.  Whatever is wrong comes as a ResultError.
    """
    try:
        data = safefile.read(path, hdf_check.RUN_FILE)
    except OSError as error:
        raise ResultError(path, f"cannot be read: {error.strerror or error}") from error
    _check_signature(path, data)
    _check_seal(path, data)
    kept: list[Any] = []
    try:
        with _open_image(data) as file:
            read_at = lambda first, size: data[first : first + size]  # noqa: E731
            hdf_check.check(path, file, len(data), read_at, hdf_check.RUN, kept)
            _check_schema(path, file, kind)
            yield file
    except ResultError:
        raise
    except HDF5_ERRORS as error:
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({_line(error)})") from error


def _open_image(data: bytes) -> h5py.File:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 16, False)
    access.set_file_image(data)
    name = b"image-%d" % next(IMAGES)
    return h5py.File(h5py.h5f.open(name, h5py.h5f.ACC_RDWR, fapl=access))


def _check_signature(path: Path, data: bytes) -> None:
    if not data:
        raise DamagedFileError(path, "truncated: the file is empty")
    if data.startswith(SIGNATURE):
        return
    if SIGNATURE.startswith(data[: len(SIGNATURE)]) or not any(data[: len(SIGNATURE)]):
        raise DamagedFileError(path, "truncated or damaged: the HDF5 signature is not whole")
    raise ForeignFileError(path, "not an HDF5 file")


def _check_schema(path: Path, file: h5py.File, kind: str) -> None:
    stored = file.attrs.get("format")
    if stored != kind:
        what = (
            f"a {stored!r} file" if isinstance(stored, str) else "an HDF5 file of another program"
        )
        raise ForeignFileError(path, f"{what}, not a {kind!r} file")
    version = int(file.attrs["schema_version"])
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(path, version)
    while version < SCHEMA_VERSION:
        if version not in UPGRADES:
            raise ResultError(path, f"schema {version} is not known to this fsmatrix")
        UPGRADES[version](file)
        version += 1


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


# Reading the groups of an open HDF5 file that was checked (hdf_check.py), by h5py's low level.


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
        values: dict[str, Any] = {}
        length = 0
        for index in range(count):
            attribute = h5py.h5a.open(self._id, index=index)
            value = values[attribute.name.decode()] = _attribute(attribute)
            length += len(value) if isinstance(value, str) else 0
            if length > ATTRIBUTE_TEXT:
                raise ValueError("the attributes are too long")
        return values

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
