"""The programs that mount CephFS: ceph-fuse and mount.ceph, started, recognised, ended.

A ceph-fuse of ours is known by its whole argument list, which holds its mount point: the list is
in the journal before the process is started, and a process is ours if its /proc/PID/cmdline is
exactly that.  Nothing is ever ended by its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fsmatrix.backends.ceph.bindings.login import NO_WAIT, TIMEOUT, Login
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.identity import SESSION
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.system.deadline import Overdue, within

FUSE = "fuse.ceph-fuse"
KERNEL = "ceph"
FUSE_PROGRAM = "ceph-fuse"
DAEMONS = frozenset({"ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds"})
KERNEL_PROGRAM = "mount.ceph"
MOUNT_DEADLINE = TIMEOUT + 1.5  # seconds
FAREWELL = 15.0  # seconds in which a client flushes its data and ends, or is killed
LOOK = 8.0  # seconds in which a living mount answers a stat
DIED = "its client has died"
_PAUSE = 0.01
_MNT_FORCE = 1
_FAILED = re.compile(r"^ceph-fuse\[\d+\]: (ceph mount failed.*|fuse failed.*|.*error.*)$", re.M)
_children: dict[int, subprocess.Popen[bytes]] = {}  # to be reaped by this process


def fuse_argv(
    login: Login, filesystem: str, root: str, point: str, source: str, options: Mapping[str, str]
) -> list[str]:
    """Mounts directory `root` of a file system at `point`, in the foreground."""
    given = {"--conf": login.conf, "--id": login.user, "--keyring": login.keyring}
    settings = {
        "client_mount_timeout": str(int(TIMEOUT)),
        "log_file": "/dev/null",
        "admin_socket": "",
        **({"client_fs": filesystem} if filesystem else {}),
        "client_mountpoint": root,
        **NO_WAIT,
        **options,
    }
    return [
        *(tools.find(FUSE_PROGRAM) or FUSE_PROGRAM, "-f"),
        *(word for name, value in given.items() if value for word in (name, value)),
        *(f"--{name}={value}" for name, value in settings.items()),
        *("-o", f"fsname={source},subtype=ceph-fuse", point),
    ]


def kernel_argv(login: Login, filesystem: str, root: str, point: str, options: str) -> list[str]:
    """Mounts by the kernel; mount.ceph finds monitors and key as ceph.conf says."""
    values = [f"name={login.user}"]
    values += [f"conf={login.conf}"] if login.conf else []
    values += [f"mds_namespace={filesystem}"] if filesystem else []
    values += [options] if options else []
    before = ["env", f"CEPH_KEYRING={login.keyring}"] if login.keyring else []
    chosen = ",".join([*values, "nodev", "nosuid"])
    return [*before, "mount", "-t", KERNEL, "-o", chosen, f":{root}", point]


def is_ours(mount: mounts.Mount, identity: Mapping[str, Any]) -> bool:
    """Whether a mount is of the recorded `fstype`, and of `source` (FUSE) or `root` (kernel).

    The kernel's source names the monitors too: "10.0.0.1:6789:/dir", or "admin@FSID.fs=/dir".
    """
    if mount.fstype != identity["fstype"]:
        return False
    if mount.fstype == FUSE:
        return mount.source == str(identity["source"])
    root = str(identity["root"])
    return mount.source.endswith((f":{root}", f"={root}"))


def processes(argv: Sequence[str]) -> list[int]:
    """Processes with exactly these arguments; none that has ended already."""
    wanted, pids = os.fsencode("\0".join(argv)) + b"\0", []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes() == wanted:
                pids.append(int(entry.name))
    return pids


def servers(conf: str) -> list[int]:
    """Ceph's daemons on this kernel that were started with that configuration (`-c conf`)."""
    wanted, pids = os.fsencode(f"\0-c\0{conf}\0"), []
    for entry in Path("/proc").glob("[0-9]*") if conf else ():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if wanted in words and Path(os.fsdecode(words.split(b"\0")[0])).name in DAEMONS:
                pids.append(int(entry.name))
    return pids


