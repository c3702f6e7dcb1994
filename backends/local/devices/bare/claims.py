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
from contextlib import contextmanager
from dataclasses import dataclass

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices.bare import users
from fsmatrix.backends.local.devices.bare.disks import Disk, disk_of
from fsmatrix.backends.system import loopdev, signature

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
        reason = signature.way_refusal(handle.device) or state_refusal(identity, handle.device)
        reason = reason or consent_refusal(identity, handle.device, destroy)
        if reason := reason or users.of(identity, handle.device):
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
    if loopdev.backing(f"/dev/{identity.name}") and not loopdev.direct_io(f"/dev/{identity.name}"):
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
    carried = signature.signatures(path)
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
