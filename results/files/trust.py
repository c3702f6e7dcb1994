"""Whose files these are: what stands in a store decides what is undone, ended and removed.

A store is written and acted on by its owner alone.  Its directory, the folders in it and the
files that say what to undo must belong to the effective user, must not be writable for others,
and must be what they seem: no symbolic links, no devices.  Reading results asks none of this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fsmatrix.results.files.atomic_write import naming
from fsmatrix.results.files.safefile import ResultError

FOLDER_MODE = 0o755  # of what we make: passes the check below, whatever the umask is
FILE_MODE = 0o644
FOLDERS = ("journal", "state", "runs", "locks", "slurm")  # of a store, where there are such
NOTES = ("journal", "locks")  # whose files are acted on
FILES = ("store.json", "campaign.json", "slurm/submission.json", "slurm/submitted.jsonl")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotTrusted(ResultError):
    """Somebody else could have written it."""


def flaw(path: Path, facts: os.stat_result, folder: bool) -> str:
    """Why nothing is done on the word of this file or folder (empty: it may be).

    `facts` are of lstat or of an open descriptor.
    """
    if stat.S_ISLNK(facts.st_mode):
        return f"is a symbolic link to {path.resolve()}: name that place itself"
    if folder and not stat.S_ISDIR(facts.st_mode):
        return "is no directory"
    if not folder and not stat.S_ISREG(facts.st_mode):
        return "is no regular file"
    me = os.geteuid()
    if facts.st_uid != me:
        return (
            f"belongs to user {facts.st_uid}, and this is user {me}: only its owner can run, "
            "resume or undo what is in it (looking at results needs no more than reading)"
        )
    if facts.st_mode & _OTHERS:
        return (
            f"can be written by others (mode {stat.S_IMODE(facts.st_mode):04o}), so what it says "
            f"is not acted on: if nobody has changed it, chmod go-w {path}"
        )
    return ""


def flaws(store: Path) -> Iterator[tuple[Path, str]]:
    """What is wrong with a store's directory, folders and notes; what is not there is well."""
    yield from _look(store, folder=True)
    for name in FILES:
        yield from _look(store / name, folder=False)
    for name in FOLDERS:
        yield from _look(store / name, folder=True)
    for name in NOTES:
        yield from _inside(store / name)


def require(store: Path) -> None:
    """NotTrusted with the first flaw of a store, before anything in it is believed."""
    for path, reason in flaws(store):
        raise NotTrusted(path, reason)


def make_folder(path: Path) -> None:
    """Make a folder that passes, or see that the present one does.  NotTrusted, OSError."""
    path.mkdir(FOLDER_MODE, exist_ok=True)
    for at, reason in _look(path, folder=True):
        raise NotTrusted(at, reason)


def read(path: Path, limit: int) -> bytes:
    """A note's content, of one descriptor that is looked at first.

    NotTrusted if others could have written it or it is longer than `limit` bytes; OSError as
    the system gives it.
    """
    if path.is_symlink():
        raise NotTrusted(path, flaw(path, path.lstat(), folder=False))
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if reason := flaw(path, facts, folder=False):
            raise NotTrusted(path, reason)
        if facts.st_size > limit:
            raise NotTrusted(path, f"is longer than {limit} bytes: not a file of ours")
        return file.read(limit)


def create(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a new file that passes (or, with `replace`, an own one anew); not made durable."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= os.O_TRUNC if replace else os.O_EXCL
    descriptor = os.open(path, flags, FILE_MODE)
    with naming(path), os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _look(path: Path, folder: bool) -> Iterator[tuple[Path, str]]:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if reason := flaw(path, facts, folder):
        yield path, reason


def _inside(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of a folder of notes; folders in it are not ours and never read."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        yield from _look(path, folder=False)
