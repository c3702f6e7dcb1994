"""Files that others may have made, or meet half written: read, written and trusted with care.

Reading.  A name may be a symbolic link, a FIFO that never says anything, a device that never ends,
a file that grows: it is opened without following and without waiting, what is open is looked at
(not the name: it may be another file by then), and what is read is bounded.

Writing.  Files are written aside and then renamed, so that a reader never meets half of one.  They
are named by who writes them: a writer that is killed leaves its file, and the name tells that
nobody will rename it any more.

Trust.  What stands in a store decides what is undone, ended and removed: it is written and acted on
by its owner alone.  Its directory, the folders in it and the files that say what to undo must
belong to the effective user, must not be writable for others, and must be what they seem: no
symbolic links, no devices.  Reading results asks none of this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

_NAME = re.compile(r"\.(?P<what>.+)\.(?P<pid>[1-9]\d{0,9})(\.tmp|\.[0-9a-f]{8})?")

FOLDER_MODE = 0o755  # of what we make: passes the check below, whatever the umask is
FILE_MODE = 0o644
FOLDERS = ("journal", "state", "runs", "locks", "slurm")  # of a store, where there are such
NOTES = ("journal", "locks")  # whose files are acted on
FILES = ("store.json", "campaign.json", "slurm/submission.json", "slurm/submitted.jsonl")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


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


def beside(path: Path, end: str = ".tmp") -> Path:
    """Where this process writes what is to become `path`."""
    return path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}{end}")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a write says which file it was: the system names it only where it opens it.

    One that a library made without an errno keeps its text as `strerror`.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            if error.errno is None:
                error.strerror = str(error)
            error.filename = str(path)
        raise


@contextlib.contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Where to write what becomes `path` when the block ends; if it raises, `path` stays as it was.

    `aside`: another name in the same folder than that of `beside`.  Nothing is made durable: the
    block syncs what it wrote, and `sync_directory` the new name.  OSError as the system gives it,
    with the name of a file.
    """
    aside = aside or beside(path)
    try:
        with naming(path):
            yield aside
            _rename(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def _rename(aside: Path, path: Path) -> None:
    """An error is one of `path`, such as a directory that is there: nobody knows the other name."""
    try:
        aside.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, data: bytes, aside: Path | None = None) -> None:
    """`data` at `path`, durable, or nothing: written aside, synced, renamed, directory synced.

    Others may not write it, whatever the umask is.  `aside` as for `replacing`.
    OSError as the system gives it (ENOSPC, EACCES...); what was written aside is removed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with naming(path):
        with (
            replacing(path, aside) as part,
            os.fdopen(os.open(part, flags, 0o644), "wb") as file,
        ):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make names in `directory` durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_abandoned(folders: Iterable[Path]) -> list[Path]:
    """Remove the regular files in `folders` that a process of this host wrote and that is gone.

    Those of other hosts stay: whether their writers live cannot be told here.
    """
    gone = []
    for folder in folders:
        for path in folder.glob(".*"):
            if _abandoned(path):
                path.unlink(missing_ok=True)
                gone.append(path)
    return gone


def _abandoned(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    if match is None or not match["what"].endswith(f".{os.uname().nodename}"):
        return False
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    return regular and not Path(f"/proc/{match['pid']}").exists()


class NotTrusted(ResultError):
    """Somebody else could have written it."""


def trust_flaw(path: Path, facts: os.stat_result, folder: bool) -> str:
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


def trust_flaws(store: Path) -> Iterator[tuple[Path, str]]:
    """What is wrong with a store's directory, folders and notes; what is not there is well."""
    yield from _look(store, folder=True)
    for name in FILES:
        yield from _look(store / name, folder=False)
    for name in FOLDERS:
        yield from _look(store / name, folder=True)
    for name in NOTES:
        yield from _inside(store / name)


def require_trusted(store: Path) -> None:
    """NotTrusted with the first flaw of a store, before anything in it is believed."""
    for path, reason in trust_flaws(store):
        raise NotTrusted(path, reason)


def make_folder(path: Path) -> None:
    """Make a folder that passes, or see that the present one does.  NotTrusted, OSError."""
    path.mkdir(FOLDER_MODE, exist_ok=True)
    for at, reason in _look(path, folder=True):
        raise NotTrusted(at, reason)


def read_note(path: Path, limit: int) -> bytes:
    """A note's content, of one descriptor that is looked at first.

    NotTrusted if others could have written it or it is longer than `limit` bytes; OSError as
    the system gives it.
    """
    if path.is_symlink():
        raise NotTrusted(path, trust_flaw(path, path.lstat(), folder=False))
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if reason := trust_flaw(path, facts, folder=False):
            raise NotTrusted(path, reason)
        if facts.st_size > limit:
            raise NotTrusted(path, f"is longer than {limit} bytes: not a file of ours")
        return file.read(limit)


def create_note(path: Path, data: bytes, *, replace: bool = False) -> None:
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
    if reason := trust_flaw(path, facts, folder):
        yield path, reason


def _inside(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of a folder of notes; folders in it are not ours and never read."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        yield from _look(path, folder=False)
