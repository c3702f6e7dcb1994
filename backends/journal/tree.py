"""Directories that the suite makes for itself, marks, and removes again; nothing else.

A tree is a directory with a marker file that holds its tag.  It is removed by descriptors
(openat), without following links and without entering another file system or mount.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import workfolder
from fsmatrix.backends.system.files import FOLDER
from fsmatrix.results.evidence.stored import JsonObject, text

# The marker by which a thing is known as the suite's own, wherever it is: what it holds.
#
# A file `.fsmatrix` in a directory, on any file system or through libcephfs; an object of that
# name in a RADOS namespace.


MARKER = ".fsmatrix"
LIMIT = 4096  # bytes of a marker that are read


@dataclass(frozen=True)
class Mark:
    """What a marker says: which thing it is, and which store made it ("": not told)."""

    tag: str
    store: str = ""


def marker_of(tag: str, store: str = "") -> bytes:
    """What a marker of `tag` holds; `store` is what proves the store (proof.py)."""
    return json.dumps({"tag": tag, "store": store, "made_by": "fsmatrix"}).encode()


def mark_in(data: bytes) -> Mark | None:
    """What a marker holds; None if it is none of ours."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    tag = content.get("tag") if isinstance(content, dict) else None
    if not isinstance(tag, str) or not tag:
        return None
    store = content.get("store")
    return Mark(tag, store if isinstance(store, str) else "")


def tag_in(data: bytes) -> str | None:
    """The tag in what a marker holds; None if it is none of ours."""
    mark = mark_in(data)
    return None if mark is None else mark.tag


def whose(tag: str | None) -> str:
    """In words, whose a thing is in which that tag was found."""
    return "has no marker" if tag is None else f"belongs to {tag!r}"


STORE_MARKER = "store.json"  # of a results store
MODE = 0o700  # of a tree: what others may do above it, nobody does in it


class NotOurs(BackendError):
    """A directory that the suite did not make, or cannot prove to have made."""


def walk(folder: Path) -> int:
    """A descriptor (O_PATH) of a directory, reached from / without following a link.

    OSError: NotADirectoryError if there is a link on the way, or whatever the kernel says.
    """
    here = step("/")
    for part in folder.parts[1:]:
        try:
            below = step(part, here)
        finally:
            os.close(here)
        here = below
    return here


def step(name: str, place: int | None = None) -> int:
    """A descriptor (O_PATH) of the directory `name` in the open directory `place`; as `walk`."""
    return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)


def by_descriptor(descriptor: int) -> Path:
    """A path of this process to a directory that it holds open, wherever its name is now."""
    return Path(f"/proc/self/fd/{descriptor}")


_held: dict[tuple[str, str], int] = {}  # descriptors that this process keeps


def held(folder: str, tag: str) -> Path:
    """The tree that was made as `folder` with `tag`: by a descriptor that this process keeps.

    Whoever may rename above it can neither hand us another one nor lead us out of it.
    NotOurs if what is there is no tree of ours that is closed to others.
    """
    if (folder, tag) not in _held:
        _held[folder, tag] = _verified(folder, tag)
    return by_descriptor(_held[folder, tag])


def let_go(folder: str, tag: str) -> None:
    """Keep it no longer."""
    if (folder, tag) in _held:
        os.close(_held.pop((folder, tag)))


def _verified(folder: str, tag: str) -> int:
    try:
        descriptor = walk(Path(folder))
    except OSError as error:
        raise NotOurs(f"{folder} is not the directory that was made: {error.strerror}") from error
    facts, mark = os.fstat(descriptor), _mark(descriptor)
    closed = facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) == MODE
    if not closed or mark is None or mark.tag != tag:
        os.close(descriptor)
        raise NotOurs(f"{folder} is not the directory that was made: nothing is done in it")
    return descriptor


def reached(root: str, details: JsonObject) -> str:
    """A root in the tree of an access with these `details`, as this process works in it.

    By `held` where others may rename above the tree (`shared_place`), else as it is: NotOurs as of
    `held`.
    """
    if not details.get("shared_place"):
        return root
    folder = text(details, "tree")
    return str(held(folder, text(details, "tag")) / Path(root).relative_to(folder))


def write_marker(folder: Path, tag: str, store: str = "") -> None:
    """Mark `folder` as the suite's own; FileExistsError if it is marked already."""
    descriptor = os.open(
        folder / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(marker_of(tag, store))
        file.flush()
        os.fsync(file.fileno())


def read_marker(folder: Path) -> str | None:
    """The tag of a tree; None if `folder` is no tree of ours."""
    mark = read_mark(folder)
    return None if mark is None else mark.tag


def read_mark(folder: Path) -> Mark | None:
    """What the marker of a tree says; None if `folder` is no tree of ours."""
    try:
        with _opened(folder) as descriptor:
            return _mark(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def owner_above(path: Path) -> Path | None:
    """The directory at or above `path` that belongs to a run or a results store."""
    for folder in (path, *path.parents):
        for name in (MARKER, STORE_MARKER):
            if os.access(folder, os.X_OK) and (folder / name).exists():
                return folder
    return None


def inside_refusal(path: Path) -> str:
    """Why nothing may be made in `path`: another run's directory is there (empty: none)."""
    above = owner_above(path.resolve())
    return f"{path} is inside another run's directory, {above}" if above else ""


def is_gone(folder: Path) -> bool:
    """Whether a tree is no more.  BackendError if what it was in is away, and the tree with it."""
    if os.path.lexists(folder):
        return False
    if not os.path.lexists(folder.parent):
        raise BackendError(f"{folder}: {folder.parent} is not there any more; was it moved?")
    return True


def remove_tree(folder: Path, tag: str) -> None:
    """Remove a tree of ours whole.

    NotOurs, with nothing removed, if its marker does not hold `tag`; BackendError if something is
    mounted in it, and if it cannot be removed whole.  The marker goes last, so that an interrupted
    removal can be repeated.
    """
    with _opened(folder) as descriptor:
        mark = _mark(descriptor)
        marker_tag = None if mark is None else mark.tag
        if marker_tag != tag:
            raise NotOurs(f"{folder} {whose(marker_tag)}: not removed (expected {tag!r})")
        try:
            workfolder.refuse_mounts(folder)
            workfolder.empty(descriptor, str(folder), keep=MARKER)
        except OSError as error:
            raise BackendError(f"{error.filename}: {error.strerror}") from error
        identity = os.fstat(descriptor)
        os.unlink(MARKER, dir_fd=descriptor)
    now = folder.lstat()
    if (now.st_dev, now.st_ino) == (identity.st_dev, identity.st_ino):
        folder.rmdir()


def emptied_elsewhere(folder: Path, tag: str) -> bool:
    """Whether a held tree is no more where it was made: then all in it is removed where it is."""
    handle = _held.get((str(folder), tag))
    if handle is None:
        return False
    own = os.fstat(handle)
    with suppress(FileNotFoundError, NotADirectoryError):
        now = folder.lstat()
        if (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino):
            return False
    within = os.open(".", FOLDER, dir_fd=handle)
    try:
        workfolder.empty(within, str(folder))
    except OSError as error:
        raise BackendError(f"{error.filename}: {error.strerror}") from error
    finally:
        os.close(within)
    return own.st_nlink > 0


def _mark(folder: int) -> Mark | None:
    try:
        descriptor = os.open(
            MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return mark_in(os.read(descriptor, LIMIT))
    finally:
        os.close(descriptor)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
