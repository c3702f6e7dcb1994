"""System calls of the pure-Python player, relative to one directory that is never left."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from errno import EINVAL, ELOOP
from typing import Protocol

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.result import ESHORT

COMMON = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
READ, WRITE = int(Kind.READ), int(Kind.WRITE)
OPENS = frozenset({int(Kind.OPEN), int(Kind.CREATE), int(Kind.READDIR)})
CHANGES = frozenset({int(Kind.UNLINK), int(Kind.MKDIR), int(Kind.RMDIR), int(Kind.RENAME)})
LOOKED_AT = OPENS | CHANGES


@dataclass
class File:
    """A slot of the player: a file's name, its key and its handle while it is open."""

    name: bytes
    key: int
    handle: int = -1
    valid: bool = False  # relative and without ".."

    def __post_init__(self) -> None:
        parts = self.name.split(b"/")
        self.valid = bool(self.name) and bool(parts[0]) and b".." not in parts


class Calls(Protocol):
    """What the twin needs of a driver."""

    def prepare(self, kind: int, file: File, file2: File, /) -> int:
        """Untimed work before an operation; an errno if it is refused, else 0."""

    def execute(
        self, kind: int, flags: int, file: File, file2: File, offset: int, buffer: memoryview, /
    ) -> tuple[int, int]:
        """One whole operation: bytes completed, and 0 or an errno."""

    def close(self) -> None:
        """Close what the calls keep open."""


class NullCalls:
    """Calls of the driver `null`, which do nothing."""

    def prepare(self, _kind: int, _file: File, _file2: File, /) -> int:
        """See `Calls`."""
        return 0

    def execute(
        self,
        kind: int,
        _flags: int,
        file: File,
        _file2: File,
        _offset: int,
        buffer: memoryview,
        /,
    ) -> tuple[int, int]:
        """See `Calls`."""
        if kind in (Kind.OPEN, Kind.CREATE):
            file.handle = 0
        elif kind == Kind.CLOSE:
            file.handle = -1
        return len(buffer), 0

    def close(self) -> None:
        """See `Calls`."""


class PosixCalls:
    """System calls below `root`.  As native/posix.c on a kernel without openat2."""

    def __init__(self, root: str, read_ahead: bool = True) -> None:
        self._read_ahead = read_ahead
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._known: set[bytes] = set()

    def close(self) -> None:
        """See `Calls`."""
        os.close(self._root)

    def prepare(self, kind: int, file: File, file2: File) -> int:
        """ELOOP if a directory above a name is a symbolic link."""
        if kind not in LOOKED_AT:
            return 0
        error = self._look(file.name)
        if kind == Kind.RENAME:
            error = error or self._look(file2.name)
            self._known.clear()  # it may move a link into a path
        return error

    def _look(self, name: bytes) -> int:
        parent = name.rpartition(b"/")[0]
        if not parent or parent in self._known:
            return 0
        parts = parent.split(b"/")
        for end in range(1, len(parts) + 1):
            try:
                facts = os.stat(b"/".join(parts[:end]), dir_fd=self._root, follow_symlinks=False)
            except OSError:
                return 0  # the operation itself will meet it
            if stat.S_ISLNK(facts.st_mode):
                return ELOOP
        self._known.add(parent)
        return 0

    def execute(
        self, kind: int, flags: int, file: File, file2: File, offset: int, buffer: memoryview
    ) -> tuple[int, int]:
        """See `Calls`."""
        if kind == READ:
            return _read(file.handle, offset, buffer)
        if kind == WRITE:
            return _write(file.handle, offset, buffer)
        try:
            self._other(kind, flags, file, file2, offset)
        except OSError as error:
            return 0, error.errno or EINVAL
        return 0, 0

    def _other(self, kind: int, flags: int, file: File, file2: File, offset: int) -> None:
        root = self._root
        if kind in (Kind.OPEN, Kind.CREATE):
            file.handle = os.open(file.name, _open_flags(kind, flags), 0o644, dir_fd=root)
            if not self._read_ahead:
                os.posix_fadvise(file.handle, 0, 0, os.POSIX_FADV_RANDOM)
        elif kind == Kind.CLOSE:
            handle, file.handle = file.handle, -1
            os.close(handle)
        elif kind == Kind.FSYNC:
            (os.fdatasync if flags & Flag.DATA_ONLY else os.fsync)(file.handle)
        elif kind == Kind.TRUNCATE:
            os.ftruncate(file.handle, offset)
        elif kind == Kind.EVICT:
            os.posix_fadvise(file.handle, 0, 0, os.POSIX_FADV_DONTNEED)
        elif kind == Kind.STAT:
            os.stat(file.name, dir_fd=root, follow_symlinks=False)
        elif kind == Kind.UNLINK:
            os.unlink(file.name, dir_fd=root)
        elif kind == Kind.MKDIR:
            os.mkdir(file.name, 0o755, dir_fd=root)
        elif kind == Kind.RMDIR:
            os.rmdir(file.name, dir_fd=root)
        elif kind == Kind.RENAME:
            os.rename(file.name, file2.name, src_dir_fd=root, dst_dir_fd=root)
        else:
            self._read_directory(file.name)

    def _read_directory(self, name: bytes) -> None:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | COMMON, dir_fd=self._root)
        try:
            os.listdir(handle)  # noqa: PTH208 - a path would leave the root
        finally:
            os.close(handle)


def _open_flags(kind: int, flags: int) -> int:
    how = COMMON
    if flags & Flag.WRITE_ONLY:
        how |= os.O_WRONLY
    elif not flags & Flag.READ_ONLY:
        how |= os.O_RDWR
    for flag, bit in ((Flag.DIRECT, os.O_DIRECT), (Flag.DSYNC, os.O_DSYNC)):
        how |= bit if flags & flag else 0
    how |= os.O_TRUNC if flags & Flag.TRUNCATE else 0
    if kind == Kind.CREATE:
        how |= os.O_CREAT | (os.O_EXCL if flags & Flag.EXCLUSIVE else 0)
    return how


def _read(handle: int, offset: int, buffer: memoryview) -> tuple[int, int]:
    done = 0
    while True:
        try:
            count = os.preadv(handle, (buffer[done:] if done else buffer,), offset + done)
        except OSError as error:
            short = error.errno == EINVAL and done > 0  # direct, and the end not aligned
            return done, ESHORT if short else error.errno or EINVAL
        done += count
        if done == len(buffer):
            return done, 0
        if count == 0:
            return done, ESHORT


def _write(handle: int, offset: int, buffer: memoryview) -> tuple[int, int]:
    done = 0
    while True:
        try:
            count = os.pwrite(handle, buffer[done:] if done else buffer, offset + done)
        except OSError as error:
            return done, error.errno or EINVAL
        done += count
        if done == len(buffer):
            return done, 0
        if count == 0:
            return done, ESHORT
