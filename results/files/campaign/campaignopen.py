"""Campaign files opened: looked at before anything of them is read.

Somebody else may have made them (a bundle, a mail): what HDF5 could be led to is refused
(hdfcheck.py), and so are columns and indexes that do not fit each other (campaigncheck.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.files import safefile
from fsmatrix.results.files.campaign import campaigncheck
from fsmatrix.results.files.hdf5 import check as hdfcheck
from fsmatrix.results.files.hdf5.hdf import HDF5_ERRORS, SIGNATURE, Source
from fsmatrix.results.files.hdf5.schema import (
    CAMPAIGN_FORMAT,
    SCHEMA_VERSION,
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
)
from fsmatrix.results.files.safefile import ResultError

LARGE = 64 << 20  # bytes of a file of which only large pieces are unpacked to look at them


@dataclass(frozen=True)
class Opened:
    """A campaign file that is open for reading and whose layout was checked."""

    file: h5py.File
    size: int  # bytes of the file
    unpacked: int  # bytes of its variables in memory


def opened(path: Path, follow: bool = True) -> Opened:
    """A campaign file that was looked at; the caller closes it.

    `follow`: the user named it, so that it may be a link.  ResultError (missing, no file,
    foreign, newer, damaged, refused) if it is none.
    """
    try:
        handle = safefile.descriptor(path, follow)
    except OSError as error:
        raise ResultError(path, _why(error)) from error
    try:
        return _opened(path, handle)
    finally:
        os.close(handle)  # HDF5 has opened the same file, by its descriptor, for itself


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return f"cannot be read: {error.strerror or error}"


def _opened(path: Path, handle: int) -> Opened:
    begin = os.pread(handle, len(SIGNATURE), 0)
    if not begin:
        raise DamagedFileError(path, "truncated: the file is empty")
    if begin != SIGNATURE:
        raise ForeignFileError(path, "not a campaign file of fsmatrix (not HDF5)")
    size = os.fstat(handle).st_size
    limits = hdfcheck.LARGE_CAMPAIGN if size > LARGE else hdfcheck.CAMPAIGN
    cache: dict[str, Json] = {"rdcc_nbytes": 0} if size > LARGE else {}  # one piece at a time
    try:
        file = h5py.File(f"/proc/self/fd/{handle}", "r", **cache)
    except HDF5_ERRORS as error:
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error
    try:
        unpacked = hdfcheck.check(
            path, file, size, lambda first, length: os.pread(handle, length, first), limits
        )
        _check_schema(path, file)
        campaigncheck.check(path, file)
        return Opened(file, size, unpacked)
    except BaseException as error:
        file.close()
        if isinstance(error, ResultError) or not isinstance(error, HDF5_ERRORS):
            raise
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error


def _check_schema(path: Path, file: h5py.File) -> None:
    attributes = Source(file).attributes()
    if attributes.get("format") != CAMPAIGN_FORMAT:
        raise ForeignFileError(path, "not a campaign file of fsmatrix")
    # a single number: netCDF's writers store it as an array of one
    version = int(np.asarray(attributes.get("schema_version", 0)).reshape(()))
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(path, version)


@contextmanager
def reading(path: Path | str) -> Iterator[h5py.File]:
    """An open campaign file.  ResultError (missing, foreign, newer, damaged) if it is none."""
    campaign = opened(Path(path))
    with campaign.file:
        yield campaign.file


def attributes(path: Path) -> dict[str, Json]:
    """The attributes of a campaign file, nothing else of it is looked at.

    ResultError and OSError as `opened`.
    """
    handle = safefile.descriptor(path)
    try:
        with h5py.File(f"/proc/self/fd/{handle}", "r") as file:
            return Source(file).attributes()
    except HDF5_ERRORS as error:
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error
    finally:
        os.close(handle)
