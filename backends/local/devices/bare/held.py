"""The claim of a node leader on its device, held from mount to unmount, and its node for runs."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.access import DeviceAccess
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices.bare import claims
from fsmatrix.backends.local.devices.bare.disks import Disk, disk_of
from fsmatrix.results.evidence.values import inside, text


@dataclass(frozen=True)
class Held:
    """A claimed device of this process."""

    descriptor: int  # O_RDWR | O_EXCL
    disk: Disk
    device: str

    ALL: ClassVar[dict[str, Held]] = {}  # of this process, by the path of the access

    @property
    def path(self) -> str:
        """By which wipefs opens the very same node."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"


def take(access: DeviceAccess) -> None:
    """Look at everything again, then claim the device; BackendError if anything is different."""
    if access.path in Held.ALL:
        look(access)
        return
    with claims.opened(access.device) as handle:
        identity = claims.disk(handle)
        _same(access, identity)
        if reason := claims.refusal(handle, str(access.details["destroy"])):
            raise BackendError(reason)
        descriptor = claims.claim(handle, os.O_RDWR)
    held = Held(descriptor, identity, access.device)
    try:  # again, now that nobody else can come between
        _unchanged(access, held)
    except BaseException:
        os.close(descriptor)
        raise
    Held.ALL[access.path] = held


def look(access: DeviceAccess) -> Held:
    """The claim, after a look whether the device is still that one and carries nothing.

    BackendError if not, or if this process has claimed none.
    """
    held = of(access)
    _unchanged(access, held)
    return held


def recognise(access: DeviceAccess) -> None:
    """By its number alone, in any process; BackendError if it has gone or is another one."""
    major, minor = text(inside(access.details, "disk"), "number").split(":")
    _same(access, disk_of(os.makedev(int(major), int(minor)), access.device))


def of(access: DeviceAccess) -> Held:
    """The claim of this process; BackendError if it has none."""
    if access.path not in Held.ALL:
        raise BackendError(f"{access.device} is not claimed by this process")
    return Held.ALL[access.path]


def give_back(access: DeviceAccess) -> None:
    """End the claim; harmless if there is none."""
    if held := Held.ALL.pop(access.path, None):
        os.close(held.descriptor)


def make_node(access: DeviceAccess, folder: Path) -> None:
    """The device's node in a run's folder, made by the number that was claimed."""
    held = look(access)
    folder.mkdir(exist_ok=True)
    number = os.fstat(held.descriptor).st_rdev
    node = folder / DeviceAccess.NODE
    try:
        os.mknod(node, stat.S_IFBLK | 0o600, number)
    except FileExistsError:
        facts = node.lstat()
        if not stat.S_ISBLK(facts.st_mode) or facts.st_rdev != number:
            raise BackendError(f"{node} is not the node of {access.device}") from None
    except OSError as error:
        raise BackendError(
            f"{node} cannot be made: {error.strerror} (a container needs CAP_MKNOD)"
        ) from error


def _unchanged(access: DeviceAccess, held: Held) -> None:
    identity = disk_of(os.fstat(held.descriptor).st_rdev, access.device)
    _same(access, identity)
    reason = claims.state_refusal(identity, access.device) or claims.consent_refusal(
        identity, access.device, str(access.details["destroy"])
    )
    if reason := reason or claims.signature_refusal(held.path, access.device):
        raise BackendError(reason)


def _same(access: DeviceAccess, identity: Disk) -> None:
    """Whether it is the device that the conductor looked at."""
    expected = inside(access.details, "disk")
    if asdict(identity) != expected:
        changed = [name for name, value in asdict(identity).items() if expected.get(name) != value]
        raise BackendError(
            f"{access.device} is not the device that was looked at before: other "
            f"{', '.join(changed)}"
        )
