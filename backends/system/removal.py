"""The suite's removal of directories: runs, trees, scratch; also while other kernels remove them.

By descriptors (files/descent.py): links are not followed, other file systems and mounts not
entered, and neither depth nor the limit of open files matters.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from fsmatrix.backends.system import mounts
from fsmatrix.backends.system.files.descent import FOLDER, GONE, visit

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
