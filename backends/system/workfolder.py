"""Temporary folders that are found again when the process that made them was killed.

Each is locked (flock) as long as its maker lives: what can be locked by another has no maker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsmatrix.backends.system import mounts
from fsmatrix.backends.system.files import FOLDER, GONE, visit
from fsmatrix.backends.system.trusted import temporary_refusal

# The suite's removal of directories: runs, trees, scratch; also while other kernels remove them.
#
# By descriptors (trusted.py): links are not followed, other file systems and mounts not
# entered, and neither depth nor the limit of open files matters.


PAUSE = 0.5  # seconds between two attempts on a mount that remembers names
_ATTEMPTS = 10  # without one, while something is made in it
_BRIEF = 0.02
_AGAIN = (errno.ENOTEMPTY, errno.EEXIST, *GONE)  # something was made or moved meanwhile


def remove_tree(path: Path, memory: float = 0.0) -> None:
    """Remove a directory and all in it; what is gone already is no error.  OSError if not.

    `memory`: seconds for which this kernel may remember names that others have removed, and miss
    names that they have made.
    """
    refuse_mounts(path)
    deadline = time.monotonic() + memory
    for attempt in range(1, 1 << 30):
        try:
            handle = os.open(path, FOLDER)
            try:
                empty(handle, str(path))
            finally:
                os.close(handle)
            path.rmdir()
        except OSError as error:
            if error.errno in GONE and not os.path.lexists(path):
                return
            late = time.monotonic() >= deadline
            if late and (attempt >= _ATTEMPTS or error.errno not in _AGAIN):
                raise
            time.sleep(_BRIEF if late or attempt < _ATTEMPTS else PAUSE)
        else:
            return


def empty(top: int, name: str, keep: str = "") -> None:
    """Remove all in an open directory but the file `keep`; OSError with the path below `name`."""

    def enter(folder: int) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
        except OSError as error:
            if error.errno in GONE:
                return []
            raise
        below = [entry for entry, is_folder in found if is_folder]
        for entry, is_folder in found:
            if not is_folder and not (folder == top and entry == keep):
                below += _unlinked(folder, entry)
        return below

    def leave(folder: int, entry: str) -> None:
        try:
            os.rmdir(entry, dir_fd=folder)
        except OSError as error:
            if error.errno not in GONE:
                raise

    try:
        visit(top, enter, leave)
    except OSError as error:
        below = Path(name, error.filename or "")
        raise OSError(error.errno, f"{error.strerror}: not removed", str(below)) from error


def _unlinked(folder: int, entry: str) -> list[str]:
    """Remove what is no directory; its name if it is one by now."""
    try:
        os.unlink(entry, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EISDIR:
            return [entry]
        if error.errno not in GONE:
            raise
    return []


def refuse_mounts(path: Path) -> None:
    """OSError if something is mounted at or below a directory."""
    inside = mounts.mounted_below(path.resolve())
    if inside:
        raise OSError(errno.EBUSY, f"{inside[0].point} is mounted in it: not removed", str(path))


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
