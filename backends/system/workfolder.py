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

from fsmatrix.backends.system.files.descent import FOLDER
from fsmatrix.backends.system.removal import remove_tree

PREFIX = "fsmatrix-work-"
_NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
_MODES = (0o700, 0o711)  # 0711: a database's user passes through
TRIES = 10


@contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder of our own, gone with all in it at the end.  OSError if none can be."""
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
            handle = os.open(path, FOLDER)
            try:
                facts = os.fstat(handle)
                if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) in _MODES:
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
            handle = os.open(path, FOLDER)
            with contextlib.suppress(OSError):  # a file system without locks: never swept either
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink and path.exists():
                return path, handle
            os.close(handle)
    raise FileNotFoundError(f"{PREFIX}* in {tempfile.gettempdir()} is removed again and again")


def _remove(path: Path) -> None:
    """The folder, with all in it; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        remove_tree(path)
