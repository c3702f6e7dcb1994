"""System calls of the pure-Python player, relative to one directory that is never left."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from errno import EINVAL, ELOOP
from typing import Protocol

from fsmatrix.backends.player.lanes import ESHORT
from fsmatrix.backends.player.ops import Flag, Kind

COMMON = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
READ, WRITE = int(Kind.READ), int(Kind.WRITE)
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def close(self) -> None:
        """See `Calls`."""
        os.close(self._root)

    def prepare(self, _kind: int, _file: File, _file2: File, /) -> int:
        """See `Calls`."""
        return 0

    @contextmanager
    def _entry(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        """The open directory of a name, and its last part; OSError, ELOOP at a symbolic link."""
        parent, _, leaf = name.rpartition(b"/")
        with ExitStack() as opened:
            directory = self._root
            for part in filter(None, parent.split(b"/")):
                directory = _step_into(directory, part)
                opened.callback(os.close, directory)
            yield directory, leaf

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
        if kind == Kind.CLOSE:
            handle, file.handle = file.handle, -1
            os.close(handle)
        elif kind == Kind.FSYNC:
            (os.fdatasync if flags & Flag.DATA_ONLY else os.fsync)(file.handle)
        elif kind == Kind.TRUNCATE:
            os.ftruncate(file.handle, offset)
        elif kind == Kind.EVICT:
            os.posix_fadvise(file.handle, 0, 0, os.POSIX_FADV_DONTNEED)
        elif kind == Kind.STAT:
            os.stat(file.name, dir_fd=self._root, follow_symlinks=False)
        else:
            with self._entry(file.name) as (directory, leaf):
                self._on_entry(kind, flags, file, file2, directory, leaf)

    def _on_entry(
        self, kind: int, flags: int, file: File, file2: File, directory: int, leaf: bytes
    ) -> None:
        if kind in (Kind.OPEN, Kind.CREATE):
            file.handle = os.open(leaf, _open_flags(kind, flags), 0o644, dir_fd=directory)
            if not self._read_ahead:
                os.posix_fadvise(file.handle, 0, 0, os.POSIX_FADV_RANDOM)
        elif kind == Kind.UNLINK:
            os.unlink(leaf, dir_fd=directory)
        elif kind == Kind.MKDIR:
            os.mkdir(leaf, 0o755, dir_fd=directory)
        elif kind == Kind.RMDIR:
            os.rmdir(leaf, dir_fd=directory)
        elif kind == Kind.RENAME:
            with self._entry(file2.name) as (directory2, leaf2):
                os.rename(leaf, leaf2, src_dir_fd=directory, dst_dir_fd=directory2)
        else:
            handle = os.open(leaf, os.O_RDONLY | os.O_DIRECTORY | COMMON, dir_fd=directory)
            try:
                os.listdir(handle)  # noqa: PTH208 - a path would leave the root
            finally:
                os.close(handle)


def _step_into(directory: int, part: bytes) -> int:
    """Open a directory in another one."""
    try:
        return os.open(part, FOLDER, dir_fd=directory)
    except NotADirectoryError as error:
        facts = os.stat(part, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            raise OSError(ELOOP, os.strerror(ELOOP), part) from error
        raise


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
            if not buffer:  # preadv says nothing of a directory then, pread does
                return len(os.pread(handle, 0, offset)), 0
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