def start_fuse(argv: Sequence[str], point: Path) -> int:
    """Start ceph-fuse and wait until it is mounted; returns its pid.

    ToolError with its own words if it fails, or is not there within MOUNT_DEADLINE; it is
    ended then.  It outlives the session that mounts.
    """
    environment = {name: text for name, text in os.environ.items() if name != SESSION}
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
        _children[process.pid] = process
        deadline = time.monotonic() + MOUNT_DEADLINE
        try:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    raise ToolError(f"{FUSE_PROGRAM} failed: {_complaint(words)}")
                if _serves(process.pid, point):
                    return process.pid
                time.sleep(_PAUSE)
        except BaseException:
            end(argv, patience=0.0)
            raise
        end(argv, patience=0.0)
        raise ToolError(
            f"{FUSE_PROGRAM} did not mount {point} within {MOUNT_DEADLINE:g} s: {_complaint(words)}"
        )


def _serves(pid: int, point: Path) -> bool:
    """Whether it is mounted, answers, and has ended its own test of the mount.

    ceph-fuse remounts once to see whether that works, in a thread named "tester"; unmounted
    meanwhile, it tries again for five seconds before it ends.
    """
    mount = mounts.mounted_at(point)
    if mount is None or mount.fstype != FUSE or trouble(point):
        return False
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    with contextlib.suppress(OSError):  # a thread that ended meanwhile
        return "tester\n" not in [task.read_text() for task in tasks]
    return False


def _complaint(words: IO[bytes]) -> str:
    words.seek(0)
    text = words.read(1 << 16).decode(errors="replace")
    errors = _FAILED.findall(text)
    return errors[-1] if errors else (" ".join(text.split())[-300:] or "it said nothing")


def end(argv: Sequence[str], patience: float = FAREWELL) -> list[int]:
    """Wait until a ceph-fuse of ours is gone; after `patience` seconds it is killed.

    Returns the pids that had to be killed.  BackendError if one survives even that.
    """
    if _wait(lambda: not _alive(argv), patience):
        return []
    killed = _alive(argv)
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not _wait(lambda: not _alive(argv), FAREWELL):
        raise BackendError(f"ceph-fuse, pid {', '.join(map(str, _alive(argv)))}, cannot be ended")
    return killed


def _alive(argv: Sequence[str]) -> list[int]:
    for pid, process in list(_children.items()):
        if process.poll() is not None:
            del _children[pid]
    return processes(argv)


def _wait(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def trouble(point: Path) -> str:
    """Why what is mounted at `point` does not answer (empty: it does)."""
    try:
        within(LOOK, point.stat, f"stat {point}")
    except Overdue:
        return f"{point} does not answer within {LOOK:g} s"
    except OSError as error:
        died = f"{DIED}: " if error.errno == errno.ENOTCONN else ""
        return f"{point}: {died}{error.strerror}"
    return ""


def detach(point: Path, argv: Sequence[str] = (), force: bool = True) -> bool:
    """Unmount what is mounted at `point`, and wait until the ceph-fuse `argv` has ended.

    False if the client did not take its leave of the servers: it was dead already, or, with
    `force`, hung or was still in use and was killed (or the kernel was told to give up: stuck
    processes end then, and data that were not written are lost).
    OSError with EBUSY if somebody uses it (with `force`: even after that).
    """
    in_order = True
    if mounts.mounted_at(point) is not None:
        in_order = not argv or bool(_alive(argv))
        try:
            gone = _unmounted(point, FAREWELL)
        except OSError as error:
            if error.errno != errno.EBUSY or not force:
                raise
            gone = False
        if not gone:
            in_order = False
            _force(point, argv)
    if argv and end(argv):
        in_order = False
    return in_order


def _force(point: Path, argv: Sequence[str]) -> None:
    if argv:
        end(argv, patience=0.0)
    else:
        libc.libc().umount2(os.fsencode(str(point)), _MNT_FORCE)
    if mounts.mounted_at(point) is not None and not _unmounted(point, FAREWELL):
        raise BackendError(f"{point} cannot be unmounted: it hangs")


def _unmounted(point: Path, seconds: float) -> bool:
    """Unmount; False if that hangs.  A busy one is tried again, as everywhere."""
    try:
        within(seconds, lambda: mounts.unmount(point), f"umount {point}")
    except Overdue:
        return False
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):  # it is gone
            raise
    return True
