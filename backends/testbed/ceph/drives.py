"""Emulated drives: a loop device on an image of its own, and a cgroup that limits it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import loop
from fsmatrix.backends.system.cgroups import throttle
from fsmatrix.backends.system.cgroups.hierarchy import Hierarchy
from fsmatrix.backends.system.cgroups.throttle import Limits
from fsmatrix.backends.testbed.ceph.options import DRIVES, CephTestbedOptions
from fsmatrix.backends.testbed.home import Home


@dataclass(frozen=True)
class Emulated:
    """One drive: its device and the cgroup of the process that uses it."""

    device: str  # /dev/loopN
    number: str  # major:minor
    cgroup: Path
    direct_io: bool


def limits_of(options: CephTestbedOptions) -> Limits:
    """Limits of one drive at the bed's scale."""
    drive, scale = DRIVES[options.interface], options.scale
    return Limits(
        *(
            round(value * scale)
            for value in (
                drive.read_bytes,
                drive.write_bytes,
                drive.read_operations,
                drive.write_operations,
            )
        )
    )


def make(home: Home, options: CephTestbedOptions, bed: str, hierarchy: Hierarchy) -> list[Emulated]:
    """A drive for each OSD; BackendError if a part cannot be made."""
    if reason := loop.loop_refusal():
        raise BackendError(f"emulated drives need loop devices: {reason}")
    limits, journal = limits_of(options), home.journal
    drives = []
    for osd in range(options.osds):
        device, direct = _device(home.folder / f"image.{osd}", options.osd_size, journal)
        _as_flash(device)
        status = Path(device).stat()
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        name = f"fsmatrix-{bed}-osd{osd}"
        journal.begin("cgroup", path=str(hierarchy.root / name), device=number, osd=osd)
        folder = throttle.make(hierarchy, name)
        throttle.limit(folder, number, limits)
        drives.append(Emulated(device, number, folder, direct))
    return drives


def _as_flash(device: str) -> None:
    """Tell the kernel, and so Ceph, that it is no rotating disk.

    A loop device takes over what its image lies on, anew whenever it is attached.  On a rotating
    one BlueStore writes what is below 64 KiB twice, and the OSD has fewer shards.
    """
    Path(f"/sys/block/{Path(device).name}/queue/rotational").write_text("0")


def _device(path: Path, size: int, journal: Journal) -> tuple[str, bool]:
    image = journal.begin("image", path=str(path), folder=str(path.parent), size=size)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        image = journal.confirm(image, inode=status.st_ino, filesystem=status.st_dev)
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise BackendError(f"{path}: no room for {size} bytes: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return loop.attach(image, journal, "preferred")
