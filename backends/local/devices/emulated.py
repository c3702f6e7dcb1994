"""Emulated devices on an emulated host adapter: parts of one throttled loop device.

Each device is a loop device on a part of another one, which is on an image file.  What is done on
any part goes through that one, so that a limit on it is shared by all, as that of an adapter is;
a limit on each part is that of the device itself.  Both are the kernel's (cgroup blkio.throttle
or io.max), of the cgroup that the ranks are in.
"""

from __future__ import annotations

import re
import shlex
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.contract import BackendOptions, ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.journal.journal import DATA, Journal
from fsmatrix.backends.journal.proof import Facts, Kind, NotProvenOurs, OwnershipScope, Stage
from fsmatrix.backends.local import images, own_mounts
from fsmatrix.backends.local.directory import DirectoryOptions
from fsmatrix.backends.local.ext import Ext4
from fsmatrix.backends.local.local import MKFS_DEADLINE, OWN_NEEDS, USABLE_SHARE, LocalBackend
from fsmatrix.backends.local.xfs import Xfs
from fsmatrix.backends.system import cgroups, devices, mounts, tools
from fsmatrix.backends.system.cgroups import Limits
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, read
from fsmatrix.results.process import boot_id
from fsmatrix.results.units import PositiveSize

# Several devices taken down: what one of them objects does not keep the others.


def attempt(actions: Iterable[Callable[[], None]]) -> None:
    """Do all of them; BackendError at the end with what went wrong."""
    problems = []
    for action in actions:
        try:
            action()
        except BackendError as error:
            problems.append(str(error))
    if problems:
        raise BackendError("; ".join(problems))


# Limits of operations per second on loop devices of ours: journalled, and lifted again.
#
# The kernel keeps a limit under the number of a device also when another file is attached there.
# So it is written down before it is made, and lifted only where the very limit that was written
# down is in force on a loop device that is ours (or on which nothing is attached).


KIND = "io-limit"
_LOOP = re.compile(r"/dev/loop\d+")


def limits_refusal() -> str:
    """Why nothing can be limited in this process's cgroup (empty: it can)."""
    try:
        cgroups.own(cgroups.drive_hierarchy())
    except BackendError as error:
        return str(error)
    return ""


def impose(device: str, limits: Limits, journal: Journal) -> None:
    """Limit what this process's cgroup does on a loop device; harmless if it is so already."""
    folder = cgroups.own(cgroups.drive_hierarchy())
    facts: JsonObject = {"device": device, "cgroup": str(folder), "limits": vars(limits)}
    if not journal.pending(KIND, **facts):
        journal.begin(KIND, **facts)
    cgroups.limit_drive(folder, devices.number_of(device), limits)


def lift(device: str, journal: Journal) -> None:
    """Undo `impose`; nothing if there is no limit.  BackendError if another one is in force."""
    for entry in journal.pending(KIND, device=device):
        try:
            undo(entry.facts, True)
        except NotProvenOurs as reason:
            raise BackendError(str(reason)) from reason
        journal.end(entry)


def undo(facts: Facts, same_boot: bool) -> str:
    """Lift a limit if it is the recorded one."""
    device, folder = str(facts["device"]), Path(str(facts["cgroup"]))
    if not same_boot or not folder.exists() or not Path(device).exists():
        return ""
    number = devices.number_of(device)
    in_force = cgroups.drive_limits_of(folder, number)
    if in_force == Limits():
        return ""
    if vars(in_force) != facts["limits"]:
        raise NotProvenOurs(
            f"{device}: another limit than the recorded one is in force in {folder}"
        )
    cgroups.limit_drive(folder, number, Limits())
    return f"lifted the limit on {device}"


