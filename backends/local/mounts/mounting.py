"""Mount points that the suite makes: mounted, journalled, given to a run, taken down."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from fsmatrix.backends.allowed import Form, Keys, plain
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import DATA, Journal, new_folder
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.system.trusted import RESULTS, shared_refusal

ALWAYS = "nodev,nosuid"
MOUNT_DEADLINE = 120.0  # seconds; a journal replay takes its time
# What every file system takes.  Not dev, suid, user, owner, loop, bind, remount, ro, and nothing
# that mount(8) reads itself: x-..., X-..., helper=, uhelper=, offset=, context=, _netdev.
_OF_ALL = (
    "async atime diratime dirsync iversion lazytime noatime nodev nodiratime noexec noiversion "
    "nolazytime norelatime nostrictatime nosuid relatime rw silent strictatime sync"
)
_CONTAINER = "start the container with --privileged, or run it outside"


def root_refusal() -> str:
    """Why this process may not mount (empty: it may)."""
    if os.geteuid() != 0:
        return "needs root, to attach, format and mount: run it with sudo"
    if not libc.has(libc.Capability.CAP_SYS_ADMIN):
        return f"this root may not mount (no CAP_SYS_ADMIN): {_CONTAINER}"
    if libc.mount_error() is not None:
        return f"this root may not mount (in a user namespace): {_CONTAINER}"
    return ""


def kernel_refusal(fstype: str) -> str:
    """Why the kernel cannot mount `fstype` (empty: it can, or loads a module for it)."""
    supported = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if fstype in supported:
        return ""
    if tools.find("modprobe") is not None:
        ran = tools.run(["modprobe", "--dry-run", fstype], check=False)
        if ran.returncode == 0:
            return ""
    return f"the kernel {os.uname().release} has no {fstype} (nor a module for it)"


def mount_keys(
    flags: str = "", valued: Mapping[str, Form | None] = MappingProxyType({})
) -> tuple[Keys, Keys]:
    """Mount options: those of all file systems and `flags`, blanks between; and with values.

    A name may be in both: `discard` and `discard=async`.
    """
    return Keys(plain(None, f"{_OF_ALL} {flags}")), Keys(valued)


def check_mount_options(text: str, allowed: tuple[Keys, Keys]) -> str:
    """`text` itself; ValueError if it holds anything that is not in `allowed`."""
    alone, valued = allowed
    for option in text.split(",") if text else ():
        keys = valued if "=" in option else alone
        if reason := keys.refusal(option):
            beside = alone if keys is valued else valued
            more = f", {beside.says}" if beside.keys else ""
            raise ValueError(f"mount option {reason}{more}")
    return text


def mount_at(
    journal: Journal, fstype: str, source: str, point: Path, options: str, owner: str = ""
) -> None:
    """Mount `source` at `point` and make the folder `data` in it.

    Nothing is done if it is mounted there already.  BackendError if something else is, if
    `point` is not empty, or if mount(8) fails (its text is given).
    """
    present = mounts.mounted_at(point)
    if present is not None and present.source != source:
        raise BackendError(f"{point}: {present.source} is mounted there, not {source}")
    if present is None:
        _check_point(point)
        entry = journal.begin("mount", path=str(point), source=source, fstype=fstype)
        chosen = f"{options},{ALWAYS}" if options else ALWAYS
        argv = ["mount", "-t", fstype, "-o", chosen, source, str(point)]
        try:
            tools.run(argv, deadline=MOUNT_DEADLINE)
        except ToolError:
            journal.end(entry)
            raise
        if mounts.mounted_at(point) is None:
            raise BackendError(f"mount reported no error, but nothing is mounted at {point}")
    data = point / DATA
    data.mkdir(exist_ok=True)
    data.chmod(0o777)
    if owner:
        try:
            shutil.chown(data, owner)
        except LookupError as error:
            raise BackendError(f"owner {owner!r}: there is no such user") from error


def owner_refusal(owner: str) -> str:
    """Why the directory of the runs cannot belong to that user (empty: it can, or nobody asks)."""
    try:
        if owner:
            pwd.getpwnam(owner)
    except KeyError:
        return f"owner {owner!r}: there is no such user"
    return ""


def unmount_at(journal: Journal, source: str, point: Path) -> None:
    """Unmount `source` from `point`; nothing if it is not mounted.

    BackendError if something else is mounted there or it stays in use (by whom is said).
    """
    present = mounts.mounted_at(point)
    if present is not None and present.source != source:
        raise BackendError(f"{point}: {present.source} is mounted there, not {source}")
    if present is not None:
        try:
            mounts.unmount(point)
        except OSError as error:
            raise not_unmounted(point, error) from error
    journal.end_all("mount", path=str(point))


def not_unmounted(point: Path, error: OSError) -> BackendError:
    """What to raise for the error of an unmount: who uses it, or the reason."""
    if error.errno != errno.EBUSY:
        return BackendError(f"{point} cannot be unmounted: {error.strerror}")
    return BackendError(f"{point} is still in use by {mounts.described(mounts.of_place(point))}")


def new_point(state: Path, journal: Journal) -> Path:
    """An empty folder `mnt` (or `mnt-2`, ...) of our own in `state`, to mount at.

    BackendError if root's mount could be led elsewhere.
    """
    if reason := shared_refusal(state, RESULTS):
        raise BackendError(reason)
    failed = "mount point {}"
    return new_folder(state.resolve(), "mnt", journal, "folder", mode=0o755, failed=failed)


def remove_point(point: Path, journal: Journal) -> None:
    """Remove a folder of `new_point`; BackendError if it is not empty."""
    try:
        point.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BackendError(f"mount point {point} cannot be removed: {error.strerror}") from error
    journal.end_all("folder", path=str(point))


def make_point(point: Path, journal: Journal) -> None:
    """See a mount point of `new_point` there, and empty; on another machine it is made.

    BackendError if it is none.  `remove_made_point` removes what was made here.
    """
    if point.is_symlink() or (point.exists() and not point.is_dir()):
        raise BackendError(f"mount point {point} is not a directory")
    if not point.exists():
        journal.begin("folder", path=str(point), by_mount=True)
        point.mkdir(parents=True)
    if any(point.iterdir()):
        raise BackendError(f"mount point {point} is not empty: nothing is mounted over files")


def remove_made_point(point: Path, journal: Journal) -> None:
    """Remove a mount point that `make_point` made; nothing if it was there."""
    if any(entry.facts.get("by_mount") for entry in journal.pending("folder", path=str(point))):
        remove_point(point, journal)


def _check_point(point: Path) -> None:
    if not point.is_dir() or point.is_symlink():
        raise BackendError(f"mount point {point} does not exist or is no directory")
    if any(point.iterdir()):
        raise BackendError(f"mount point {point} is not empty: nothing is mounted over files")
