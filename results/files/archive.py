"""Files as one compressed archive: the same files always give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import mmap
import os
import tarfile
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from fsmatrix.results.files.safefile import ResultError, descriptor

SUMS = "SHA256SUMS"
LEVEL = 6  # of gzip
Members = Mapping[str, Path]  # name in the archive's folder -> file
Tell = Callable[[str, int, int], None]  # what is done, done so far, in total


def digests(members: Members, tell: Tell) -> dict[str, str]:
    """SHA-256 of every member, by name, sorted."""
    digest_of = {}
    for done, name in enumerate(sorted(members), 1):
        with _opened(members[name]) as file:
            digest_of[name] = hashlib.file_digest(file, "sha256").hexdigest()
        tell("checksums", done, len(members))
    return digest_of


def sums(digest_of: Mapping[str, str]) -> str:
    """Checksums as `sha256sum` prints and checks them."""
    return "".join(f"{digest}  {name}\n" for name, digest in digest_of.items())


def pack(
    path: Path,
    folder: str,
    members: Members,
    digest_of: Mapping[str, str],
    time: int,
    tell: Tell,
) -> None:
    """A tar.gz at `path` with all members in one folder, sorted, durable.

    No owner, no host, one time (Unix, seconds) for all.  ResultError if a member is not what
    its checksum in `digest_of` says; OSError as the system gives it.
    """
    with path.open("wb") as raw:
        with (
            gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in ("", "runs/"):
                archive.addfile(_entry(f"{folder}/{name}", 0, time, tarfile.DIRTYPE))
            for done, name in enumerate(sorted(members), 1):
                digest = _add(archive, f"{folder}/{name}", members[name], time)
                if digest != digest_of.get(name, digest):
                    raise ResultError(members[name], "changed while it was packed: try again")
                archive.getmembers().clear()  # it would keep one object for each file
                tell("archive", done, len(members))
        raw.flush()
        os.fsync(raw.fileno())


def _add(archive: tarfile.TarFile, name: str, path: Path, time: int) -> str:
    """Adds one file; its SHA-256."""
    with _opened(path) as file:
        hashed = _Hashed(file)
        archive.addfile(_entry(name, os.fstat(file.fileno()).st_size, time), hashed)
    return hashed.digest.hexdigest()


def _opened(path: Path) -> BufferedReader:
    """ResultError for a link or anything else that is no regular file: it may be new there."""
    return os.fdopen(descriptor(path), "rb")


class _Hashed:
    """A file whose bytes are hashed while they are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _entry(name: str, size: int, time: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """Nobody's, and readable for all."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.type = size, time, kind
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace the one place of a text in a file, in place, by another of the same length.

    HDF5 itself would keep the old text in a gap of the file.  ValueError for other lengths.
    """
    if len(old) != len(new):
        raise ValueError(f"{old!r} and {new!r} are not of one length")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        place = data.find(old.encode())
        if place < 0 or data.find(old.encode(), place + 1) >= 0:
            return  # what was measured holds the same text: the bytes differ from time to time
        data[place : place + len(old)] = new.encode()
