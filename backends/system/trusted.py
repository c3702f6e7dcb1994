"""Whether what lies in a directory can only have been put there by us.

A name below /tmp or /var/tmp can be foreseen, so another user can have made it first; who owns
a directory above it can put another one in its place.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from fsmatrix.backends.system.libc import name_of_user
from fsmatrix.results.files import safefile

_MOST_LINKS = 40  # on the way to one path, as the kernel has it
_LIST = "system.posix_acl_access"  # an access control list: a version, then entries
_ENTRY = struct.Struct("<HHI")  # kind, rights, number (linux/posix_acl_xattr.h)
_NAMED_USER, _OWN_GROUP, _NAMED_GROUP = 2, 4, 8
_WRITES = 2
PLACE = (
    "run as an ordinary user, choose a place that only root can rename (the sticky bit is enough "
    "in a folder of root's), or a `directory` target with `shared_place: accept`"
)
RESULTS = "name a results directory (-o) that only root can rename"


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
    owners = _owners(environ)
    with suppress(FileNotFoundError):
        for part, facts in _passed(folder.parent):
            if reason := _flaw(part, facts, owners):
                return reason
    place = folder.resolve()
    flaw = safefile.trust_flaw(place, place.lstat(), folder=True) if os.path.lexists(place) else ""
    return f"{place} {flaw}" if flaw else ""


def distrust_file(file: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Why somebody else could change a file that we start or load (empty: nobody could).

    As `distrust_way`; in the folders of the file and of a link to it others may make nothing
    either.  OSError if it is not there.
    """
    place = file.resolve(strict=True)
    if not place.is_file():
        return f"{place} is no regular file"
    return distrust_way(file, environ, closed=(place, place.parent, file.parent))


def distrust_way(
    end: Path, environ: Mapping[str, str] = os.environ, closed: Sequence[Path] = ()
) -> str:
    """Why somebody else could change where an absolute path leads (empty: nobody could).

    Looked at are `end`, and the folders and links that the kernel passes on the way to it: they
    must be root's, ours, or of who called sudo, and nobody else may rename in them (the sticky
    bit is enough, but for those that are `closed`).  Who could replace the very Python that
    runs this is trusted, and so is what he would do that by.  OSError if there is no such path.
    """
    own = _of_python(sys.executable)
    owners = _owners(environ) | set(own.values())
    for part, facts in _passed(end):
        if part in own:
            continue
        if reason := _flaw(part, facts, owners, part not in closed):
            return reason
    return ""


def shared_refusal(folder: Path, remedy: str = PLACE) -> str:
    """Why root makes nothing in `folder`: others could put something else in its place.

    Empty: they could not, or we are not root.  `remedy`: what to do instead.
    """
    if os.geteuid() != 0:
        return ""
    try:
        reason = distrust_way(folder.absolute())
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror}"
    if not reason:
        return ""
    return f"{reason}: whoever may could lead what root does in {folder} elsewhere; {remedy}"


def temporary_refusal() -> str:
    """Why root makes no temporary files: others could put their own in the place of TMPDIR's."""
    folder = Path(tempfile.gettempdir()).absolute()
    return shared_refusal(folder, "set TMPDIR to a folder that only root can rename, or unset it")


@cache
def _of_python(executable: str) -> dict[Path, int]:
    """What the kernel passes on the way to the Python that runs this, and whose that is."""
    passed = _passed(Path(executable)) if executable else ()
    return {part: facts.st_uid for part, facts in passed}


def _passed(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What the kernel passes on the way to an absolute path, the path's end too."""
    here, ahead, links = Path("/"), [*reversed(path.parts[1:])], 0
    yield here, here.lstat()
    while ahead:
        part = here / ahead.pop()
        if part.name == "..":
            here = here.parent
            continue
        facts = part.lstat()
        yield part, facts
        if not stat.S_ISLNK(facts.st_mode):
            here = part
            continue
        if (links := links + 1) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = part.readlink()
        ahead += [word for word in reversed(target.parts) if word != "/"]
        here = Path("/") if target.is_absolute() else here


def _flaw(part: Path, facts: os.stat_result, owners: set[int], sticky: bool = True) -> str:
    """Why others could replace a file, folder or link, or what is in it (empty: they cannot)."""
    is_link = stat.S_ISLNK(facts.st_mode)
    if facts.st_uid in owners:
        return "" if is_link else _open(part, facts, owners, sticky)
    if is_link:
        return f"{part} is a symbolic link of {_name(facts.st_uid)}"
    return f"{part} belongs to {_name(facts.st_uid)}, who could replace it or what is in it"


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


def _open(part: Path, facts: os.stat_result, owners: set[int], sticky: bool) -> str:
    """Why others can rename entries of a directory (empty: they cannot).

    `sticky`: where that bit is set they cannot.  A device is its group's, who have every disk.
    """
    if (sticky and facts.st_mode & stat.S_ISVTX) or stat.S_ISBLK(facts.st_mode):
        return ""
    mode = f"mode {facts.st_mode & 0o7777:o}"
    if facts.st_mode & stat.S_IWOTH:
        return f"{part} can be written to by others ({mode})"
    if not facts.st_mode & stat.S_IWGRP:  # which is the mask of a list, too
        return ""
    groups = (0, facts.st_uid)  # a user's own group has the user's number
    entries = [(kind, number) for kind, rights, number in _listed(part) if rights & _WRITES]
    for kind, number in entries or [(_OWN_GROUP, 0)]:
        of_group = kind == _OWN_GROUP and facts.st_gid not in groups
        if of_group or (kind == _NAMED_GROUP and number not in groups):
            return f"{part} can be written to by others ({mode})"
        if kind == _NAMED_USER and number not in owners:
            return f"{part} can be written to by {_name(number)} (its access control list)"
    return ""


def _listed(part: Path) -> list[tuple[int, int, int]]:
    """(kind, rights, number) of each entry of an access control list; none without one."""
    try:
        return list(_ENTRY.iter_unpack(os.getxattr(part, _LIST)[4:]))
    except (OSError, struct.error):
        return []


def _name(uid: int) -> str:
    return name_of_user(uid) or f"user {uid}"
