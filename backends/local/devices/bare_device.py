"""The backend `device`: a bare block device, whose content is destroyed.

Runs work on a node of the device, `data`, in a folder of the suite's own below /dev; it is made by
the number of the device that the node leader has claimed, so that no name leads elsewhere.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.access import Access, DeviceAccess, expect
from fsmatrix.backends.cache import RESIDUE
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    Backend,
    BackendOptions,
    CacheMethod,
    Evidence,
    Foreseen,
    ProvisionContext,
    RunPlace,
    Settled,
    Space,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import images, own_mounts, provenance
from fsmatrix.backends.local.devices import claims, emulated
from fsmatrix.backends.local.devices.claims import Disk, disk_of
from fsmatrix.backends.local.devices.emulated import Rates
from fsmatrix.backends.local.provenance import PAGES, Filesystem, local_deployment
from fsmatrix.backends.system import devices, tools
from fsmatrix.backends.system.cgroups import Limits
from fsmatrix.backends.system.files import residency_method, resident_of_device
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.stored import (
    Json,
    JsonObject,
    Level,
    inside,
    mapping,
    positive,
    read,
    text,
    whole,
)
from fsmatrix.results.evidence.target import DURABLE, NONE, WRITE_BACK, Deployment
from fsmatrix.results.process import boot_id
from fsmatrix.results.units import PositiveSize, format_size

# The claim of a node leader on its device, held from mount to unmount, and its node for runs.


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


# Options of the backend `device`.


class EmulatedDevice(BaseModel):
    """A throttled loop device on an image of the suite's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: PositiveSize = Field(256 << 20, description="bytes")
    iops: Rates = Field(description="what it can do")


