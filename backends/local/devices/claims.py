"""Whether a bare block device may be overwritten, and the exclusive claim on it.

The name in a campaign is followed once, to a descriptor; everything after that goes through the
descriptor or by the device's number, so that a link that is changed in between changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import devices
from fsmatrix.backends.system.devices import SECTOR, SYS_BLOCK, backing_below, devices_of
from fsmatrix.backends.system.mounts import Mount, mount_of, parse_mountinfo

# Block devices as sysfs knows them: which disk a device is of, and what else is on that disk.


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
            serial=devices.serial(f"/dev/{own.name}"),
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


# Who uses a block device: mounts of all processes, swap, what is built on it, its other parts.


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
    behind = devices.loop_backing(own)
    if behind is None:
        return
    for other in devices.loops_attached_to(behind.inode, behind.filesystem):
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


NO_SIGNATURE = "no-signature"  # the word where a device tells no serial number


@dataclass(frozen=True)
class Handle:
    """A block device that was opened by its name once, with O_PATH: nothing can be done by it."""

    descriptor: int
    device: str  # as the campaign names it

    @property
    def path(self) -> str:
        """By which other programs open the very same node."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"


@contextmanager
def opened(device: str) -> Iterator[Handle]:
    """Follow the name to its block device; BackendError if it leads to anything else."""
    try:
        descriptor = os.open(device, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(f"{device} cannot be opened: {error.strerror}") from error
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            raise BackendError(f"{device} is not a block device")
        yield Handle(descriptor, device)
    finally:
        os.close(descriptor)


def disk(handle: Handle) -> Disk:
    """What the kernel says of it now; BackendError if it has gone."""
    return disk_of(os.fstat(handle.descriptor).st_rdev, handle.device)


def refusal(handle: Handle, destroy: str) -> str:
    """Why it may not be overwritten (empty: it may).  Nothing is written and nothing kept."""
    try:
        identity = disk(handle)
        reason = devices.way_refusal(handle.device) or state_refusal(identity, handle.device)
        reason = reason or consent_refusal(identity, handle.device, destroy)
        if reason := reason or of(identity, handle.device):
            return reason
        claimed = claim(handle, os.O_RDONLY)
        os.close(claimed)
        return signature_refusal(handle.path, handle.device)
    except BackendError as error:
        return str(error)


def state_refusal(identity: Disk, device: str) -> str:
    """Why nobody could write to it: no size, read-only; or the page cache lies below it."""
    if identity.size == 0:
        return f"{device} has no size: nothing is attached, or no medium is in it"
    if identity.read_only:
        return f"{device} is read-only"
    if devices.loop_backing(f"/dev/{identity.name}") and not devices.loop_direct_io(
        f"/dev/{identity.name}"
    ):
        return f"{device} is a loop device without direct I/O (losetup --direct-io=on)"
    return ""


def consent_refusal(identity: Disk, device: str, destroy: str) -> str:
    """Why the campaign's word does not fit this very device (empty: it does)."""
    if destroy == identity.serial:
        return ""
    if not identity.serial and destroy == NO_SIGNATURE:
        return ""
    if not identity.serial:
        return (
            f"{device} tells no serial number, and destroy says {destroy!r}: where there is none, "
            f"`destroy: {NO_SIGNATURE}` declares that the device carries nothing"
        )
    return f"{device} has the serial number {identity.serial!r}, and destroy says {destroy!r}"


def signature_refusal(path: str, device: str) -> str:
    """What it carries, as a refusal; empty if nothing that wipefs knows."""
    carried = devices.signatures(path)
    if not carried:
        return ""
    what = ", ".join(f"{each.type} at {each.offset}" for each in carried)
    return (
        f"{device} carries {what}: the suite never overwrites a device that carries something; if "
        f"it may be destroyed, erase it yourself (wipefs --all {device})"
    )


def claim(handle: Handle, flags: int) -> int:
    """Open it for nobody else: a descriptor; while it is open, nobody mounts or formats it.

    The kernel refuses it (O_EXCL) if anything on this machine has claimed the device or a part
    of it: a mount of any mount namespace, swap, device mapper, RAID, bcache, another program.
    """
    exclusive = flags | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(f"/proc/self/fd/{handle.descriptor}", exclusive)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise BackendError(
                f"{handle.device} is in use: the kernel says that somebody has claimed it, such as "
                "another program, another campaign or a mount that is not seen from here"
            ) from error
        raise BackendError(f"{handle.device} cannot be opened: {error.strerror}") from error


def lock(handle: Handle) -> int:
    """A descriptor with the lock (flock) by which campaigns, and udev, keep off each other."""
    descriptor = os.open(
        f"/proc/self/fd/{handle.descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise BackendError(
            f"{handle.device} is in use: another program, such as a campaign, has locked it (flock)"
        ) from error
    return descriptor