def prove(facts: Facts, ground: OwnershipScope) -> None:
    """A loop device of ours, or an empty one, and a cgroup where the kernel has them."""
    device, folder = str(facts["device"]), Path(str(facts["cgroup"]))
    if not _LOOP.fullmatch(device):
        raise NotProvenOurs(f"{device} is no loop device: its limit stays")
    if not proof.our_loop(device, ground) and devices.loop_backing(device) is not None:
        raise NotProvenOurs(f"{device}: nothing proves that it is ours: its limit stays")
    root = cgroups.drive_hierarchy().root
    if not folder.is_relative_to(root) or folder.resolve() != folder:
        raise NotProvenOurs(f"{folder} is no cgroup below {root}: its limits stay")


IO_LIMIT = Kind(Stage.MOUNT, prove, undo, ends_with_boot=True)


# Options of the backend `devices`.


MOST = 64  # devices


class Rates(BaseModel):
    """Operations per second."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    read: int = Field(ge=1, strict=True, description="reads per second")
    write: int = Field(ge=1, strict=True, description="writes per second")


class EmulatedOptions(BaseModel):
    """Loop devices that are parts of one more: what limits that one, they share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(8, ge=1, le=MOST, strict=True, description="how many devices")
    size: PositiveSize = Field(300 << 20, description="of each, bytes")
    filesystem: Literal["xfs", "ext4"] = Field("xfs", description="on each")
    device_iops: Rates = Field(description="what one device can do")
    adapter_iops: Rates = Field(description="what all can do together")


class DevicesOptions(BackendOptions):
    """Either directories, each on a device of its own, or emulated devices."""

    paths: tuple[str, ...] = Field(
        (), max_length=MOST, description="a directory on each device; all of one host adapter"
    )
    expect_fs: str = Field("", description="refuse another type of file system: xfs")
    emulated: EmulatedOptions | None = Field(
        None, description="instead: throttled loop devices of this machine (root)"
    )

    @field_validator("paths")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            DirectoryOptions(path=path)
        if len(set(value)) < len(value):
            raise ValueError("a path is given twice")
        return value

    @model_validator(mode="after")
    def _either(self) -> DevicesOptions:
        if bool(self.paths) == (self.emulated is not None):
            raise ValueError("give either paths or emulated")
        if self.emulated and self.expect_fs:
            raise ValueError("expect_fs needs paths")
        return self

    @property
    def count(self) -> int:
        """How many devices there are."""
        return self.emulated.count if self.emulated else len(self.paths)


FILE_SYSTEMS: Mapping[str, type[LocalBackend]] = {"xfs": Xfs, "ext4": Ext4}


@dataclass(frozen=True)
class Part(Stored):
    """One emulated device."""

    number: int  # among all of the target, from 0
    device: str  # /dev/loopN
    point: str  # where it is mounted

    @property
    def path(self) -> str:
        """Where runs work on it."""
        return str(Path(self.point) / DATA)

    @property
    def title(self) -> str:
        """For messages."""
        return f"device {self.number} ({self.device}, {self.point})"


@dataclass(frozen=True)
class Adapter(Stored):
    """What was made for an attachment."""

    device: str  # /dev/loopN that all parts are of
    image: str
    filesystem: str
    adapter_limits: Mapping[str, int]
    device_limits: Mapping[str, int]
    parts: tuple[Part, ...]
    boot_id: str
    host: str

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """From the details of an access."""
        return read(cls, details["emulated"], "details.emulated")


def refusal(options: EmulatedOptions) -> str:
    """Why they cannot be made here (empty: they can)."""
    system = FILE_SYSTEMS[options.filesystem]
    usable = system.check()
    if not usable.ok:
        return usable.reason
    return system.size_refusal(options.size) or limits_refusal()


def usable_bytes(options: EmulatedOptions) -> int:
    """What one device may take, as far as it is known before."""
    return max(0, int(options.size * USABLE_SHARE) - OWN_NEEDS)