class DeviceOptions(BackendOptions):
    """Either a device and the word that it may be destroyed, or an emulated one."""

    device: str = Field("", description="the block device: /dev/disk/by-id/nvme-...")
    destroy: str = Field(
        "",
        description="serial number of the device whose content may be destroyed; `no-signature` "
        "where it has none",
    )
    buffered: bool = Field(
        False, description="through the page cache of the device, not by direct I/O"
    )
    emulated: EmulatedDevice | None = Field(
        None, description="instead: a throttled loop device of this machine"
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if value and (not value.startswith("/dev/") or "\0" in value or ".." in value.split("/")):
            raise ValueError(f"device must be a path below /dev, not {value!r}")
        return value

    @field_validator("destroy", mode="before")
    @classmethod
    def _destroy(cls, value: Any) -> Any:
        if isinstance(value, int | float):
            raise ValueError(f"name the serial number, as text in quotes, not {value!r}")
        return value

    @model_validator(mode="after")
    def _either(self) -> DeviceOptions:
        if bool(self.device) == (self.emulated is not None):
            raise ValueError("give either device or emulated")
        if self.device and not self.destroy:
            raise ValueError(
                "destroy must name the serial number of the device whose content may be destroyed "
                "(`no-signature` where it has none): lsblk --nodeps --output NAME,SERIAL"
            )
        if self.emulated and self.destroy:
            raise ValueError("destroy needs device: an emulated device belongs to the suite")
        return self


# An emulated bare device: a throttled loop device on an image of the suite's own.


def refusal() -> str:
    """Why it cannot be made here (empty: it can)."""
    return images.loop_refusal() or emulated.limits_refusal()


def make(options: EmulatedDevice, context: ProvisionContext) -> JsonObject:
    """Attach the image (made once, every byte written); not throttled yet."""
    context.state.mkdir(parents=True, exist_ok=True)
    image = images.image_for(context, options.size)
    device, _ = images.attach(image, context.journal, "required")
    try:
        images.forbid_discard(device)
    except BaseException:
        images.detach(device, context.journal, str(image.facts["path"]))
        raise
    rates = Limits(read_operations=options.iops.read, write_operations=options.iops.write)
    return {"device": device, "image": str(image.facts["path"]), "limits": vars(rates)}


def throttle(attached: JsonObject, journal: Journal) -> None:
    """Limit what this process's cgroup does on it."""
    rates = mapping(attached, "limits")
    wanted = Limits(**{name: whole(rates, name) for name in rates})
    emulated.impose(text(attached, "device"), wanted, journal)


def lift(attached: JsonObject, journal: Journal) -> None:
    """Undo `throttle`; harmless where that is done."""
    emulated.lift(text(attached, "device"), journal)


def release(attached: JsonObject, journal: Journal) -> None:
    """Lift the limit and detach it; the image stays until the campaign ends."""
    lift(attached, journal)
    images.detach(text(attached, "device"), journal, text(attached, "image"))


CLASS = "device_class"  # attribute of targets
NODES = Path("/dev")  # device nodes work here; elsewhere a mount may be nodev


class Device(Backend):
    """See the module."""

    name = "device"
    Options = DeviceOptions
    access_type = DeviceAccess
    network = False
    guarded = True
    cache_states = frozenset({"cold", "bypass"})  # a warm one would measure the page cache alone

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._lock: int | None = None  # from provision to release

    @property
    def _chosen(self) -> DeviceOptions:
        return cast(DeviceOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """Root, and the program that knows signatures."""
        reason = own_mounts.root_refusal() or tools.missing("wipefs")
        return Availability(
            not reason, f"kernel {os.uname().release}" if not reason else "", reason
        )

    def refusal(self) -> str:
        """Why the device may not be overwritten."""
        if own_mounts.root_refusal():
            return ""
        if self._chosen.emulated:
            return refusal()
        try:
            with claims.opened(self._chosen.device) as handle:
                return claims.refusal(handle, self._chosen.destroy)
        except BackendError as error:
            return str(error)

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """The device; of an emulated one its class, and its image.

        The class of a real one the campaign may tell.
        """
        known, played = super().foreseen(level), self._chosen.emulated
        if not played:
            return replace(known, places=(self._chosen.device,))
        of_class = {CLASS: "emulated"}
        return replace(
            known,
            attributes=of_class,
            realised=of_class,
            state_bytes=played.size,
            state_direct=True,
        )

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """The image of an emulated device."""
        del level, block_seed
        played = self._chosen.emulated
        return images.commands(played.size) if played else []

    def provision(self, level: Level, context: ProvisionContext) -> DeviceAccess:
        """Look at the device, lock it, and make the folder of its nodes; nothing is written."""
        self.refuse_level(level)
        chosen = self._chosen
        attached: JsonObject = {}
        device, destroy = chosen.device, chosen.destroy
        if chosen.emulated:
            attached = make(chosen.emulated, context)
            device, destroy = text(attached, "device"), claims.NO_SIGNATURE
        try:
            with claims.opened(device) as handle:
                self._lock = claims.lock(handle)
                if reason := claims.refusal(handle, destroy):
                    raise BackendError(reason)
                disk = claims.disk(handle)
            folder = journal.make_tree(NODES, context.tag, context.journal)
        except BaseException:
            self._let_go(attached, context.journal)
            raise
        details: dict[str, Json] = {
            "destroy": destroy,
            "disk": asdict(disk),
            "tree": str(folder),
            "tag": context.tag,
            "boot_id": boot_id(),
            "host": socket.gethostname(),
            **({"emulated": attached} if attached else {}),
        }
        path = str(folder / journal.DATA)
        return DeviceAccess(
            self.name, context.target, details, device, path, direct=not chosen.buffered
        )

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Remove the nodes, look at what the device carries now, and unlock it."""
        bare, attached = _bare(access), inside(access.details, "emulated")
        try:
            give_back(bare)
            journal.release_tree(
                Path(text(bare.details, "tree")), text(bare.details, "tag"), context.journal
            )
            if not attached:
                with claims.opened(bare.device) as handle:
                    reason = claims.signature_refusal(handle.path, bare.device)
                if reason:
                    raise BackendError(f"after the runs, {reason}")
        finally:
            self._let_go(attached, context.journal)

    def _let_go(self, attached: JsonObject, journal: Journal) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if attached:
            release(attached, journal)

    def finish(self, context: ProvisionContext) -> None:
        """Remove the image of an emulated device."""
        images.remove_own(context)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of the device, what was agreed to, and how runs divide it."""
        bare = _bare(access)
        disk = inside(bare.details, "disk")
        facts: dict[str, Json] = {
            "devices": [devices.device_facts(_number(bare))],
            "device": bare.device,
            "serial": disk["serial"],
            "capacity": disk["size"],
            "free": disk["size"],
            "destroy": bare.details["destroy"],
            "direct": bare.direct,
            "division": "each process has a range of its own, in the order of ranks, from byte 0",
            "overwritten": "from byte 0 up to the sum of all ranges of the largest run",
            "kernel": os.uname().release,
            "managed": "emulated" in bare.details,
        }
        if "emulated" in bare.details:
            rates = inside(bare.details, "emulated", "limits")
            facts["emulated"] = {"device_limits": rates, "adapter_limits": rates}
            facts["device_numbers"] = [0]
        return facts

    def deployment(self, described: JsonObject) -> Deployment:
        """A device of this machine without a file system; its own cache decides on durability."""
        direct = not self._chosen.buffered
        own = Deployment(
            redundancy=NONE,
            failure_domain=NONE,
            metadata_cache=NONE,
            data_cache=NONE if direct else PAGES,
        )
        if not described:
            return own.completed(local_deployment({}))
        bare = {**described, "filesystem": NONE, "mount_options": "", "super_options": ""}
        cache = read(Filesystem, bare, "described").devices[0].write_cache or ""
        durability = {"write back": WRITE_BACK, "write through": DURABLE}.get(cache)
        seen = Deployment(durability=durability if direct else WRITE_BACK)
        return own.completed(seen).completed(local_deployment(bare))

    def space(self, access: Access | None = None) -> Space:
        """The size of the device: what is on it does not count, and is lost.

        Its logical block is what direct I/O needs (512 bytes of an emulated one, as all direct
        I/O does); through the page cache any size will do.
        """
        if access is not None:
            block = self._block(_number(access))
            return Space(_size(access), None, "size of the device", block)
        if self._chosen.emulated:
            return Space(self._chosen.emulated.size, None, "size of the image")
        try:
            with claims.opened(self._chosen.device) as handle:
                disk = claims.disk(handle)
        except BackendError as error:  # `refusal` says so of a target that takes part
            return Space(None, None, str(error))
        facts = devices.device_facts(disk.number)
        words = [str(facts.get("model", "")), f"serial number {disk.serial}" if disk.serial else ""]
        identity = ", ".join(word for word in words if word) or "no serial number"
        whose = f"{self._chosen.device} ({disk.name}, {identity}, {format_size(disk.size, 1)})"
        return Space(disk.size, None, "size of the device", self._block(disk.number), whose)

    def _block(self, number: str) -> int:
        if self._chosen.buffered or self._chosen.emulated:
            return 1
        return positive(devices.device_facts(number).get("logical_block_size")) or 1

    # -- node leaders --------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look at the device again and claim it, until `unmount`."""
        bare = _bare(access)
        if bare.details["boot_id"] != boot_id():
            raise BackendError(
                f"{bare.device} of target {access.target} was looked at on host "
                f"{bare.details['host']}: a device cannot be used from {socket.gethostname()}"
            )
        take(bare)
        if attached := inside(bare.details, "emulated"):
            throttle(attached, journal)

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """End the claim; harmless if there is none."""
        give_back(_bare(access))
        if attached := inside(access.details, "emulated"):
            lift(attached, journal)

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """The folder of the run's node."""
        return RunPlace((str(Path(_bare(access).path) / name),))

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """A folder with the node of the device: still that one, claimed, and carrying nothing."""
        del programs
        make_node(_bare(access), Path(cls.run_root(access, name)))

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove the node; the device is not touched."""
        remove_tree(Path(cls.run_root(access, name)))

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Write back and drop what the page cache has of the device."""
        del files, method
        bare = _bare(access)
        if state not in cls.cache_states:
            raise BackendError(f"{cls.name} cannot reach cache state {state!r}")
        descriptor = of(bare).descriptor
        before = resident_of_device(descriptor)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        after = resident_of_device(descriptor)
        size = _size(bare)
        gone = after is not None and after <= RESIDUE * size
        facts = {
            "bytes": size,
            "resident_before": before,
            "resident_after": after,
            "resident_by": residency_method(),
            "o_direct": bare.direct,
        }
        reached = gone or bare.direct
        how = "O_DIRECT" if state == "bypass" else "fadvise"
        return Evidence(state if reached else "unknown", how, facts)

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Of the device, and of the disk below its image."""
        return provenance.device_counters([_number(access)])

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back the page cache of the device and wait until it is quiet."""
        descriptor = of(_bare(access)).descriptor
        return provenance.settle_devices((_number(access),), lambda: os.fsync(descriptor), timeout)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """It has gone, or has become another one or read-only."""
        try:
            recognise(_bare(access))
        except BackendError as error:
            return [str(error)]
        return []


def _number(access: Access) -> str:
    return text(inside(access.details, "disk"), "number")


def _size(access: Access) -> int:
    return positive(inside(access.details, "disk")["size"]) or 0


def _bare(access: Access) -> DeviceAccess:
    return expect(access, DeviceAccess)
