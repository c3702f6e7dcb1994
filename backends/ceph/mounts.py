"""The clients that mount CephFS: started, recognised, ended; and their sessions at the MDSs.

From outside: `clients`, `sessions`.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.ceph import facts
from fsmatrix.backends.ceph.bindings.librados import NO_WAIT, TIMEOUT, Login
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.system import mounts, tools
from fsmatrix.results.evidence.stored import Stored

# The programs that mount CephFS: how ceph-fuse and mount.ceph are called, and recognised.


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
    """Start ceph-fuse and wait until it is mounted; returns its pid.  As start_client."""
    return own_mounts.start_client(
        argv, point, lambda pid: _serves(pid, point), MOUNT_DEADLINE, _complaint
    )


def _serves(pid: int, point: Path) -> bool:
    """Whether it is mounted, answers, and has ended its own test of the mount.

    ceph-fuse remounts once to see whether that works, in a thread named "tester"; unmounted
    meanwhile, it tries again for five seconds before it ends.
    """
    mount = mounts.mounted_at(point)
    if mount is None or mount.fstype != FUSE or own_mounts.mount_trouble(point):
        return False
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    with contextlib.suppress(OSError):  # a thread that ended meanwhile
        return "tester\n" not in [task.read_text() for task in tasks]
    return False


def _complaint(text: str) -> str:
    errors = _FAILED.findall(text)
    return errors[-1] if errors else ""


# Sessions of dead clients at the MDSs: ended, so that nobody waits for what they held.
#
# An MDS keeps the capabilities of a client that vanished until its session times out (60 s), and
# whoever needs them waits.  Only sessions of this very host are ended, with every recorded value.


def evict(login: Login, filesystem: str, *dead: Mapping[str, str]) -> int:
    """End the sessions of clients of this host with such metadata; returns how many.

    `dead`: for each client some values of client_metadata (pid, mount_point, root), at least one.
    BackendError if it is not allowed or the cluster does not answer: the MDSs end them, later.
    """
    if not all(dead):
        raise ValueError("one's host alone says not which client is meant")
    host, ended = {"hostname": socket.gethostname()}, 0
    with login.connect() as cluster:
        for mds in facts.active_mdss(cluster, filesystem):
            for session in cluster.mds(mds, "session ls"):
                metadata = session["client_metadata"].items()
                if any({**host, **values}.items() <= metadata for values in dead):
                    cluster.mds(mds, "client evict", filters=[f"id={session['id']}"])
                    ended += 1
    return ended


def evict_session(mount: Mounted) -> None:
    """End the session of a mount that did not do so itself.

    If that is not possible now, the MDSs do it when its time is over.
    """
    recorded = {"root": mount.root}
    if mount.fstype == FUSE:
        recorded["mount_point"] = mount.path
    with contextlib.suppress(BackendError):
        evict(mount.login, mount.filesystem, recorded)