def commands(options: EmulatedOptions, numbers: Sequence[int]) -> list[str]:
    """How the image, and these parts of it, are made by hand."""
    made, size = images.commands(options.count * options.size), options.size
    argv = FILE_SYSTEMS[options.filesystem].mkfs("/dev/loopM", "UUID", ())
    for number in numbers:
        part = f"--offset {number * size} --sizelimit {size}"
        made += [f"losetup --find --show --direct-io=on {part} /dev/loopN", shlex.join(argv)]
    return made


def make(
    options: EmulatedOptions, numbers: Sequence[int], context: ProvisionContext
) -> dict[str, Json]:
    """Attach the image and these parts of it, and format them; details of an access."""
    context.state.mkdir(parents=True, exist_ok=True)
    image = images.image_for(context, options.count * options.size)
    adapter, _ = images.attach(image, context.journal, "required")
    parts: list[Part] = []
    try:
        images.forbid_discard(adapter)
        for number in numbers:
            parts.append(_part(options, adapter, number, context))
        images.rewrite_unwritten(str(image.facts["path"]), adapter)
    except BaseException:
        _detach(adapter, str(image.facts["path"]), parts, context.journal)
        raise
    made = Adapter(
        device=adapter,
        image=str(image.facts["path"]),
        filesystem=options.filesystem,
        adapter_limits=vars(_limits(options.adapter_iops)),
        device_limits=vars(_limits(options.device_iops)),
        parts=tuple(parts),
        boot_id=boot_id(),
        host=socket.gethostname(),
    )
    return {"emulated": made.document()}


def _part(options: EmulatedOptions, adapter: str, number: int, context: ProvisionContext) -> Part:
    system = FILE_SYSTEMS[options.filesystem]
    device = images.attach_part(adapter, number * options.size, options.size, context.journal)
    try:
        images.forbid_discard(device)
        tools.run(system.mkfs(device, str(uuid.uuid4()), ()), deadline=MKFS_DEADLINE)
        point = own_mounts.new_point(context.state, context.journal)
    except BaseException:
        images.detach(device, context.journal, adapter)
        raise
    return Part(number, device, str(point))


def _limits(rates: Rates) -> Limits:
    return Limits(read_operations=rates.read, write_operations=rates.write)


def mount(adapter: Adapter, target: str, journal: Journal) -> None:
    """Mount all parts, then throttle them and the adapter."""
    if adapter.boot_id != boot_id():
        raise BackendError(
            f"devices of target {target} were attached on host {adapter.host}: loop devices "
            f"cannot be reached from {socket.gethostname()}"
        )
    for part in adapter.parts:
        own_mounts.mount_at(journal, adapter.filesystem, part.device, Path(part.point), "")
    for part in adapter.parts:
        impose(part.device, Limits(**adapter.device_limits), journal)
    impose(adapter.device, Limits(**adapter.adapter_limits), journal)


def unmount(adapter: Adapter, journal: Journal) -> None:
    """Lift the limits, then unmount; harmless where that is done.

    BackendError with what stays: a device in use, or another limit than ours.
    """
    limited = (adapter.device, *(part.device for part in adapter.parts))
    attempt(
        [
            *(partial(lift, device, journal) for device in limited),
            *(
                partial(own_mounts.unmount_at, journal, part.device, Path(part.point))
                for part in adapter.parts
            ),
        ]
    )


def release(adapter: Adapter, journal: Journal) -> None:
    """Take down what `make` made; the image stays until the campaign ends."""
    unmount(adapter, journal)
    _detach(adapter.device, adapter.image, adapter.parts, journal)


def _detach(device: str, image: str, parts: Sequence[Part], journal: Journal) -> None:
    for part in reversed(parts):
        own_mounts.remove_point(Path(part.point), journal)
        images.detach(part.device, journal, device)
    images.detach(device, journal, image)


def trouble(part: Part) -> str:
    """Why a part cannot be worked on (empty: it can)."""
    mount = mounts.mounted_at(part.point)
    if mount is None:
        return f"{part.title} is not mounted"
    return f"{part.title} has become read-only" if mount.read_only else ""
