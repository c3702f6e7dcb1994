"""Files that others made, opened so that they can neither lead elsewhere nor make us wait.

A name may be a symbolic link, a FIFO that never says anything, a device that never ends, a
file that grows: it is opened without following and without waiting, what is open is looked
at (not the name: it may be another file by then), and what is read is bounded.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

# What is wrong with a file of results: which file, and why.


class ResultError(Exception):
    """A results file cannot be used: which one, and why."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason


PIECE = 1 << 20  # bytes read at once
DOCUMENT_LIMIT = 1 << 30  # bytes of a JSON document: a plan of a million runs is some 300 MB
LINK = "is a symbolic link"
KINDS = (
    (stat.S_ISDIR, "cannot be read: Is a directory"),
    (stat.S_ISLNK, LINK),
    (stat.S_ISFIFO, "is a FIFO, no regular file"),
    (stat.S_ISSOCK, "is a socket, no regular file"),
    (stat.S_ISCHR, "is a device, no regular file"),
    (stat.S_ISBLK, "is a device, no regular file"),
)
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnusableFileError(ResultError):
    """No regular file, or one that is too long."""


def unusable(mode: int) -> str:
    """Why a file of this mode (`st_mode`) is not read; empty for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((reason for is_kind, reason in KINDS if is_kind(mode)), "is no regular file")


def descriptor(path: Path | str, follow: bool = False) -> int:
    """A regular file, open for reading; the caller closes it.

    `follow`: a link that the user named may lead to it.  UnusableFileError for anything that is
    no regular file; OSError as the system gives it (ENOENT, EACCES, ...).
    """
    try:
        handle = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP:
            reason = "is a symbolic link that leads to itself" if follow else LINK
            raise UnusableFileError(path, reason) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):  # sockets; devices that are not there
            raise UnusableFileError(path, _kind(path)) from error
        raise
    reason = unusable(os.fstat(handle).st_mode)
    if reason:
        os.close(handle)
        raise UnusableFileError(path, reason)
    return handle


def _kind(path: Path | str) -> str:
    try:
        return unusable(Path(path).stat().st_mode) or "cannot be read"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def contents(handle: int, path: Path | str, limit: int) -> bytes:
    """All of an open file.  UnusableFileError if it is longer than `limit` bytes."""
    size = os.fstat(handle).st_size
    if size > limit:
        raise too_long(path, limit)
    parts = [os.read(handle, min(size, limit) + 1)]
    length = len(parts[0])
    while parts[-1] and length <= limit:  # it may grow, or say a wrong length (/proc)
        parts.append(os.read(handle, PIECE))
        length += len(parts[-1])
    if length > limit:
        raise too_long(path, limit)
    return parts[0] if length == len(parts[0]) else b"".join(parts)


def too_long(path: Path | str, limit: int) -> UnusableFileError:
    """The error for a file of more than `limit` bytes."""
    return UnusableFileError(path, f"is longer than {limit} bytes, the most that is read")


def read(path: Path | str, limit: int, follow: bool = False) -> bytes:
    """All bytes of a regular file; errors as `descriptor` and `contents`."""
    handle = descriptor(path, follow)
    try:
        return contents(handle, path, limit)
    finally:
        os.close(handle)


def read_text(path: Path | str, limit: int = DOCUMENT_LIMIT, follow: bool = False) -> str:
    """As `read`, in UTF-8; UnicodeDecodeError for what is none."""
    return read(path, limit, follow).decode("utf-8")


# YAML files that come with fsmatrix, read as pydantic models.


Model = TypeVar("Model", bound=BaseModel)


def load(path: Path, model: type[Model], refusal: str) -> Model:
    """The model that a file holds; ResultError of `refusal` and the reason if it holds none."""
    try:
        text = path.read_text(encoding="utf-8")
        return model.model_validate(YAML(typ="safe", pure=True).load(text))
    except (OSError, YAMLError, ValidationError) as error:
        raise ResultError(path, f"{refusal}: {error}") from error
