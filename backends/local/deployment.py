"""How a file system of this machine, or one that is found mounted, is deployed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.backends.system.mounts import option_values
from fsmatrix.results.evidence.stored import Stored, read
from fsmatrix.results.evidence.target import (
    DURABLE,
    FILE,
    HDD,
    NONE,
    NVME,
    PMEM,
    RAM,
    RDMA,
    SSD,
    TCP,
    WRITE_BACK,
    Deployment,
)
from fsmatrix.results.evidence.values import JsonObject

NO_CHECKSUMS = frozenset({"xfs", "ext2", "ext3", "ext4", "f2fs"})  # of the data in files
NO_SUMS = {"nodatasum", "nodatacow"}  # mount options of btrfs
PAGES, NAMES = "page cache", "kernel"


@dataclass(frozen=True, kw_only=True)
class Device(Stored):
    """A block device, as far as its deployment follows from `devices.device_facts`."""

    name: str | None = None
    rotational: bool | None = None
    write_cache: str | None = None
    loop: JsonObject | None = None
    parts: tuple[Device, ...] | None = None  # of device mapper and RAID


@dataclass(frozen=True, kw_only=True)
class Filesystem(Stored):
    """What `describe` tells of a mounted file system: bytes; None where there is no limit."""

    filesystem: str
    mount_point: str | None
    mount_source: str | None
    mount_options: str
    super_options: str
    capacity: int | None
    free: int | None
    block_size: int | None
    inodes: int | None
    inodes_free: int | None
    devices: tuple[Device, ...]
    kernel: str | None
    mkfs: tuple[str, ...] | None = None  # the argv that made it


def of_local(described: JsonObject) -> Deployment:
    """Of a file system on devices of this machine: there is no server and no network.

    `described`: what `describe` told (empty: before it is mounted).
    """
    fixed = Deployment(
        ec_encoder=NONE,
        chunk_size=0,
        transport=NONE,
        encrypted=False,
        data_cache=PAGES,
        metadata_cache=NAMES,
        storage_nodes=1,
        server_memory=0,
        shared_cores=NONE,
    )
    if not described:
        return fixed
    facts = read(Filesystem, described, "described")
    leaves = list(_leaves(facts.devices))
    single = len(leaves) == 1
    media = media_of(leaves)
    seen = Deployment(
        redundancy=NONE if single else None,  # of several devices any RAID is possible
        failure_domain=NONE if single else None,
        durability=DURABLE if "sync" in _options(facts) else WRITE_BACK,
        devices_per_node=float(len(leaves)) or None,
        media=media,
        metadata_media=media,
        checksums=_checksums(facts),
    )
    return fixed.completed(seen).completed(_filled(facts))


def of_memory(described: JsonObject) -> Deployment:
    """Of a file system in memory."""
    own = Deployment(
        redundancy=NONE, failure_domain=NONE, durability=NONE, checksums=NONE, media=RAM,
        metadata_media=RAM,
    )  # fmt: skip
    whole = own.completed(of_local({}))
    if not described:
        return whole
    return whole.completed(_filled(read(Filesystem, described, "described")))


def of_network(described: JsonObject) -> Deployment:
    """Of a network file system that somebody else mounted: what its mount alone tells."""
    facts = read(Filesystem, described, "described")
    options = _options(facts)
    protocol = options.get("proto", "")
    transport = RDMA if protocol.startswith("rdma") else TCP if protocol.startswith("tcp") else None
    secured = options.get("xprtsec")
    return Deployment(
        durability=DURABLE if "sync" in options else None,
        transport=transport,
        encrypted=secured != "none" if secured else None,
    ).completed(_filled(facts))


def _options(facts: Filesystem) -> Mapping[str, str]:
    """Of the mount and of the file system; with sync a write is durable on return."""
    return option_values(f"{facts.mount_options},{facts.super_options}")


def _checksums(facts: Filesystem) -> str | None:
    """Of the data in files; None for a type of file system that is not known."""
    if facts.filesystem in NO_CHECKSUMS:
        return NONE
    if facts.filesystem != "btrfs":
        return None
    if NO_SUMS & option_values(facts.super_options).keys():
        return NONE
    words = facts.mkfs or ()
    given = [i for i, word in enumerate(words) if word in ("--csum", "--checksum")]
    return f"{words[given[-1] + 1] if given else 'crc32c'} at rest" if words else None


def _filled(facts: Filesystem) -> Deployment:
    """Availability bytes and their used share, as statfs tells."""
    if not facts.capacity or facts.free is None:
        return Deployment()
    return Deployment(usable_bytes=facts.capacity, fill=1 - facts.free / facts.capacity)


def media_of(devices: Sequence[Device]) -> str | None:
    """Media of devices; None if one does not tell."""
    kinds = [_medium(device) for device in devices]
    named = [kind for kind in kinds if kind]
    return " + ".join(sorted(set(named))) if named and len(named) == len(kinds) else None


def _medium(device: Device) -> str:
    name = device.name or ""
    if device.loop is not None:
        return FILE
    for prefix, kind in (("pmem", PMEM), ("ram", RAM), ("zram", RAM), ("nvme", NVME)):
        if name.startswith(prefix):
            return kind
    return "" if device.rotational is None else HDD if device.rotational else SSD


def _leaves(devices: Sequence[Device]) -> Iterator[Device]:
    """The devices below device mapper and RAID."""
    for device in devices:
        if device.parts:
            yield from _leaves(device.parts)
        else:
            yield device
