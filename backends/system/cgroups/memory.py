"""Cgroups that limit the memory of processes, page cache included, version 1 or 2.

Pages of files are charged to the cgroup whose process first reads or writes them (Linux,
Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership"): what others have cached before is
free of charge.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.cgroups.throttle import Hierarchy, find, remove
from fsmatrix.results.evidence.stored import Stored

LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}  # 2: since Linux 5.19
# of memory and swap together; of swap alone
SWAP = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
CURE = (
    "start it where a cgroup (version 1 or 2) with the memory controller may be written: as root "
)
CURE += "outside a container, or by systemd-run --user --scope -p Delegate=yes"


@dataclass(frozen=True)
class MemoryUse(Stored):
    """What a cgroup's processes did with their memory."""

    limit: int  # bytes
    peak: int | None  # bytes, page cache included; None: the kernel does not tell
    reached: int  # how often the limit was reached, and pages had to be given back
    oom_kills: int  # processes that the kernel killed since nothing could be given back
    file_bytes: int  # of the page cache, when it was looked at
    version: int  # of cgroups


def hierarchy() -> Hierarchy:
    """Where memory is controlled on this machine; BackendError with what is needed if nowhere."""
    if there := find("memory", "memory"):
        return there
    raise BackendError(f"no cgroup hierarchy here has the memory controller: {CURE}")


def parent() -> Path:
    """Where a new cgroup can be made for children of this process; BackendError if nowhere.

    Version 1: below this process's own.  Version 2: beside it, since one that has processes may
    not hand the controller down, but the root.
    """
    there = hierarchy()
    own = there.own()
    if own is None:
        raise BackendError("the kernel names no cgroup of this process that limits memory")
    if there.version == 2 and own != there.root:
        own = own.parent
    if not own.is_dir():
        raise BackendError(f"the cgroup {own} of this process is not to be seen: {CURE}")
    return own


def refusal() -> str:
    """Why memory cannot be limited by this process (empty: it can); nothing is left."""
    try:
        folder = make(parent() / f"fsmatrix-probe-{time.monotonic_ns()}", 1 << 30)
    except BackendError as error:
        return str(error)
    return remove(folder)


def make(folder: Path, limit: int) -> Path:
    """A new cgroup with that many bytes of memory and no swap; BackendError if it cannot be."""
    there = hierarchy()
    try:
        there.make(folder)
    except OSError as error:
        raise BackendError(f"cgroup {folder} cannot be made ({error.strerror}): {CURE}") from error
    try:
        (folder / LIMIT[there.version]).write_text(str(limit))
        with contextlib.suppress(FileNotFoundError):  # a kernel that does not count swap
            (folder / SWAP[there.version]).write_text(str(limit if there.version == 1 else 0))
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


def used(folder: Path) -> MemoryUse:
    """What its processes did so far."""
    version = 2 if (folder / LIMIT[2]).exists() else 1
    if version == 2:
        events = _words(folder / "memory.events")
        reached, kills = events["max"], events.get("oom_kill", 0)
    else:
        reached = int((folder / "memory.failcnt").read_text())
        kills = _words(folder / "memory.oom_control").get("oom_kill", 0)
    peak = folder / PEAK[version]
    return MemoryUse(
        limit=int((folder / LIMIT[version]).read_text()),
        peak=int(peak.read_text()) if peak.exists() else None,
        reached=reached,
        oom_kills=kills,
        file_bytes=_words(folder / "memory.stat")["file" if version == 2 else "cache"],
        version=version,
    )


def _words(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    return {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
