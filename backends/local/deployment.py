"""How a file system of this machine, or one that is found mounted, is deployed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsmatrix.backends.system.mounts import option_values
from fsmatrix.results.evidence.deployment import (
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

NO_CHECKSUMS = frozenset({"xfs", "ext2", "ext3", "ext4", "f2fs"})  # of the data in files
NO_SUMS = {"nodatasum", "nodatacow"}  # mount options of btrfs
PAGES, NAMES = "page cache", "kernel"


def of_local(described: Mapping[str, Any]) -> Deployment:
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
    )
    if not described:
        return fixed
    leaves = list(_leaves(described["devices"]))
    single = len(leaves) == 1
    media = media_of(leaves)
    seen = Deployment(
        redundancy=NONE if single else None,  # of several devices any RAID is possible
        failure_domain=NONE if single else None,
        durability=durability_of(described),
        devices_per_node=float(len(leaves)) or None,
        media=media,
        metadata_media=media,
        checksums=_checksums(described),
    )
    return fixed.completed(seen).completed(filled(described))


def of_memory(described: Mapping[str, Any]) -> Deployment:
    """Of a file system in memory."""
    own = Deployment(
        redundancy=NONE, failure_domain=NONE, durability=NONE, checksums=NONE, media=RAM,
        metadata_media=RAM,
    )  # fmt: skip
    return own.completed(of_local({})).completed(filled(described))


def of_network(described: Mapping[str, Any]) -> Deployment:
    """Of a network file system that somebody else mounted: what its mount alone tells."""
    options = option_values(f"{described['mount_options']},{described['super_options']}")
    protocol = options.get("proto", "")
    transport = RDMA if protocol.startswith("rdma") else TCP if protocol.startswith("tcp") else None
    secured = options.get("xprtsec")
    return Deployment(
        durability=DURABLE if "sync" in options else None,
        transport=transport,
        encrypted=secured != "none" if secured else None,
    ).completed(filled(described))


def durability_of(described: Mapping[str, Any]) -> str:
    """Of a write through the page cache: on return only where the mount says sync."""
    options = option_values(f"{described['mount_options']},{described['super_options']}")
    return DURABLE if "sync" in options else WRITE_BACK


def _checksums(described: Mapping[str, Any]) -> str | None:
    """Of the data in files; None for a type of file system that is not known."""
    if described["filesystem"] in NO_CHECKSUMS:
        return NONE
    if described["filesystem"] != "btrfs":
        return None
    if NO_SUMS & option_values(described["super_options"]).keys():
        return NONE
    words = list(described.get("mkfs", ()))
    given = [i for i, word in enumerate(words) if word in ("--csum", "--checksum")]
    return f"{words[given[-1] + 1] if given else 'crc32c'} at rest" if words else None


def filled(described: Mapping[str, Any]) -> Deployment:
    """Usable bytes and their used share, as statfs tells."""
    capacity = described.get("capacity")
    if not capacity:
        return Deployment()
    return Deployment(usable_bytes=capacity, fill=1 - described["free"] / capacity)


def media_of(devices: Sequence[Mapping[str, Any]]) -> str | None:
    """Media of devices as `devices.device_facts` describes them; None if one does not tell."""
    kinds = [_medium(device) for device in devices]
    named = [kind for kind in kinds if kind]
    return " + ".join(sorted(set(named))) if named and len(named) == len(kinds) else None


def _medium(device: Mapping[str, Any]) -> str:
    name = str(device.get("name", ""))
    if "loop" in device:
        return FILE
    for prefix, kind in (("pmem", PMEM), ("ram", RAM), ("zram", RAM), ("nvme", NVME)):
        if name.startswith(prefix):
            return kind
    rotational = device.get("rotational")
    return "" if rotational is None else HDD if rotational else SSD


def _leaves(devices: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The devices below device mapper and RAID."""
    for device in devices:
        if device.get("parts"):
            yield from _leaves(device["parts"])
        else:
            yield device
