"""Managed local file systems: an image or a device, formatted anew for each attachment.

A subclass names its type and its mkfs; everything else is the same for all of them.
"""

from __future__ import annotations

import shlex
import socket
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, cast

from pydantic import field_validator, model_validator

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.allowed import Keys, Words
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    Backend,
    BackendOptions,
    CacheMethod,
    Evidence,
    Foreseen,
    ProvisionContext,
    Settled,
    Space,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import DATA, Journal
from fsmatrix.backends.local import images, own_mounts, provenance
from fsmatrix.backends.local.provenance import local_deployment, path_of
from fsmatrix.backends.system import devices, mounts, tools
from fsmatrix.backends.system.files import wrong_path
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, text, whole
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.process import boot_id
from fsmatrix.results.units import PositiveSize, format_size

MKFS_DEADLINE = 3600.0  # seconds: large devices without lazy initialisation
# What a new file system leaves free, at least: measured with xfs, ext4, ext2 and btrfs of
# 128 MiB to 8 GiB (mkfs defaults of Debian 12).  For plans; when attached, statfs tells.
USABLE_SHARE = 0.9
OWN_NEEDS = 80 << 20  # bytes
ENOUGH = 512 << 20  # bytes of which each mkfs with its defaults makes a file system
MOST_TRIED = 2 << 30  # bytes; with other options smaller sizes are tried


class LocalOptions(BackendOptions):
    """Options of a managed local file system.  Each says what its users may hand on."""

    mkfs_words: ClassVar[Words] = Words("mkfs", {})
    mount_words: ClassVar[tuple[Keys, Keys]] = own_mounts.mount_keys()

    size: PositiveSize = 1 << 30  # of the image, bytes
    image: str = ""  # a path that does not exist, may have variables; default: state directory
    device: str = ""  # a block device instead of an image
    serial: str = ""  # serial number of that device
    mkfs_options: tuple[str, ...] = ()
    mount_options: str = ""
    direct_io: Literal["required", "preferred"] = "required"
    owner: str = ""  # user who owns the directory of the runs

    @field_validator("mount_options")
    @classmethod
    def _mount_options(cls, value: str) -> str:
        return own_mounts.check_mount_options(value, cls.mount_words)

    @field_validator("mkfs_options")
    @classmethod
    def _mkfs_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if reason := cls.mkfs_words.refusal(value):
            raise ValueError(reason)
        return value

    @model_validator(mode="after")
    def _one_place(self) -> LocalOptions:
        if self.image and self.device:
            raise ValueError("give either image or device, not both")
        if self.serial and not self.device:
            raise ValueError("serial needs device, which is not given")
        if self.image and (reason := wrong_path(self.image)):
            raise ValueError(f"image: {reason}")
        if self.device and not self.device.startswith(("/", "~/")):
            raise ValueError(f"device must be an absolute path, not {self.device!r}")
        return self


