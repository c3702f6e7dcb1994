"""Block devices as sysfs knows them: which disk a device is of, and what else is on that disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import signature
from fsmatrix.backends.system.devices import SECTOR, SYS_BLOCK, backing_below, devices_of
from fsmatrix.backends.system.mounts import mount_of


@dataclass(frozen=True)
class Disk:
    """A block device at one moment; a partition has the serial number of its disk."""

    number: str  # major:minor
    name: str
    whole: str  # major:minor of the disk that it is, or is a partition of
    size: int  # bytes
    read_only: bool
    serial: str  # empty: it tells none
    sequence: str  # differs for what is attached later under the same number; empty: not told

    @property
    def is_partition(self) -> bool:
        """Whether it is a part of a disk."""
        return self.number != self.whole

    def same(self, other: Disk) -> bool:
        """Whether it is still that device, of that size."""
        return self == other


def disk_of(rdev: int, device: str) -> Disk:
    """The facts of a device number; BackendError if nothing is there any more."""
    number = f"{os.major(rdev)}:{os.minor(rdev)}"
    folder = (SYS_BLOCK / number).resolve()
    try:
        own = folder.parent if (folder / "partition").exists() else folder
        whole = own.joinpath("dev").read_text().strip()
        return Disk(
            number=number,
            name=folder.name,
            whole=whole,
            size=int((folder / "size").read_text()) * SECTOR,
            read_only=(folder / "ro").read_text().strip() != "0",
            serial=signature.serial(f"/dev/{own.name}"),
            sequence=_sequence(own),
        )
    except OSError as error:
        raise BackendError(f"{device} ({number}) has gone: {error.strerror}") from error


def _sequence(folder: Path) -> str:
    """Since Linux 5.15."""
    file = folder / "diskseq"
    return file.read_text().strip() if file.exists() else ""


def partitions(whole: str) -> dict[str, str]:
    """Number -> name of the partitions of a disk."""
    folder = (SYS_BLOCK / whole).resolve()
    return {
        (entry.parent / "dev").read_text().strip(): entry.parent.name
        for entry in sorted(folder.glob("*/partition"))
    }


def holders(number: str) -> list[str]:
    """Names of what is built on it: device mapper, RAID, bcache."""
    return sorted(entry.name for entry in (SYS_BLOCK / number / "holders").glob("*"))


def root_disks() -> set[str]:
    """Numbers of the disks that the root file system is on, through all that lies between."""
    waiting = list(devices_of(mount_of("/")))
    disks: set[str] = set()
    while waiting:
        number = waiting.pop()
        folder = (SYS_BLOCK / number).resolve()
        if not folder.exists() or number in disks:
            continue
        own = folder.parent if (folder / "partition").exists() else folder
        disks |= {number, (own / "dev").read_text().strip()}
        waiting += [(slave / "dev").read_text().strip() for slave in folder.glob("slaves/*")]
        waiting += backing_below([number])
    return disks
