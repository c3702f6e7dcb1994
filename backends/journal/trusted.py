"""Whether what lies in a directory can only have been put there by us.

A name below /tmp or /var/tmp can be foreseen, so another user can have made it first; who owns
a directory above it can put another one in its place.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fsmatrix.results.files import trust

MOST_LINKS = 40  # as the kernel's own limit


def distrust(folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Why somebody else could change `folder`, an absolute path (empty: nobody could).

    Of a folder that is not there yet, what is above it is looked at.

    It must be a directory of our own, no symbolic link, that neither its group nor others may
    write to.  What is above it, also above links on the way, must belong to root, to us, or
    to who called sudo, and nobody else may rename in it (the sticky bit, as /tmp has it, is
    enough).
    """
    if folder.is_symlink():
        return f"{folder} is a symbolic link"
    if reason := _above(folder, _owners(environ)):
        return reason
    place = folder.resolve()
    flaw = trust.flaw(place, place.lstat(), folder=True) if os.path.lexists(place) else ""
    return f"{place} {flaw}" if flaw else ""


def shared_refusal(folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Why root makes nothing in `folder`: others could put something else in its place.

    Empty: they could not, or we are not root.
    """
    if os.geteuid() != 0 or not (reason := _above(folder / "made", _owners(environ))):
        return ""
    return (
        f"{reason}: whoever may could lead what root does in {folder} elsewhere; run as an "
        "ordinary user, choose a place that only root can rename (the sticky bit is enough in a "
        "folder of root's), or a `directory` target with `shared_place: accept`"
    )


def distrust_file(file: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Why somebody else could change a file that root or we have installed (empty: nobody could).

    OSError if it is not there.
    """
    owners, place = _owners(environ), file.resolve(strict=True)
    facts = place.lstat()
    if facts.st_uid not in owners:
        return f"{place} belongs to {_name(facts.st_uid)}"
    if not stat.S_ISREG(facts.st_mode):
        return f"{place} is no regular file"
    return _open(place, facts) or _above(file, owners)


def _above(path: Path, owners: set[int]) -> str:
    """Why others could replace what is above `path`, links included (empty: they cannot)."""
    for part, facts in _way(path):
        if facts.st_uid not in owners:
            if stat.S_ISLNK(facts.st_mode):
                return f"{part} is a symbolic link of {_name(facts.st_uid)}"
            return f"{part} belongs to {_name(facts.st_uid)}, who could replace what is in it"
        if not stat.S_ISLNK(facts.st_mode) and (reason := _open(part, facts)):
            return reason
    return ""


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Folders and links that the kernel passes on the way to what is there of an absolute path.

    The last one, to which it leads, is not among them.
    """
    here, left, links = Path("/"), list(path.parts[1:]), 0
    while left and os.path.lexists(here):
        facts = here.lstat()
        yield here, facts
        name = left.pop(0)
        here = here.parent if name == ".." else here / name
        if here.is_symlink() and links < MOST_LINKS:
            yield here, here.lstat()
            target, links = here.readlink(), links + 1
            left = [*target.parts[target.is_absolute() :], *left]
            here = Path("/") if target.is_absolute() else here.parent


@contextmanager
def closed_to_others() -> Iterator[None]:
    """What is made meanwhile cannot be written to by others, whatever the user's umask."""
    before = os.umask(0o077)
    os.umask(before | 0o022)
    try:
        yield
    finally:
        os.umask(before)


def _owners(environ: Mapping[str, str]) -> set[int]:
    """Root, we, and who became root by sudo: each of them could do it anyway."""
    owners = {0, os.geteuid()}
    caller = environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdecimal():
        owners.add(int(caller))
    return owners


def _open(part: Path, facts: os.stat_result) -> str:
    """Why others can rename entries of a directory (empty: they cannot)."""
    if facts.st_mode & stat.S_ISVTX:
        return ""
    private = facts.st_gid in (0, facts.st_uid)  # a user's own group has the user's number
    if facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and not private):
        return f"{part} can be written to by others (mode {facts.st_mode & 0o7777:o})"
    return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
