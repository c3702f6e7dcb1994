"""Temporary folders that are found again when the process that made them was killed.

Each is locked (flock) as long as its maker lives: what can be locked by another has no maker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "fsmatrix-work-"
_NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TRIES = 10


@contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder of our own, gone with all files in it at the end.  OSError if none can be."""
    path, handle = _locked()
    try:
        yield path
    finally:
        _remove(path)
        os.close(handle)


def sweep() -> list[Path]:
    """Remove the folders of makers that are gone, of this user in this TMPDIR; which they were."""
    gone = []
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not _NAME.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError):  # it just went, is in use, or another user's
            handle = os.open(path, _FLAGS)
            try:
                facts = os.fstat(handle)
                ours = facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) == 0o700
                if ours:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
                    gone.append(path)
            finally:
                os.close(handle)
    return gone


def _locked() -> tuple[Path, int]:
    """A new folder, and what keeps it locked; another one if a sweep was quicker."""
    for _ in range(TRIES):
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, _FLAGS)
            with contextlib.suppress(OSError):  # a file system without locks: never swept either
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink and path.exists():
                return path, handle
            os.close(handle)
    raise FileNotFoundError(f"{PREFIX}* in {tempfile.gettempdir()} is removed again and again")


def _remove(path: Path) -> None:
    """The folder, with the files in it; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if not entry.is_dir() or entry.is_symlink():
                entry.unlink(missing_ok=True)
        path.rmdir()