class LocalBackend(Backend):
    """Base of xfs, ext4, ext2, btrfs."""

    Options: ClassVar[type[BackendOptions]] = LocalOptions
    access_type = PathAccess
    network = False
    fstype: ClassVar[str]
    program: ClassVar[str]  # mkfs.xfs
    version_option: ClassVar[str] = "-V"
    dry_run: ClassVar[tuple[str, ...]] = ()  # mkfs only checks what it would do

    @classmethod
    @abstractmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """The argv that formats `device` with UUID `identity`, without discards."""

    @property
    def _chosen(self) -> LocalOptions:
        return cast(LocalOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """Root, a kernel with the file system, its mkfs and loop devices."""
        reasons = (
            own_mounts.root_refusal(),
            own_mounts.kernel_refusal(cls.fstype),
            tools.missing(cls.program),
            tools.missing("mount"),
            images.loop_refusal(),
        )
        reason = "; ".join(reason for reason in reasons if reason)
        return Availability(False, reason=reason) if reason else Availability(True, cls.version())

    @classmethod
    def version(cls) -> str:
        """Version of the mkfs program; empty if it tells none."""
        return tools.version(cls.program, cls.version_option)

    @classmethod
    def size_refusal(cls, size: int, options: Sequence[str] = ()) -> str:
        """Why its mkfs makes no file system of so many bytes (empty: it does, or may)."""
        if size >= (MOST_TRIED if options else ENOUGH) or tools.missing(cls.program):
            return ""
        identity, words = str(uuid.uuid4()), (*cls.dry_run, *options)
        least = images.least_size(lambda file: cls.mkfs(file, identity, words), size)
        with_options = " with these mkfs_options" if options else ""
        needs = f"{cls.program} needs {format_size(least)} or more{with_options}"
        return f"size {format_size(size)}: {needs}" if least else ""

    def unusable(self) -> str:
        """Too small, which is known without rights too; else as others."""
        chosen = self._chosen
        small = "" if chosen.device else self.size_refusal(chosen.size, chosen.mkfs_options)
        return small or super().unusable()

    def refusal(self) -> str:
        """Why the device may not be formatted, the image not be made, or nobody own it."""
        chosen = self._chosen
        reason = own_mounts.owner_refusal(chosen.owner)
        reason = reason or (images.place_refusal(chosen.image, chosen.size) if chosen.image else "")
        if reason or not chosen.device or own_mounts.root_refusal():
            return reason
        try:
            return devices.way_refusal(chosen.device) or devices.device_refusal(
                chosen.device, chosen.serial
            )
        except (BackendError, OSError) as error:
            return str(error)

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """A device, an image that is elsewhere, or one in the state directory."""
        chosen = self._chosen
        place = chosen.device or chosen.image
        return replace(
            super().foreseen(level),
            places=(place,) if place else (),
            state_bytes=0 if place else chosen.size,
            state_direct=chosen.direct_io == "required",
        )

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """The image, if there is one, and mkfs."""
        del level, block_seed
        chosen = self._chosen
        made = [] if chosen.device else images.commands(chosen.size, chosen.image)
        argv = self.mkfs(chosen.device or "/dev/loopN", "UUID", chosen.mkfs_options)
        return [*made, shlex.join(argv)]

    def provision(self, level: Level, context: ProvisionContext) -> PathAccess:
        """Attach the image (made once) or take the device, and format it."""
        self.refuse_level(level)
        context.state.mkdir(parents=True, exist_ok=True)
        if self._chosen.device:
            device, image, identity = self._take_device(context)
        else:
            entry = images.image_for(context, self._chosen.size, self._chosen.image)
            image, identity = str(entry.facts["path"]), str(uuid.uuid4())
            device, _ = images.attach(entry, context.journal, self._chosen.direct_io)
        try:
            return self._formatted(context, device, image, identity)
        except BaseException:
            images.detach(device, context.journal)
            raise

    def _formatted(
        self, context: ProvisionContext, device: str, image: str, identity: str
    ) -> PathAccess:
        if image:
            images.forbid_discard(device)
        argv = self.mkfs(device, identity, self._chosen.mkfs_options)
        tools.run(argv, deadline=MKFS_DEADLINE)
        rewritten = images.rewrite_unwritten(image, device) if image else None
        point = own_mounts.new_point(context.state, context.journal)
        return PathAccess(
            backend=self.name,
            target=context.target,
            path=str(point / DATA),
            details={
                "device": device,
                "image": image,
                "image_rewritten": rewritten,
                "direct_io": images.is_direct(device),
                "point": str(point),
                "mount_options": self._chosen.mount_options,
                "owner": self._chosen.owner,
                "mkfs": argv,
                "mkfs_version": self.version(),
                "boot_id": boot_id(),
                "host": socket.gethostname(),
            },
        )

    def _take_device(self, context: ProvisionContext) -> tuple[str, str, str]:
        """(device, no image, UUID): the same UUID for each attachment of a campaign.

        The UUID is in the journal before mkfs runs, so that a device that carries our own
        file system from the last attachment is known as ours.
        """
        chosen = self._chosen
        device = str(Path(chosen.device).resolve())
        pending = context.journal.pending("device", device=device, target=context.target)
        ours = [entry for entry in pending if entry.is_own]
        identity = str(ours[0].facts["uuid"]) if ours else context.journal.identity.new_uuid()
        reason = devices.way_refusal(chosen.device) or devices.device_refusal(
            device, chosen.serial, our_uuid=identity if ours else ""
        )
        if not reason and chosen.direct_io == "required" and not images.is_direct(device):
            reason = f"{device} is a loop device without direct I/O (losetup --direct-io=on)"
        if reason:
            raise BackendError(reason)
        if not ours:
            context.journal.begin("device", device=device, uuid=identity, target=context.target)
            if devices.signatures(device):  # a partition table, allowed by the serial number
                tools.run(["wipefs", "--all", device])
        return device, "", identity

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Unmount if a crash left it mounted, and detach; the image stays until `finish`."""
        self.unmount(access, context.journal)
        own_mounts.remove_point(Path(text(access.details, "point")), context.journal)
        images.detach(
            text(access.details, "device"), context.journal, text(access.details, "image")
        )

    def finish(self, context: ProvisionContext) -> None:
        """Remove the image; erase our file system from a device."""
        ours = [entry for entry in context.journal.pending(target=context.target) if entry.is_own]
        for entry in [entry for entry in ours if entry.kind == "image"]:
            images.remove_image(entry, context.journal)
        for entry in [entry for entry in ours if entry.kind == "device"]:
            device = text(entry.facts, "device")
            if reason := devices.in_use(device):
                raise BackendError(f"{device}: {reason}")
            devices.wipe(device, text(entry.facts, "uuid"))
            context.journal.end(entry)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of the mounted file system, its device, its image and its mkfs."""
        facts = provenance.filesystem_facts(path_of(access))
        kept = ("mkfs", "mkfs_version", "image_rewritten", "direct_io")
        facts |= {name: access.details[name] for name in kept} | {"managed": True}
        if self._chosen.image:
            facts |= {"image_written": self._chosen.image, "image": access.details["image"]}
        return facts

    def deployment(self, described: JsonObject) -> Deployment:
        """On the devices of this machine."""
        return local_deployment(described)

    def space(self, access: Access | None = None) -> Space:
        """Of the mounted file system, else an estimate from the image's or device's size."""
        if access is not None:
            return provenance.space(path_of(access))
        size = self._chosen.size
        source = f"estimate from the image ({USABLE_SHARE:.0%} of it less {format_size(OWN_NEEDS)})"
        if self._chosen.device:
            number = devices.number_of(self._chosen.device)
            size = whole(devices.device_facts(number), "capacity")
            source = "estimate from the device"
        return Space(max(0, int(size * USABLE_SHARE) - OWN_NEEDS), None, source)

    # -- node leaders --------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount with nodev and nosuid; the device must be of this kernel."""
        details = access.details
        if details["boot_id"] != boot_id():
            raise BackendError(
                f"{cls.name} of target {access.target} was attached on host {details['host']}: "
                f"a local file system cannot be reached from {socket.gethostname()}"
            )
        point = Path(text(details, "point"))
        options, owner = text(details, "mount_options"), text(details, "owner")
        own_mounts.mount_at(journal, cls.fstype, text(details, "device"), point, options, owner)

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Unmount the file system; harmless if it is not mounted."""
        own_mounts.unmount_at(
            journal, text(access.details, "device"), Path(text(access.details, "point"))
        )

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state; `bypass` is refused if the device itself goes through a cache."""
        direct = bool(access.details["direct_io"])
        if state == "bypass" and not direct:
            raise BackendError(
                f"cache state bypass is refused on {access.details['device']}: the loop device "
                "has no direct I/O, so O_DIRECT reads would come from the page cache below it"
            )
        evidence = page_cache.bring(Path(path_of(access)), files, state, method)
        if state == "cold" and not direct and access.details["image"]:
            page_cache.evict(Path(text(access.details, "image")))
        return evidence

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Of the device, and of the disk below its image."""
        return provenance.device_counters([devices.number_of(text(access.details, "device"))])

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back and wait until the device is quiet."""
        return provenance.settle(path_of(access), timeout)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """Not mounted, or turned read-only by an error."""
        mount = mounts.mounted_at(text(access.details, "point"))
        if mount is None:
            return [f"nothing is mounted at {access.details['point']}"]
        return [f"{mount.point} has become read-only"] if mount.read_only else []
