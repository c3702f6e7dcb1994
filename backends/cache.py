"""Cache states on one kernel: how they are made, and what the kernel showed afterwards.

cold: written back, then dropped; warm: read once; bypass: clean and dropped, so that the
O_DIRECT reads that follow find nothing of the files in memory.  Only the files named are
touched (fadvise), unless `drop_caches` is asked for or nothing else works.  fadvise drops
data pages only; inodes and directory entries stay, and the evidence says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.contract import CacheMethod, Evidence
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import libc
from fsmatrix.backends.system.files import FOLDER, residency_method, resident_pages, visit
from fsmatrix.results.evidence.stored import Json

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
MANY_FILES = 256  # from here one syncfs is cheaper than an fsync for each
RESIDUE = 0.01  # share of the bytes that may stay resident in a cold file set
WARM_SHARE = 0.99  # share that must be resident in a warm one
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = 1 << 20  # bytes per read of a warm-up


@dataclass
class _Tally:
    """Sums over files; `resident` is None as soon as one file does not tell."""

    files: int = 0
    bytes: int = 0
    resident: int | None = 0

    def add(self, descriptor: int) -> None:
        self.files += 1
        self.bytes += os.fstat(descriptor).st_size
        pages = resident_pages(descriptor)
        if pages is None or self.resident is None:
            self.resident = None
        else:
            self.resident += pages


@dataclass
class _Files:
    """Regular files below a root: named ones, and all in named folders; links are left out."""

    root: Path
    names: Sequence[str]
    links: int = field(default=0, init=False)

    def visit(self, action: Callable[[int], None]) -> None:
        """Call `action` with a read-only descriptor of each file, one after the other."""
        self.links = 0
        top = os.open(self.root, FOLDER)
        try:
            for name in self.names:
                self._visit(top, name, action)
        finally:
            os.close(top)

    def _visit(self, top: int, name: str, action: Callable[[int], None]) -> None:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            raise BackendError(f"cache: {name!r} is not a path below {self.root}")
        descriptor = os.dup(top)
        try:
            for part in parts:
                descriptor = _replace(descriptor, part)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self._walk(descriptor, action)
            else:
                action(descriptor)
        except FileNotFoundError as error:
            raise BackendError(f"cache: {name!r} does not exist below {self.root}") from error
        except OSError as error:
            raise BackendError(f"cache: {name!r} below {self.root}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _walk(self, top: int, action: Callable[[int], None]) -> None:
        def enter(folder: int) -> list[str]:
            below = []
            for name in os.listdir(folder):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    below.append(name)
                elif stat.S_ISREG(mode):
                    descriptor = os.open(name, _FILE, dir_fd=folder)
                    try:
                        action(descriptor)
                    finally:
                        os.close(descriptor)
                else:
                    self.links += 1
            return below

        visit(top, enter)


def _replace(folder: int, part: str) -> int:
    """Open `part` in `folder`, never through a link, and close `folder`."""
    child = os.open(part, _FILE, dir_fd=folder)
    os.close(folder)
    return child


def bring(root: Path, names: Sequence[str], state: str, method: CacheMethod = "auto") -> Evidence:
    """`names` below `root` into a cache state of that name; `method` is of cold."""
    if state == "cold":
        return cold(root, names, method)
    if state == "warm":
        return warm(root, names)
    if state == "bypass":
        return bypass(root, names)
    raise BackendError(f"unknown cache state {state!r}: known are cold, warm, bypass")


def cold(root: Path, names: Sequence[str], method: CacheMethod = "auto") -> Evidence:
    """Write back and drop `names` below `root`; see the module's text.

    BackendError if drop_caches is asked for without root.  State `unknown` if the kernel
    does not tell, or shows more than 1 % still resident.
    """
    if method == "drop_caches" and not may_drop():
        raise BackendError("drop_caches needs root: use cache method fadvise or auto")
    files = _Files(root, names)
    before = _tally(files)
    _write_back(files, before.files)
    used = "fadvise"
    if method != "drop_caches":
        files.visit(_drop)
        after = _tally(files)
    if method == "drop_caches" or (method == "auto" and not _gone(after) and may_drop()):
        used = "drop_caches"
        drop_caches(root)
        after = _tally(files)
        drop_caches(root)  # the look has brought names and inodes back
    reached = _gone(after) or (used == "drop_caches" and after.resident is None)
    facts = _facts(before, after, files.links)
    facts["metadata_caches"] = "dropped" if used == "drop_caches" else "kept"
    return Evidence("cold" if reached else "unknown", used, facts)


def warm(root: Path, names: Sequence[str]) -> Evidence:
    """Read every file once.  State `unknown` if less than 99 % is resident afterwards."""
    files = _Files(root, names)
    before = _tally(files)
    buffer = bytearray(_READ)
    files.visit(lambda descriptor: _read_all(descriptor, buffer))
    after = _tally(files)
    reached = after.resident is None or after.resident >= WARM_SHARE * after.bytes
    return Evidence("warm" if reached else "unknown", "read", _facts(before, after, files.links))


def bypass(root: Path, names: Sequence[str]) -> Evidence:
    """Nothing dirty or resident is left for O_DIRECT reads; tells which files allow them."""
    files = _Files(root, names)
    before = _tally(files)
    _write_back(files, before.files)
    files.visit(_drop)
    after = _tally(files)
    facts = _facts(before, after, files.links) | {"o_direct": allows_direct(root)}
    return Evidence("bypass" if facts["o_direct"] else "unknown", "O_DIRECT", facts)


def allows_direct(root: Path) -> bool:
    """Whether a file can be opened with O_DIRECT on this file system (an unnamed file is tried)."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        descriptor = os.open(root, flags, 0o600)
    except OSError:  # no unnamed files here: network file systems that do allow O_DIRECT
        return True
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def may_drop() -> bool:
    """Whether this process may write drop_caches."""
    return os.access(DROP_CACHES, os.W_OK)


def drop_caches(root: Path) -> None:
    """Drop all clean pages, inodes and directory entries of this kernel.

    Only clean pages go, so the file system of `root` is written back first.
    """
    libc.syncfs(root)
    DROP_CACHES.write_text("3\n")


def evict(path: Path) -> None:
    """Write back and drop one file, such as an image below a loop device."""
    descriptor = os.open(path, _FILE)
    try:
        os.fsync(descriptor)
        _drop(descriptor)
    finally:
        os.close(descriptor)


def _write_back(files: _Files, number: int) -> None:
    if number > MANY_FILES:
        libc.syncfs(files.root)
    else:
        files.visit(os.fsync)


def _drop(descriptor: int) -> None:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _read_all(descriptor: int, buffer: bytearray) -> None:
    with suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    offset = 0
    while got := os.preadv(descriptor, [buffer], offset):
        offset += got


def _tally(files: _Files) -> _Tally:
    tally = _Tally()
    files.visit(tally.add)
    return tally


def _gone(tally: _Tally) -> bool:
    return tally.resident is not None and tally.resident <= RESIDUE * tally.bytes


def _facts(before: _Tally, after: _Tally, links: int) -> dict[str, Json]:
    return {
        "files": after.files,
        "bytes": after.bytes,
        "not_regular": links,
        "resident_before": before.resident,
        "resident_after": after.resident,
        "resident_by": residency_method(),
    }
