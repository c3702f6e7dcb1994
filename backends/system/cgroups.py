"""Cgroups, version 1 and 2: what processes may move to and from one block device, and their memory.

Memory includes the page cache.  Pages of files are charged to the cgroup whose process first reads
or writes them (Linux, Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership"): what others
have cached before is free of charge.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import mounts
from fsmatrix.results.evidence.stored import Stored

PROC_SELF = Path("/proc/self/cgroup")
MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
MEMORY_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}  # 2: since Linux 5.19
# of memory and swap together; of swap alone
MEMORY_SWAP = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
MEMORY_CURE = (
    "start it where a cgroup (version 1 or 2) with the memory controller may be written: as root "
)


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


_V1 = {
    "read_bytes": "blkio.throttle.read_bps_device",
    "write_bytes": "blkio.throttle.write_bps_device",
    "read_operations": "blkio.throttle.read_iops_device",
    "write_operations": "blkio.throttle.write_iops_device",
}
_V2 = {
    "read_bytes": "rbps",
    "write_bytes": "wbps",
    "read_operations": "riops",
    "write_operations": "wiops",
}


@dataclass(frozen=True)
class Limits:
    """Per second; 0: not limited."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_operations: int = 0
    write_operations: int = 0


def drive_hierarchy() -> Hierarchy:
    """Where drives are limited on this machine; BackendError if nothing here can throttle."""
    there = find("blkio", "io")
    if there is None:
        raise BackendError(
            "no cgroup controller here limits block devices (v1 blkio.throttle or v2 io): "
            "an emulated drive cannot be made; use interface none"
        )
    if there.version == 1 and not (there.root / _V1["read_bytes"]).exists():
        raise BackendError("the kernel's cgroup v1 blkio has no throttling")
    return there


def how(there: Hierarchy) -> str:
    """Which cgroup version limits drives, for the record."""
    return f"cgroup v{there.version} {'blkio.throttle' if there.version == 1 else 'io.max'}"


def own(there: Hierarchy) -> Path:
    """The cgroup of this process; BackendError if nothing can be limited in it."""
    folder = there.own()
    if folder is None:
        raise BackendError("the kernel names no cgroup of this process that limits block devices")
    if (folder / "io.max").exists() or (folder / _V1["read_bytes"]).exists():
        return folder
    raise BackendError(
        f"the cgroup {folder} of this process cannot limit block devices: start it in one "
        "that can (systemd-run --scope -p IOAccounting=yes ...)"
    )


def make(there: Hierarchy, name: str) -> Path:
    """A new cgroup of that name; BackendError if it exists or may not be made."""
    folder = there.root / name
    try:
        there.make(folder)
    except OSError as error:
        raise BackendError(f"cgroup {folder} cannot be made: {error.strerror}") from error
    return folder


def limit_drive(folder: Path, device: str, limits: Limits) -> None:
    """Limit what the cgroup does on `device` ("major:minor"); works at once, also later."""
    values = vars(limits)
    try:
        if (folder / "io.max").exists():
            words = [f"{_V2[name]}={value or 'max'}" for name, value in values.items()]
            (folder / "io.max").write_text(f"{device} {' '.join(words)}\n")
            return
        for name, value in values.items():
            (folder / _V1[name]).write_text(f"{device} {value}\n")
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO) and not any(values.values()):
            return  # the device is gone: nothing is limited
        raise BackendError(f"{folder}: {device} cannot be limited: {error.strerror}") from error


def drive_limits_of(folder: Path, device: str) -> Limits:
    """What the cgroup is limited to on `device` ("major:minor")."""
    if (folder / "io.max").exists():
        words = _line_of(folder / "io.max", device)
        texts = dict(word.split("=") for word in words)
        return Limits(**{name: _number(texts.get(key, "max")) for name, key in _V2.items()})
    found = {name: _line_of(folder / file, device) for name, file in _V1.items()}
    return Limits(**{name: int(words[0]) if words else 0 for name, words in found.items()})


