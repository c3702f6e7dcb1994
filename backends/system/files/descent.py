"""A directory and all below it, visited by descriptors: as deep as it may be, few of them open.

Nothing is reached by a path, no link is followed, and no other file system is entered.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_OPEN = 32  # directories; those above them are closed, and opened again as ".."
GONE = (errno.ENOENT, errno.ESTALE)  # also of network file systems
CHANGED = (errno.ENOTDIR, errno.ELOOP)  # it is no directory any more
_SHOWN = 200  # characters of a path in a message


@dataclass
class _Level:
    """A directory on the way down, and those in it that are still to be visited."""

    name: str
    handle: int  # -1: closed for now
    place: tuple[int, int]  # st_dev and st_ino
    below: list[str]


def visit(
    top: int, enter: Callable[[int], list[str]], leave: Callable[[int, str], None] | None = None
) -> None:
    """Visit an open directory and those below it.

    `enter` is called with the descriptor of each; it gives the names of those in it that are
    visited next.  `leave` is called with the descriptor of a directory and the name of one in it
    when that and all below it were visited.  What is gone by then is left out.  OSError with the
    path below `top` if something fails; EXDEV for a directory of another file system.
    """
    levels = [_Level("", top, _place(top), [])]
    try:
        levels[0].below = enter(top)
        while True:
            level = levels[-1]
            if level.below:
                _down(levels, level.below.pop(), enter)
                continue
            if len(levels) == 1:
                return
            _up(levels)
            if leave is not None:
                leave(levels[-1].handle, level.name)
    except OSError as error:
        if error.errno is None:
            raise
        names = [each.name for each in levels[1:]]
        names += [error.filename] if isinstance(error.filename, str) else []
        raise OSError(error.errno, error.strerror, _short("/".join(names))) from error
    finally:
        for level in levels[1:]:
            if level.handle >= 0:
                os.close(level.handle)


def _down(levels: list[_Level], name: str, enter: Callable[[int], list[str]]) -> None:
    try:
        handle = os.open(name, FOLDER, dir_fd=levels[-1].handle)
    except OSError as error:
        if error.errno in (*GONE, *CHANGED):
            return
        raise
    levels.append(_Level(name, handle, _place(handle), []))
    if levels[-1].place[0] != levels[0].place[0]:
        raise OSError(errno.EXDEV, "is on another file system")
    if len(levels) > MOST_OPEN + 1:
        far = levels[-MOST_OPEN - 1]
        os.close(far.handle)
        far.handle = -1
    levels[-1].below = enter(handle)


def _up(levels: list[_Level]) -> None:
    """Leave the last level; the one above it is open then, and still the same."""
    last, above = levels[-1], levels[-2]
    if above.handle < 0:
        above.handle = os.open("..", FOLDER, dir_fd=last.handle)
        if _place(above.handle) != above.place:
            raise OSError(errno.ESTALE, "was moved elsewhere meanwhile")
    levels.pop()
    os.close(last.handle)


def _place(handle: int) -> tuple[int, int]:
    facts = os.fstat(handle)
    return facts.st_dev, facts.st_ino


def _short(path: str) -> str:
    """A path for a message: the end of a long one."""
    return path if len(path) <= _SHOWN else f"...{path[-_SHOWN:]}"
