"""Block devices below a path: which, their counters and their facts (sysfs)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import loopdev
from fsmatrix.backends.system.mounts import Mount, mount_of
from fsmatrix.results.evidence.values import Json

SYS_BLOCK = Path("/sys/dev/block")
SYS_BTRFS = Path("/sys/fs/btrfs")
SECTOR = 512  # bytes; the unit of `stat` whatever the device's own sector is


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
    behind = loopdev.backing(device)
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
