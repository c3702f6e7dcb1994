"""Mounts that the suite makes: journalled, given to a run, taken down; and clients that serve them.

A client, a program or the kernel's, of ours is known by its whole argument list, which holds its
mount point: the list is in the journal before the process is started, and a process is ours if its
/proc/PID/cmdline is exactly that.  Nothing is ever ended by its name.

A mount whose client or servers hang keeps who touches it in the kernel, deaf to signals.  So it
is another process that looks whether a mount answers, and that is not waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from fsmatrix.backends.allowed import Form, Keys, plain
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import DATA, Journal, new_folder
from fsmatrix.backends.journal.proof import SESSION
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.system.tools import Overdue, within
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

FUSE_DEVICE = Path("/dev/fuse")
UNMOUNTER = "fusermount3"  # for who is not root
FAREWELL = 15.0  # seconds in which a client flushes its data and ends, or is killed
LOOK = 8.0  # seconds in which a living mount answers
DIED = "its client has died"
_DEAD = {os.strerror(errno.ENOTCONN), os.strerror(errno.ECONNABORTED)}
_PAUSE = 0.01
_SAID = 300  # characters of what a client said
_MNT_FORCE = 1
_children: dict[int, subprocess.Popen[bytes]] = {}  # to be reaped by this process


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


def device_refusal() -> str:
    """Why nothing can be mounted by FUSE (empty: it can)."""
    return "" if os.access(FUSE_DEVICE, os.R_OK | os.W_OK) else f"{FUSE_DEVICE} cannot be used"


def client_processes(argv: Sequence[str]) -> list[int]:
    """Processes with exactly these arguments; none that has ended already."""
    wanted, pids = os.fsencode("\0".join(argv)) + b"\0", []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes() == wanted:
                pids.append(int(entry.name))
    return pids


def start_client(
    argv: Sequence[str],
    point: Path,
    serves: Callable[[int], bool],
    deadline: float,
    complaint: Callable[[str], str] = lambda _text: "",
) -> int:
    """Start a client and wait until it `serves` (asked with its pid); returns the pid.

    ToolError with its own words (`complaint` picks them from what it said) if it fails, or does
    not serve within `deadline` seconds; it is ended then.  It outlives the session that mounts.
    """
    found = tools.find(argv[0])
    if found is None:
        raise ToolError(tools.lacking(argv[0]))
    environment = {name: text for name, text in os.environ.items() if name != SESSION}
    environment["PATH"] = tools.path()
    program = Path(argv[0]).name
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            argv,
            executable=found,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
        _children[process.pid] = process
        limit = time.monotonic() + deadline
        try:
            while time.monotonic() < limit:
                if process.poll() is not None:
                    raise ToolError(f"{program} failed: {_words(words, complaint)}")
                if serves(process.pid):
                    return process.pid
                time.sleep(_PAUSE)
        except BaseException:
            end_client(argv, patience=0.0)
            raise
        end_client(argv, patience=0.0)
        output = _words(words, complaint)
        raise ToolError(f"{program} did not mount {point} within {deadline:g} s: {output}")


def _words(words: IO[bytes], complaint: Callable[[str], str]) -> str:
    words.seek(0)
    text = words.read(1 << 16).decode(errors="replace")
    return complaint(text) or " ".join(text.split())[-_SAID:] or "it said nothing"


def end_client(argv: Sequence[str], patience: float = FAREWELL) -> list[int]:
    """Wait until a client of ours is gone; after `patience` seconds it is killed.

    Returns the pids that had to be killed.  BackendError if one survives even that.
    """
    if _wait(lambda: not client_alive(argv), patience):
        return []
    killed = client_alive(argv)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not _wait(lambda: not client_alive(argv), FAREWELL):
        left = ", ".join(map(str, client_alive(argv)))
        raise BackendError(f"{Path(argv[0]).name}, pid {left}, cannot be ended")
    return killed


def client_alive(argv: Sequence[str]) -> list[int]:
    """As `processes`; what this process has started and that has ended is reaped."""
    for pid, process in list(_children.items()):
        if process.poll() is not None:
            del _children[pid]
    return client_processes(argv)


def _wait(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def mount_trouble(point: Path, servers: bool = False) -> str:
    """Why what is mounted at `point` does not answer (empty: it does).

    `servers`: ask for the free space, which the servers tell and no client remembers.
    """
    asked = ["--file-system", "--format=%a"] if servers else ["--format=%s %u %i %Y"]
    argv = ["stat", *asked, str(point)]  # it asks the client only for what it is to print
    try:
        ran = tools.run(argv, deadline=LOOK, check=False)
    except ToolError:
        return f"{point} does not answer within {LOOK:g} s"
    if ran.returncode == 0:
        return ""
    reason = ran.complaint.rpartition(": ")[2]
    return f"{point}: {f'{DIED}: ' if reason in _DEAD else ''}{reason}"


def detach_mount(point: Path, argv: Sequence[str] = (), force: bool = True) -> bool:
    """Unmount what is mounted at `point`, and wait until its client `argv` has ended.

    False if the client did not take its leave of the servers: it was dead already, or, with
    `force`, hung or was still in use and was killed (or the kernel was told to give up: stuck
    processes end then, and data that were not written are lost).
    OSError with EBUSY if somebody uses it (with `force`: even after that).
    """
    in_order = True
    if mounts.mounted_at(point) is not None:
        in_order = not argv or bool(client_alive(argv))
        try:
            gone = _unmounted(point, FAREWELL)
        except OSError as error:
            if error.errno != errno.EBUSY or not force:
                raise
            gone = False
        if not gone:
            in_order = False
            _force(point, argv)
    if argv and end_client(argv):
        in_order = False
    return in_order


def _force(point: Path, argv: Sequence[str]) -> None:
    if argv:
        end_client(argv, patience=0.0)
    else:
        libc.libc().umount2(os.fsencode(str(point)), _MNT_FORCE)
    if mounts.mounted_at(point) is not None and not _unmounted(point, FAREWELL):
        raise BackendError(f"{point} cannot be unmounted: it hangs")


def _unmounted(point: Path, seconds: float) -> bool:
    """Unmount; False if that hangs.  A busy one is tried again, as everywhere."""
    try:
        within(seconds, lambda: _unmount(point), f"umount {point}")
    except Overdue:
        return False
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # it is gone
            raise
    return True


def _unmount(point: Path) -> None:
    """As root by the system call, else by the program that may do it for the mount's owner."""
    if os.geteuid() == 0:
        return mounts.unmount(point)
    limit = time.monotonic() + mounts.PATIENCE
    while True:
        ran = tools.run([UNMOUNTER, "-u", str(point)], deadline=FAREWELL, check=False)
        if ran.returncode == 0 or mounts.mounted_at(point) is None:
            return None
        if time.monotonic() >= limit:
            raise OSError(errno.EBUSY, ran.complaint)
        time.sleep(0.05)
