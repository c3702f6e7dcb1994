"""Files: paths as written, directories visited by descriptors, and what of a file is really there.

Paths as people write them have ~ and variables, which are replaced where the path is used, on that
machine.  A directory and all below it, as deep as it may be, is visited with few descriptors open:
nothing is reached by a path, no link is followed, and no other file system is entered.  What is
there of a file is told for the page cache and for its device.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.libc import libc

_BEGIN = re.compile(r"(~|\$\w+|\$\{\w+\})(?:/(.*))?", re.DOTALL | re.ASCII)
ALLOWED_IN_PATHS = "absolute, or begin with ~ or a variable such as $HOME or $SCRATCH"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_OPEN = 32  # directories; those above them are closed, and opened again as ".."
GONE = (errno.ENOENT, errno.ESTALE)  # also of network file systems
CHANGED = (errno.ENOTDIR, errno.ELOOP)  # it is no directory any more
_SHOWN = 200  # characters of a path in a message
# Which parts of a file were really written: FIEMAP (linux/fiemap.h).
_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct("=QQIIII")  # start, length, flags, mapped, room, reserved
_EXTENT = struct.Struct("=QQQQQIIII")  # logical, physical, length, 2 reserved, flags, 3 reserved
_SYNC = 1
_LAST, _UNWRITTEN = 0x1, 0x800
_ROOM = 128  # extents asked for at once


def wrong_path(path: str) -> str:
    """Why a text is no such path (empty: it is one).  No variable is looked up."""
    if "\0" in path:
        return f"path {path!r} must not contain a NUL character"
    if not path.startswith(("/", "$")) and not _BEGIN.fullmatch(path):
        return f"path {path!r} must be {ALLOWED_IN_PATHS}"
    if not Template(path).is_valid():
        return f"path {path!r} has a $ that begins no variable: write $$ for the sign itself"
    return ""


def expand(path: str, follow: bool = True) -> Path:
    """The path that is meant here.

    `follow`: without the links in what ~ or a first variable stands for; with them it tells who
    could lead it elsewhere.  BackendError if it is no such path, a variable is not set here, or
    what comes out is not absolute.  TMPDIR is /tmp where it is not set.
    """
    if reason := wrong_path(path):
        raise BackendError(reason)
    match = _BEGIN.fullmatch(path)
    if match is None:
        return _absolute(_replaced(path, path), path)
    begin = "$HOME" if match[1] == "~" else match[1]
    _absolute(_replaced(begin + path[len(match[1]) :], path), path)  # the whole, for its error
    base = Path(_replaced(begin, path))
    return (base.resolve() if follow else base) / _replaced(match[2] or "", path).lstrip("/")


def place_of(file: str) -> Path:
    """As `expand`, of a file that may not be there: its folder without links."""
    place = expand(file)
    return place.parent.resolve() / place.name


def _absolute(text: str, path: str) -> Path:
    if not text.startswith("/"):
        raise BackendError(f"{path}: {text!r} on {socket.gethostname()} is not an absolute path")
    return Path(text)


def _replaced(text: str, path: str) -> str:
    names = Template(text).get_identifiers()
    values = {name: os.environ.get(name) or _default(name) for name in names}
    for name, value in values.items():
        if not value:
            raise BackendError(f"{path}: ${name} is not set on {socket.gethostname()}")
    return Template(text).substitute(values)


def _default(name: str) -> str:
    if name == "HOME":
        try:
            return str(Path.home())
        except RuntimeError:
            return ""
    return "/tmp" if name == "TMPDIR" else ""


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


@dataclass(frozen=True)
class Span:
    """A part of a file, bytes."""

    offset: int
    length: int


def unwritten(descriptor: int) -> list[Span] | None:
    """Holes and allocated but never written parts of a file; None if not knowable here."""
    size = os.fstat(descriptor).st_size
    gaps: list[Span] = []
    position, last = 0, size == 0
    while position < size and not last:
        extents = _ask(descriptor, position, size - position)
        if extents is None:
            return None
        if not extents:
            break
        for offset, length, flags in extents:
            if offset > position:
                gaps.append(Span(position, min(offset, size) - position))
            if flags & _UNWRITTEN:
                gaps.append(Span(max(offset, position), min(offset + length, size) - offset))
            position = max(position, offset + length)
            last = bool(flags & _LAST)
    if position < size:
        gaps.append(Span(position, size - position))
    return gaps


def _ask(descriptor: int, start: int, length: int) -> list[tuple[int, int, int]] | None:
    """(offset, length, flags) of up to 128 extents."""
    buffer = bytearray(_HEADER.size + _ROOM * _EXTENT.size)
    _HEADER.pack_into(buffer, 0, start, length, _SYNC, 0, _ROOM, 0)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
            return None
        raise
    extents = []
    for number in range(_HEADER.unpack_from(buffer)[3]):
        fields = _EXTENT.unpack_from(buffer, _HEADER.size + number * _EXTENT.size)
        extents.append((fields[0], fields[2], fields[5]))
    return extents


# How many bytes of a file are in the page cache: cachestat(2), else mincore(2).


_CACHESTAT = 451  # the system call's number on all architectures, Linux 6.5 and later
_WINDOW = 1 << 30  # bytes mapped at once for mincore


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def resident_pages(descriptor: int) -> int | None:
    """Bytes of an open regular file in the page cache (whole pages); None if not knowable.

    Linux tells only who may write the file or owns it; network file systems may not tell.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    pages = _by_cachestat(descriptor)
    if pages is None:
        pages = _by_mincore(descriptor, size)
    return None if pages is None else pages * mmap.PAGESIZE


def resident_of_device(descriptor: int) -> int | None:
    """Bytes of an open block device in the page cache; None if not knowable (Linux before 6.5)."""
    pages = _by_cachestat(descriptor)
    return None if pages is None else pages * mmap.PAGESIZE


def residency_method() -> str:
    """Name of the system call that `resident` uses here."""
    return "cachestat" if _has_cachestat() else "mincore"


@cache
def _has_cachestat() -> bool:
    ctypes.set_errno(0)
    libc().syscall(_CACHESTAT, -1, None, None, 0)
    return ctypes.get_errno() != 38  # ENOSYS


def _by_cachestat(descriptor: int) -> int | None:
    if not _has_cachestat():
        return None
    span, answer = _Range(0, 0), _Stat()  # length 0: to the end
    if libc().syscall(_CACHESTAT, descriptor, ctypes.byref(span), ctypes.byref(answer), 0):
        return None
    return int(answer.cached)


def _by_mincore(descriptor: int, size: int) -> int | None:
    if not _may_write(descriptor):
        return None
    pages = 0
    for offset in range(0, size, _WINDOW):
        length = min(_WINDOW, size - offset)
        try:
            area = mmap.mmap(descriptor, length, access=mmap.ACCESS_COPY, offset=offset)
        except (OSError, ValueError):
            return None
        flags = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(area)
        result = libc().mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), flags
        )
        del first
        area.close()
        if result:
            return None
        pages += sum(flag & 1 for flag in bytes(flags))
    return pages


def _may_write(descriptor: int) -> bool:
    """Since Linux 5.2 mincore says "resident" for every page of a file one may not write."""
    if os.fstat(descriptor).st_uid == os.geteuid():
        return True
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
