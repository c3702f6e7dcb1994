"""Block devices: those below a path, their counters and facts, what they carry; loop devices."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import mounts, tools
from fsmatrix.backends.system.mounts import Mount, mount_of
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.results.evidence.stored import Json

# linux/loop.h
_LOOP_CLR_FD = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_INFO64 = struct.Struct("=QQQQQIIII64s64s32s2Q")  # struct loop_info64, 232 bytes
DETACH_PATIENCE = 5.0  # seconds

SYS_BLOCK = Path("/sys/dev/block")
SYS_BTRFS = Path("/sys/fs/btrfs")
SECTOR = 512  # bytes; the unit of `stat` whatever the device's own sector is

PARTITION_TABLES = frozenset({"gpt", "dos", "PMBR", "mac", "sun", "bsd", "sgi", "atari", "ultrix"})


@dataclass(frozen=True)
class Backing:
    """What is behind a loop device."""

    device: str  # /dev/loopN
    file: str  # path at the time of attaching
    inode: int
    filesystem: int  # st_dev of the file
    direct_io: bool


def loop_backing(device: str) -> Backing | None:
    """What is behind `device` ("/dev/loopN"); None if it is no loop device or not attached."""
    folder = Path("/sys/block") / Path(device).name / "loop"
    try:
        file = os.fsdecode((folder / "backing_file").read_bytes()).rstrip("\n")
        direct = (folder / "dio").read_text().strip() == "1"
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        answer = fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_INFO64.size))
    except OSError as error:
        if error.errno == errno.ENXIO:  # detached since
            return None
        raise
    finally:
        os.close(descriptor)
    numbers = _INFO64.unpack(answer)
    # lo_device is huge_encode_dev: for all numbers that exist, the C library's dev_t
    return Backing(device, file, inode=numbers[1], filesystem=numbers[0], direct_io=direct)


def loop_direct_io(device: str) -> bool:
    """Whether the loop device reads and writes its file without the page cache."""
    try:
        return (Path("/sys/block") / Path(device).name / "loop/dio").read_text().strip() == "1"
    except FileNotFoundError:
        return False


def loops_attached_to(inode: int, filesystem: int) -> list[Backing]:
    """All loop devices whose file is that inode.

    PermissionError if it lies behind one that this user may not open.
    """
    attached = []
    for folder in sorted(Path("/sys/block").glob("loop*/loop")):
        try:
            behind = loop_backing(f"/dev/{folder.parent.name}")
        except PermissionError:
            if _names(folder, inode, filesystem):
                raise
            continue
        if behind and (behind.inode, behind.filesystem) == (inode, filesystem):
            attached.append(behind)
    return attached


def _names(folder: Path, inode: int, filesystem: int) -> bool:
    """Whether the path that a loop device was attached by leads to that inode.

    Not if it is gone, or in a folder that this user may not enter: none of his files is there.
    """
    try:
        file = os.fsdecode((folder / "backing_file").read_bytes()).rstrip("\n")
        there = Path(file).stat()
    except (FileNotFoundError, PermissionError):
        return False
    return (there.st_ino, there.st_dev) == (inode, filesystem)


def detach_loop(behind: Backing) -> bool:
    """Detach a loop device if that very file is still behind it.

    True if it is gone afterwards.  The kernel detaches a device that is still open when it
    is closed for the last time: DETACH_PATIENCE seconds are given to that.
    """
    if loop_backing(behind.device) != behind:
        return True
    descriptor = os.open(behind.device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _LOOP_CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + DETACH_PATIENCE
    while loop_backing(behind.device) == behind:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


@dataclass(frozen=True)
class DeviceStat:
    """Counters of a device since it appeared (kernel: Documentation/block/stat.rst)."""

    read_bytes: int
    written_bytes: int
    in_flight: int
    busy_seconds: float
    reads: int = 0  # requests that have ended
    writes: int = 0
    read_seconds: float = 0.0  # sum over requests, in the queue and at the device
    write_seconds: float = 0.0


def parse_stat(text: str) -> DeviceStat:
    """From the text of /sys/dev/block/M:m/stat."""
    fields = [int(field) for field in text.split()]
    return DeviceStat(
        read_bytes=fields[2] * SECTOR,
        written_bytes=fields[6] * SECTOR,
        in_flight=fields[8],
        busy_seconds=fields[9] / 1e3,
        reads=fields[0],
        writes=fields[4],
        read_seconds=fields[3] / 1e3,
        write_seconds=fields[7] / 1e3,
    )


def device_stat(number: str) -> DeviceStat:
    """Counters of "major:minor"; BackendError if there is no such device."""
    try:
        return parse_stat((SYS_BLOCK / number / "stat").read_text())
    except OSError as error:
        raise BackendError(f"device {number} has no counters: {error.strerror}") from error


def devices_of(mount: Mount) -> tuple[str, ...]:
    """ "major:minor" of the block devices that a file system is on; () if there are none.

    btrfs has an anonymous device number and may span several: its source and sysfs tell.
    """
    if not mount.device.startswith("0:"):
        return (mount.device,)
    try:
        source = Path(mount.source).resolve(strict=True)
    except (OSError, RuntimeError):
        return ()
    if not source.is_block_device():
        return ()
    number = number_of(source)
    if mount.fstype == "btrfs":
        for folder in SYS_BTRFS.glob("*/devices"):
            members = {(entry / "dev").read_text().strip() for entry in folder.iterdir()}
            if number in members:
                return tuple(sorted(members))
    return (number,)


def devices_below(path: Path | str) -> tuple[str, ...]:
    """ "major:minor" of the block devices below a path."""
    return devices_of(mount_of(path))


def number_of(device: Path | str) -> str:
    """ "major:minor" of a device node."""
    number = Path(device).stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def backing_below(numbers: Iterable[str]) -> tuple[str, ...]:
    """Devices below the image files of those of `numbers` that are loop devices."""
    disks: set[str] = set()
    for number in numbers:
        file = _read(SYS_BLOCK / number / "loop/backing_file")
        if file and Path(file).exists():
            disks.update(devices_below(file))
    return tuple(sorted(disks))


def image_of(loop: str) -> str:
    """The file behind a loop device ("loop0"), as it was attached; "" if there is none."""
    return _read(Path("/sys/block") / loop / "loop/backing_file")


def loops_below(number: str) -> tuple[str, ...]:
    """Names of the loop devices that a device is, is part of, or is made of."""
    disk = _disk(number)
    own = (disk.name,) if (disk / "loop").is_dir() else ()
    parts = sorted(entry / "dev" for entry in (disk / "slaves").glob("*"))
    return (*own, *(name for part in parts for name in loops_below(_read(part))))


def disk_of(number: str) -> str:
    """ "major:minor" of the disk that a partition is on; of a whole disk its own."""
    return _read(_disk(number) / "dev") or number


def _disk(number: str) -> Path:
    folder = (SYS_BLOCK / number).resolve()
    return folder if (folder / "queue").is_dir() else folder.parent


def total(numbers: Iterable[str]) -> DeviceStat | None:
    """Sum of counters over devices; None for no device.  Busy time is that of the busiest."""
    stats = [device_stat(number) for number in numbers]
    if not stats:
        return None
    return DeviceStat(
        read_bytes=sum(stat.read_bytes for stat in stats),
        written_bytes=sum(stat.written_bytes for stat in stats),
        in_flight=sum(stat.in_flight for stat in stats),
        busy_seconds=max(stat.busy_seconds for stat in stats),
        reads=sum(stat.reads for stat in stats),
        writes=sum(stat.writes for stat in stats),
        read_seconds=sum(stat.read_seconds for stat in stats),
        write_seconds=sum(stat.write_seconds for stat in stats),
    )


def device_facts(number: str) -> dict[str, Json]:
    """Provenance of a device: name, path in sysfs, model, capacity (bytes), scheduler, ...

    A partition is described with its disk's queue; device mapper and RAID name their parts;
    a loop device names its image's file system and whether it is attached with direct I/O.
    """
    folder = (SYS_BLOCK / number).resolve()
    disk = _disk(number)
    facts: dict[str, Json] = {
        "name": folder.name,
        "sysfs": str(folder),  # names the buses and the adapter that it is on
        "capacity": int(_read(folder / "size") or 0) * SECTOR,
        "model": _read(disk / "device/model"),
        "vendor": _read(disk / "device/vendor"),
        "firmware": _read(disk / "device/firmware_rev") or _read(disk / "device/rev"),
        "write_cache": _read(disk / "queue/write_cache"),
        "scheduler": _chosen(_read(disk / "queue/scheduler")),
    }
    for name in ("rotational", "logical_block_size", "physical_block_size", "nr_requests"):
        text = _read(disk / "queue" / name)
        facts[name] = int(text) if text else None
    facts["rotational"] = None if facts["rotational"] is None else bool(facts["rotational"])
    facts["read_ahead"] = int(_read(disk / "queue/read_ahead_kb") or 0) * 1024
    parts = sorted(entry.name for entry in (disk / "slaves").glob("*"))
    if parts:
        facts["parts"] = [
            device_facts((disk / "slaves" / part / "dev").read_text().strip()) for part in parts
        ]
    if (disk / "loop").is_dir():
        facts["loop"] = _loop_facts(f"/dev/{disk.name}")
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _loop_facts(device: str) -> dict[str, Json]:
    behind = loop_backing(device)
    if behind is None:
        return {}
    facts: dict[str, Json] = {"direct_io": behind.direct_io, "file": behind.file}
    if Path(behind.file).exists():
        mount = mount_of(behind.file)
        facts["filesystem"] = mount.fstype
        facts["mount_options"] = mount.options
        facts["devices"] = [device_facts(number) for number in devices_of(mount)]
    return facts


def _read(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""


def _chosen(scheduler: str) -> str:
    """The one in brackets of "[none] mq-deadline"."""
    match = re.search(r"\[(.+?)\]", scheduler)
    return match[1] if match else scheduler


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


def device_refusal(device: str, expected_serial: str, our_uuid: str = "") -> str:
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
