"""Who uses a block device: mounts of all processes, swap, what is built on it, its other parts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices.bare.disks import (
    Disk,
    disk_of,
    holders,
    partitions,
    root_disks,
)
from fsmatrix.backends.system import loopdev
from fsmatrix.backends.system.devices import SYS_BLOCK
from fsmatrix.backends.system.mounts import Mount, parse_mountinfo

PROC = Path("/proc")
SWAPS = Path("/proc/swaps")
LOOPS = Path("/sys/block")


def of(disk: Disk, device: str) -> str:
    """Who uses the device or another part of its disk, in words; empty if nobody is seen.

    What no list shows, the exclusive claim meets (`claims.claim`).
    """
    if disk.whole in root_disks():
        return f"{device} is of the disk that the root file system is on"
    parts = partitions(disk.whole)
    if parts and not disk.is_partition:
        return f"{device} is in use: it has partitions ({', '.join(parts.values())})"
    names = _named(disk, parts)
    return next(
        (
            f"{device} is in use: {text}"
            for text in (
                *_mounted(names),
                *_swaps(names),
                *_built_on(names),
                *_loops(names),
                *_behind(disk),
                *_claimed(disk, parts),
            )
        ),
        "",
    )


def _named(disk: Disk, parts: dict[str, str]) -> dict[str, str]:
    return {disk.whole: "its disk", **parts, disk.number: "it"}


def _mounted(names: dict[str, str]) -> Iterator[str]:
    for process, mount in _all_mounts():
        if mount.device in names:
            seen = "" if process == "self" else f" (mount namespace of process {process})"
            yield f"{names[mount.device]} is mounted at {mount.point}{seen}"


def _all_mounts() -> Iterator[tuple[str, Mount]]:
    """Mounts of this mount namespace, then of every other one that a process is in."""
    namespaces: set[str] = set()
    others = sorted((entry.name for entry in PROC.iterdir() if entry.name.isdigit()), key=int)
    for process in ("self", *others):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            namespace = str((PROC / process / "ns/mnt").readlink())
            if namespace in namespaces:
                continue
            text = os.fsdecode((PROC / process / "mountinfo").read_bytes())
            namespaces.add(namespace)
            for mount in parse_mountinfo(text):
                yield process, mount


def _swaps(names: dict[str, str]) -> Iterator[str]:
    for line in SWAPS.read_text().splitlines()[1:]:
        with suppress(FileNotFoundError):
            number = Path(line.split()[0]).stat().st_rdev
            text = f"{os.major(number)}:{os.minor(number)}"
            if text in names:
                yield f"{names[text]} is swap space"


def _built_on(names: dict[str, str]) -> Iterator[str]:
    for number, name in names.items():
        if above := holders(number):
            yield f"{', '.join(above)} is built on {name}"


def _loops(names: dict[str, str]) -> Iterator[str]:
    """Loop devices on it: the kernel claims nothing for them, and lists no holder."""
    for file in sorted(LOOPS.glob("loop*/loop/backing_file")):
        with suppress(FileNotFoundError):
            facts = Path(os.fsdecode(file.read_bytes()).rstrip("\n")).stat()
            text = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
            if stat.S_ISBLK(facts.st_mode) and text in names:
                yield f"{file.parts[-3]} is built on {names[text]}"


def _behind(disk: Disk) -> Iterator[str]:
    """Other ways to what is behind a loop device, which the kernel does not claim for it."""
    own = f"/dev/{(SYS_BLOCK / disk.whole).resolve().name}"
    behind = loopdev.backing(own)
    if behind is None:
        return
    for other in loopdev.attached_to(behind.inode, behind.filesystem):
        if other.device != own:
            yield f"{behind.file}, the file behind it, is behind {other.device} too"
    with suppress(FileNotFoundError):
        facts = Path(behind.file).stat()
        if stat.S_ISBLK(facts.st_mode):
            below = disk_of(facts.st_rdev, behind.file)
            names = _named(below, partitions(below.whole))
            for text in (*_mounted(names), *_swaps(names), *_built_on(names)):
                yield f"of {behind.file}, which is behind it, {text}"


def _claimed(disk: Disk, parts: dict[str, str]) -> Iterator[str]:
    """Other partitions of the disk that somebody has claimed, by the kernel's own answer."""
    for number, name in parts.items():
        if number == disk.number:
            continue
        flags = os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(f"/dev/{name}", flags)
        except OSError as error:
            yield f"{name}, of the same disk, cannot be claimed: {error.strerror}"
            continue
        claimed = os.fstat(descriptor).st_rdev
        os.close(descriptor)
        if f"{os.major(claimed)}:{os.minor(claimed)}" != number:
            raise BackendError(f"/dev/{name} is not the device {number} of that name in sysfs")
