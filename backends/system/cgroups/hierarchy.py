"""Where a controller of cgroups is mounted, and the making and removing of a cgroup there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.system import mounts

PROC_SELF = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy of cgroups, and its controller that is of interest."""

    version: int
    root: Path
    controller: str  # as this version calls it

    def own(self) -> Path | None:
        """The folder of this process's cgroup, whether it can be seen or not; None if unnamed."""
        named = self.controller if self.version == 1 else ""
        for line in PROC_SELF.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if named in controllers.split(","):
                return self.root / path.lstrip("/")
        return None

    def make(self, folder: Path) -> None:
        """Make a cgroup that has the controller; OSError if it exists or may not be made."""
        if self.version == 2:
            control = folder.parent / "cgroup.subtree_control"
            if self.controller not in control.read_text().split():
                control.write_text(f"+{self.controller}")
        folder.mkdir()


def find(v1: str, v2: str) -> Hierarchy | None:
    """The hierarchy with controller `v1` (version 1) or else `v2` (version 2); None without."""
    mounted = mounts.mounts()
    for mount in mounted:
        if mount.fstype == "cgroup" and v1 in mount.super_options.split(","):
            return Hierarchy(1, Path(mount.point), v1)
    for mount in mounted:
        listed = Path(mount.point) / "cgroup.controllers"
        if mount.fstype == "cgroup2" and v2 in listed.read_text().split():
            return Hierarchy(2, Path(mount.point), v2)
    return None


def remove(folder: Path, patience: float = 0) -> str:
    """Remove a cgroup, waiting up to `patience` seconds for its last process to end.

    "" if it is gone, else why it stays.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return ""
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            procs = folder / "cgroup.procs"
            inside = procs.read_text().split() if procs.exists() else []
            who = f" (processes {', '.join(inside)})" if inside else ""
            return f"cgroup {folder} cannot be removed: {error.strerror}{who}"
        return ""
