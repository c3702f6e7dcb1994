"""What a block device carries: file systems, volumes, partition tables (wipefs, blkid)."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import mounts, tools
from fsmatrix.backends.system.files.trusted import shared_refusal

PARTITION_TABLES = frozenset({"gpt", "dos", "PMBR", "mac", "sun", "bsd", "sgi", "atari", "ultrix"})


@dataclass(frozen=True)
class Signature:
    """One signature on a device."""

    type: str  # xfs, ext4, LVM2_member, gpt, ...
    uuid: str
    offset: str


def signatures(device: str) -> list[Signature]:
    """All signatures that wipefs finds; empty if the device carries nothing known."""
    text = tools.run(["wipefs", "--no-act", "--json", device]).stdout.strip()
    if not text:
        return []
    return [
        Signature(str(item["type"]), str(item.get("uuid") or ""), str(item["offset"]))
        for item in json.loads(text)["signatures"]
    ]


def wipe(device: str, uuid: str) -> bool:
    """Erase the signatures of the file system `uuid`; False if the device has another one."""
    present = signatures(device)
    if not present or any(signature.uuid != uuid for signature in present):
        return False
    tools.run(["wipefs", "--all", device])
    return True


def serial(device: str) -> str:
    """The serial number of a disk (sysfs, or udev's by lsblk); empty if it tells none."""
    folder = Path("/sys/class/block") / Path(device).resolve().name
    for name in ("serial", "device/serial", "wwid", "device/wwid"):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    if tools.find("lsblk") is None:
        return ""
    argv = ["lsblk", "--nodeps", "--noheadings", "--output", "SERIAL", device]
    ran = tools.run(argv, check=False)
    return ran.stdout.strip()


def in_use(device: str) -> str:
    """Who uses the device (mount, swap, holder, partition), in words; empty if nobody."""
    path = Path(device).resolve()
    number = path.stat().st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    for mount in mounts.mounts():
        if mount.device == name or Path(mount.source).resolve() == path:
            return f"it is mounted at {mount.point}"
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        if Path(line.split()[0]).resolve() == path:
            return "it is swap space"
    folder = Path("/sys/class/block") / path.name
    holders = sorted(entry.name for entry in (folder / "holders").glob("*"))
    if holders:
        return f"{', '.join(holders)} is built on it"
    parts = sorted(entry.parent.name for entry in folder.glob("*/partition"))
    if parts:
        return f"it has partitions ({', '.join(parts)})"
    return _claimed(path)


def _claimed(path: Path) -> str:
    """The kernel's own answer: an exclusive open fails for every claimed device."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return "the kernel says that it is in use"
        raise BackendError(f"{path} cannot be opened: {error.strerror}") from error
    return ""


def way_refusal(device: str) -> str:
    """Why root does not follow a device's name: others could lead it to another device.

    Empty too for one that leads nowhere.
    """
    path = Path(device).expanduser().absolute()
    remedy = "name it by a path that is root's, such as one in /dev/disk/by-id"
    return shared_refusal(path, remedy) if path.exists() else ""


def refusal(device: str, expected_serial: str, our_uuid: str = "") -> str:
    """Why the suite may not format `device` (empty: it may).

    It may with an empty signature, or with the right serial number on a device that carries
    at most a partition table without partitions, or if it carries the file system `our_uuid`
    that this campaign itself has made.
    """
    if not Path(device).is_block_device():
        return f"{device} is no block device"
    user = in_use(device)
    if user:
        return f"{device} is in use: {user}"
    if expected_serial and (actual := serial(device)) != expected_serial:
        return f"{device} has the serial number {actual!r}, the campaign says {expected_serial!r}"
    carried = [entry for entry in signatures(device) if not our_uuid or entry.uuid != our_uuid]
    if not carried:
        return ""
    what = ", ".join(sorted({entry.type for entry in carried}))
    if any(entry.type not in PARTITION_TABLES for entry in carried):
        return (
            f"{device} carries {what}: the suite never formats a device with data; if it may be "
            f"destroyed, erase it yourself (wipefs --all {device})"
        )
    if not expected_serial:
        return f"{device} carries a partition table ({what}): name its serial number as `serial`"
    return ""
