"""HDF5 as netCDF-4 reads it, made and read in memory, and files that appear whole or not.

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

from fsmatrix.results.files import asides, safefile
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.files.hdf5 import check as hdfcheck
from fsmatrix.results.files.hdf5.schema import (
    SCHEMA_VERSION,
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
)

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
    OSError, RuntimeError, KeyError, ValueError, TypeError, IndexError, AttributeError,
    OverflowError, MemoryError, ArithmeticError, SystemError,
)  # fmt: skip

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
        f"image-{next(IMAGES)}", "w",
        driver="core", backing_store=False, block_size=1 << 16, libver=LIBVER,
    ) as file:  # fmt: skip
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
        data = safefile.read(path, hdfcheck.RUN_FILE)
    except OSError as error:
        raise ResultError(path, f"cannot be read: {error.strerror or error}") from error
    _check_signature(path, data)
    _check_seal(path, data)
    kept: list[Any] = []
    try:
        with _open_image(data) as file:
            read_at = lambda first, size: data[first : first + size]  # noqa: E731
            hdfcheck.check(path, file, len(data), read_at, hdfcheck.RUN, kept)
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
    found = file.attrs.get("format")
    if found != kind:
        what = f"a {found!r} file" if isinstance(found, str) else "an HDF5 file of another program"
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


def write_whole(path: Path, data: bytes) -> None:
    """`data` at `path`, durable, or nothing: written aside, synced, renamed, directory synced.

    Others may not write it, whatever the umask is.
    OSError as the system gives it (ENOSPC, EACCES...); what was written aside is removed.
    """
    aside = asides.beside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with asides.naming(path):
        try:
            with os.fdopen(os.open(aside, flags, 0o644), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names in `directory` durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
