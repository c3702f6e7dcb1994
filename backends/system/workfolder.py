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
from fsmatrix.backends.system.files.trusted import temporary_refusal
from fsmatrix.backends.system.removal import remove_tree

PREFIX = "fsmatrix-work-"
_DRAWN = "[a-z0-9_]{8}"  # what tempfile draws
_MODES = (0o700, 0o711)  # 0711: others pass through, such as a database's user
TRIES = 10


@contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder of our own, gone with all in it at the end.  OSError if none can be."""
    path, handle = locked()
    try:
        yield path
    finally:
        _remove(path)
        os.close(handle)


def sweep() -> list[Path]:
    """Remove the folders of makers that are gone, of this user in this TMPDIR; which they were."""
    gone = []
    for path, handle in abandoned():
        _remove(path)
        os.close(handle)
        gone.append(path)
    return gone


def locked(prefix: str = PREFIX) -> tuple[Path, int]:
    """A new folder, and what keeps it locked; another one if a sweep was quicker.

    OSError if none can be made, and as root if others could put their own in its place.
    """
    if reason := temporary_refusal():
        raise OSError(reason)
    for _ in range(TRIES):
        path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, FOLDER)
            with contextlib.suppress(OSError):  # a file system without locks: never swept either
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink and path.exists():
                return path, handle
            os.close(handle)
    raise FileNotFoundError(f"{prefix}* in {tempfile.gettempdir()} is removed again and again")


def abandoned(prefix: str = PREFIX) -> Iterator[tuple[Path, int]]:
    """Folders of makers that are gone, of this user in this TMPDIR, each with its lock held."""
    for path in made(prefix):
        with contextlib.suppress(OSError):  # it just went
            handle = os.open(path, FOLDER)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # it is in use
                os.close(handle)
                continue
            yield path, handle


def made(prefix: str = PREFIX) -> list[Path]:
    """Folders of this user in this TMPDIR, whether their makers live or not."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{prefix}*")):
        if not re.fullmatch(f"{re.escape(prefix)}{_DRAWN}", path.name):
            continue
        with contextlib.suppress(OSError):
            facts = path.lstat()
            mode = stat.S_IMODE(facts.st_mode)
            ours = stat.S_ISDIR(facts.st_mode) and mode in _MODES
            if ours and facts.st_uid == os.geteuid():
                found.append(path)
    return found


def _remove(path: Path) -> None:
    """The folder, with all in it; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        remove_tree(path)