def _line_of(file: Path, device: str) -> list[str]:
    """The words behind the device's number; [] if the file has no line for it."""
    for line in file.read_text().splitlines():
        number, *words = line.split()
        if number == device:
            return words
    return []


def _number(text: str) -> int:
    return 0 if text == "max" else int(text)


MEMORY_CURE += "outside a container, or by systemd-run --user --scope -p Delegate=yes"


@dataclass(frozen=True)
class MemoryUse(Stored):
    """What a cgroup's processes did with their memory."""

    limit: int  # bytes
    peak: int | None  # bytes, page cache included; None: the kernel does not tell
    reached: int  # how often the limit was reached, and pages had to be given back
    oom_kills: int  # processes that the kernel killed since nothing could be given back
    file_bytes: int  # of the page cache, when it was looked at
    version: int  # of cgroups


def memory_hierarchy() -> Hierarchy:
    """Where memory is controlled on this machine; BackendError with what is needed if nowhere."""
    if there := find("memory", "memory"):
        return there
    raise BackendError(f"no cgroup hierarchy here has the memory controller: {MEMORY_CURE}")


def memory_parent() -> Path:
    """Where a new cgroup can be made for children of this process; BackendError if nowhere.

    Version 1: below this process's own.  Version 2: beside it, since one that has processes may
    not hand the controller down, but the root.
    """
    there = memory_hierarchy()
    own = there.own()
    if own is None:
        raise BackendError("the kernel names no cgroup of this process that limits memory")
    if there.version == 2 and own != there.root:
        own = own.parent
    if not own.is_dir():
        raise BackendError(f"the cgroup {own} of this process is not to be seen: {MEMORY_CURE}")
    return own


def memory_refusal() -> str:
    """Why memory cannot be limited by this process (empty: it can); nothing is left."""
    try:
        folder = make_memory_limit(
            memory_parent() / f"fsmatrix-probe-{time.monotonic_ns()}", 1 << 30
        )
    except BackendError as error:
        return str(error)
    return remove(folder)


def make_memory_limit(folder: Path, limit: int) -> Path:
    """A new cgroup with that many bytes of memory and no swap; BackendError if it cannot be."""
    there = memory_hierarchy()
    try:
        there.make(folder)
    except OSError as error:
        raise BackendError(
            f"cgroup {folder} cannot be made ({error.strerror}): {MEMORY_CURE}"
        ) from error
    try:
        (folder / MEMORY_LIMIT[there.version]).write_text(str(limit))
        with contextlib.suppress(FileNotFoundError):  # a kernel that does not count swap
            (folder / MEMORY_SWAP[there.version]).write_text(
                str(limit if there.version == 1 else 0)
            )
    except OSError as error:
        folder.rmdir()
        raise BackendError(
            f"cgroup {folder}: memory cannot be limited: {error.strerror}"
        ) from error
    return folder


def entering(folder: Path, argv: Sequence[str]) -> list[str]:
    """`argv`, started inside the cgroup."""
    script = 'echo $$ > "$0" && exec "$@"'
    return ["/bin/sh", "-c", script, str(folder / "cgroup.procs"), *argv]


def enter(folder: Path) -> None:
    """Move this process into the cgroup, with what it takes from now on."""
    (folder / "cgroup.procs").write_text("0")


def memory_used(folder: Path) -> MemoryUse:
    """What its processes did so far."""
    version = 2 if (folder / MEMORY_LIMIT[2]).exists() else 1
    if version == 2:
        events = _words(folder / "memory.events")
        reached, kills = events["max"], events.get("oom_kill", 0)
    else:
        reached = int((folder / "memory.failcnt").read_text())
        kills = _words(folder / "memory.oom_control").get("oom_kill", 0)
    peak = folder / MEMORY_PEAK[version]
    return MemoryUse(
        limit=int((folder / MEMORY_LIMIT[version]).read_text()),
        peak=int(peak.read_text()) if peak.exists() else None,
        reached=reached,
        oom_kills=kills,
        file_bytes=_words(folder / "memory.stat")["file" if version == 2 else "cache"],
        version=version,
    )


def _words(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
