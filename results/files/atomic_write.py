"""Files that are written aside and then renamed, so that a reader never meets half of one.

They are named by who writes them: a writer that is killed leaves its file, and the name tells
that nobody will rename it any more.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_NAME = re.compile(r"\.(?P<what>.+)\.(?P<pid>[1-9]\d{0,9})(\.tmp|\.[0-9a-f]{8})?")


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
