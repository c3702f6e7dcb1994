"""The programs that mount CephFS: how ceph-fuse and mount.ceph are called, and recognised."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.ceph.bindings.login import NO_WAIT, TIMEOUT, Login
from fsmatrix.backends.local.mounts import fuse
from fsmatrix.backends.system import mounts, tools
from fsmatrix.results.evidence.stored import Stored

FUSE = "fuse.ceph-fuse"
KERNEL = "ceph"
FUSE_PROGRAM = "ceph-fuse"
DAEMONS = frozenset({"ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds"})
KERNEL_PROGRAM = "mount.ceph"
MOUNT_DEADLINE = TIMEOUT + 1.5  # seconds
_FAILED = re.compile(r"^ceph-fuse\[\d+\]: (ceph mount failed.*|fuse failed.*|.*error.*)$", re.M)


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


@dataclass(frozen=True, kw_only=True)
class Mounted(Stored):
    """A mount of the suite's, as it is journalled.  `more`: the command that made it."""

    path: str
    filesystem: str
    fstype: str
    source: str  # of FUSE; empty: the kernel's
    root: str  # the directory that is mounted
    conf: str
    user: str
    keyring: str

    @property
    def login(self) -> Login:
        """Who mounted it."""
        return Login(self.conf, self.user, self.keyring)


def is_ours(mount: mounts.Mount, own: Mounted) -> bool:
    """Whether a mount is of the recorded `fstype`, and of `source` (FUSE) or `root` (kernel).

    The kernel's source names the monitors too: "10.0.0.1:6789:/dir", or "admin@FSID.fs=/dir".
    """
    if mount.fstype != own.fstype:
        return False
    if mount.fstype == FUSE:
        return mount.source == own.source
    return mount.source.endswith((f":{own.root}", f"={own.root}"))


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
    """Start ceph-fuse and wait until it is mounted; returns its pid.  As fuse.start."""
    return fuse.start(argv, point, lambda pid: _serves(pid, point), MOUNT_DEADLINE, _complaint)


def _serves(pid: int, point: Path) -> bool:
    """Whether it is mounted, answers, and has ended its own test of the mount.

    ceph-fuse remounts once to see whether that works, in a thread named "tester"; unmounted
    meanwhile, it tries again for five seconds before it ends.
    """
    mount = mounts.mounted_at(point)
    if mount is None or mount.fstype != FUSE or fuse.trouble(point):
        return False
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    with contextlib.suppress(OSError):  # a thread that ended meanwhile
        return "tester\n" not in [task.read_text() for task in tasks]
    return False


def _complaint(text: str) -> str:
    errors = _FAILED.findall(text)
    return errors[-1] if errors else ""
