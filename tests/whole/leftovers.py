"""What of ours is on this machine outside the folder of a run: seen before the tests and after."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.system.mounts import mounts

# how the names begin of what the suite makes, and of what MPI and Slurm make for it
PREFIXES = (
    "fsmatrix",
    "fsm",
    "ompi",
    "prte",
    "pmix",
    "dfuse",
    "daos",
    "ceph",
    "slurm",
    "ucx_shm",
    "sm_segment",
    "vader_segment",
    "pytest-of",
)
NAMESPACES, LINKS, CGROUPS = Path("/run/netns"), Path("/sys/class/net"), Path("/sys/fs/cgroup")


def loop_devices() -> dict[str, str]:
    """Attached loop devices: device -> the file behind it."""
    found = {}
    for entry in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # it was just detached
            found[f"/dev/{entry.parents[1].name}"] = os.fsdecode(entry.read_bytes()).rstrip("\n")
    return found


@dataclass(frozen=True)
class Machine:
    """Names of mounts, loop devices, namespaces, links, cgroups and files that look like ours.

    Of an ordinary user those only that such a user can make: the others are somebody else's.
    """

    things: frozenset[str]

    @classmethod
    def now(cls) -> Machine:
        """As it is at this moment."""
        return cls(frozenset(_things()))

    def new_since(self, before: Machine) -> list[str]:
        """What was not there before."""
        return sorted(self.things - before.things)


def _things() -> Iterator[str]:
    for mount in mounts():
        ours = "fsmatrix" in mount.point or mount.source.startswith("fsmatrix")
        if ours and (os.geteuid() == 0 or _own(Path(mount.point))):
            yield f"mount {mount.point}"
    if os.geteuid() == 0:
        yield from _of_root()
    for folder in sorted({tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"}):
        yield from (f"{folder}/{name}" for name in _ours(Path(folder)) if _own(Path(folder, name)))


def _of_root() -> Iterator[str]:
    for device, file in loop_devices().items():
        if "fsmatrix" in file:
            yield f"loop device {device} of {file}"
    for kind, folder in (("network namespace", NAMESPACES), ("network link", LINKS)):
        yield from (f"{kind} {name}" for name in _ours(folder))
    for folder, inside, _ in os.walk(CGROUPS):
        yield from (f"cgroup {folder}/{name}" for name in inside if name.startswith("fsmatrix"))


def _ours(folder: Path) -> list[str]:
    """Entries of ours by their names; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.startswith(PREFIXES))


def _own(path: Path) -> bool:
    """Whether it belongs to this user."""
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:  # it just went
        return False
