"""Provenance of the file system below a path, and its state: deployment, counters, quiet, space."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fsmatrix.backends.access import Access, PathAccess, expect
from fsmatrix.backends.contract import Settled, Space
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import devices, libc, tools
from fsmatrix.backends.system.mounts import mount_of, option_values
from fsmatrix.backends.system.tools import Overdue, within
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, read
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

NO_CHECKSUMS = frozenset({"xfs", "ext2", "ext3", "ext4", "f2fs"})  # of the data in files
NO_SUMS = {"nodatasum", "nodatacow"}  # mount options of btrfs
PAGES, NAMES = "page cache", "kernel"
MEMINFO = Path("/proc/meminfo")
SYS_NET = Path("/sys/class/net")
PORT = 6800  # of a server; any would do
DIRTY_SHARE = 1e-4  # of the memory: what other programs always leave dirty
DIRTY_FLOOR = 1 << 20  # bytes
FIRST_LOOK = 0.002  # seconds between two looks at a device that did nothing in between
NEXT_LOOK = 0.02
_NO_COUNT = 2**63  # more than any file system holds: -1 as an unsigned number


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


def local_deployment(described: JsonObject) -> Deployment:
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


def memory_deployment(described: JsonObject) -> Deployment:
    """Of a file system in memory."""
    own = Deployment(
        redundancy=NONE, failure_domain=NONE, durability=NONE, checksums=NONE, media=RAM,
        metadata_media=RAM,
    )  # fmt: skip
    whole = own.completed(local_deployment({}))
    if not described:
        return whole
    return whole.completed(_filled(read(Filesystem, described, "described")))


def network_deployment(described: JsonObject) -> Deployment:
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


def path_of(access: Access) -> str:
    """The path of a path access; TypeError for another kind."""
    return expect(access, PathAccess).path


def filesystem_facts(path: Path | str) -> dict[str, Json]:
    """What `describe` tells of what `path` is on."""
    return filesystem(path).document()


def filesystem(path: Path | str) -> Filesystem:
    """What `path` is on: type, mount options, devices, capacity and free bytes, kernel."""
    mount = mount_of(path)
    sizes = os.statvfs(path)
    inodes, inodes_free = _counted(sizes.f_files, sizes.f_favail)
    capacity, free = _counted(sizes.f_blocks, sizes.f_bavail, sizes.f_frsize)
    below = (devices.device_facts(number) for number in devices.devices_of(mount))
    return Filesystem(
        filesystem=mount.fstype,
        mount_point=mount.point,
        mount_source=mount.source,
        mount_options=mount.options,
        super_options=mount.super_options,
        capacity=capacity,
        free=free,
        block_size=sizes.f_bsize,
        inodes=inodes,
        inodes_free=inodes_free,
        devices=tuple(read(Device, facts, "devices") for facts in below),
        kernel=os.uname().release,
    )


def device_counters(numbers: Iterable[str]) -> dict[str, float]:
    """Counters of block devices and of the disks below their images; see Backend.counters."""
    numbers = tuple(numbers)
    counters: dict[str, float] = {}
    top = devices.total(numbers)
    if top:
        counters["device_read_bytes"] = top.read_bytes
        counters["device_written_bytes"] = top.written_bytes
        counters["device_busy_seconds"] = top.busy_seconds
        counters["device_reads"] = top.reads
        counters["device_writes"] = top.writes
        counters["device_read_seconds"] = top.read_seconds
        counters["device_write_seconds"] = top.write_seconds
    below = devices.total(devices.backing_below(numbers))
    if below:
        counters["backing_read_bytes"] = below.read_bytes
        counters["backing_written_bytes"] = below.written_bytes
    return counters


def network_counters() -> dict[str, float]:
    """Bytes over all network interfaces but the loopback one."""
    counters = {"network_received_bytes": 0.0, "network_sent_bytes": 0.0}
    for interface in SYS_NET.glob("*"):
        if interface.name == "lo":
            continue
        for name, file in (("network_received_bytes", "rx"), ("network_sent_bytes", "tx")):
            text = (interface / f"statistics/{file}_bytes").read_text()
            counters[name] += float(text)
    return counters


def counters_to(addresses: Sequence[str]) -> dict[str, float]:
    """Bytes to and from servers, where one interface carries all of them; else nothing.

    It is the one that the routes to their addresses leave by, asked of the kernel (a UDP socket
    that is connected, which sends nothing): the sum of all would count a byte of a bond or a
    bridge twice.  With a server on this very machine, part of the bytes goes over the loopback
    interface: then none counts, rather than for a part.  Other programs' bytes are counted too.
    """
    names = interfaces(tuple(addresses))
    totals: dict[str, float] = {}
    for counter, file in (("network_received_bytes", "rx"), ("network_sent_bytes", "tx")):
        for name in names:
            text = (SYS_NET / name / f"statistics/{file}_bytes").read_text()
            totals[counter] = totals.get(counter, 0.0) + float(text)
    return totals


@functools.cache
def interfaces(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Interfaces to these IP addresses; empty if one is this machine's or cannot be told."""
    own_addresses = {
        item.address.partition("%")[0]: name
        for name, items in psutil.net_if_addrs().items()
        for item in items
    }
    names = set()
    for address in addresses:
        source = _source(address)
        if not source or source == address or own_addresses.get(source, "lo") == "lo":
            return ()
        names.add(own_addresses[source])
    return tuple(sorted(names))


@functools.cache
def on_loopback(addresses: tuple[str, ...]) -> bool:
    """Whether no other machine can reach any of these addresses (and there are some)."""
    try:
        return bool(addresses) and all(ipaddress.ip_address(own).is_loopback for own in addresses)
    except ValueError:
        return False


def is_own(address: str) -> bool:
    """Whether an IP address is one of this machine's."""
    return bool(address) and _source(address) == address


def _source(address: str) -> str:
    """The local address from which this kernel would speak to it; "" if there is no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        ipaddress.ip_address(address)  # a name is not looked up
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, PORT))
            return str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class _Look:
    """One look at the system."""

    dirty: int  # bytes of the whole kernel, being written back included
    in_flight: int  # requests at the devices and at the disks below their images
    moved: int  # bytes read and written at the devices so far


def settle(path: Path | str, timeout: float) -> Settled:
    """Write back the file system of `path`, then wait until nothing moves.

    Quiet: dirty and written-back memory of the kernel at most max(1 MiB, 0.01 % of memory),
    no request in flight, and no byte moved at the devices between two looks.  At most about
    `timeout` seconds, also if the file system hangs.
    """
    numbers = devices.devices_below(path)
    return settle_devices(numbers, lambda: libc.syncfs(path), timeout)


def settle_devices(
    numbers: tuple[str, ...], write_back: Callable[[], None], timeout: float
) -> Settled:
    """As `settle`, of devices by their numbers; `write_back` writes what this kernel keeps."""
    began = time.monotonic()
    below = devices.backing_below(numbers)
    limit = max(DIRTY_FLOOR, int(DIRTY_SHARE * _meminfo("MemTotal")))
    last = _look(numbers, below)
    if not _bounded(write_back, timeout):
        return Settled(False, time.monotonic() - began, {"waiting_for": "write-back (syncfs)"})
    pause = FIRST_LOOK
    synced_all = False
    while True:
        time.sleep(pause)
        look = _look(numbers, below)
        quiet = look.dirty <= limit and look.in_flight == 0 and look.moved == last.moved
        seconds = time.monotonic() - began
        if quiet or seconds >= timeout:
            return Settled(quiet, seconds, {**vars(look), "dirty_limit": limit})
        if look.dirty > limit and not synced_all:  # other file systems of this kernel
            synced_all = True
            _bounded(os.sync, timeout - seconds)
        last, pause = look, NEXT_LOOK


def _look(numbers: tuple[str, ...], below: tuple[str, ...]) -> _Look:
    top, bottom = devices.total(numbers), devices.total(below)
    return _Look(
        dirty=_meminfo("Dirty") + _meminfo("Writeback"),
        in_flight=sum(stat.in_flight for stat in (top, bottom) if stat),
        moved=top.read_bytes + top.written_bytes if top else 0,
    )


def _meminfo(name: str) -> int:
    """A line of /proc/meminfo in bytes."""
    for line in MEMINFO.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _bounded(action: Callable[[], None], timeout: float) -> bool:
    """Whether `action` ended within `timeout` seconds; a hanging one stays in its thread."""
    try:
        within(timeout, action)
    except Overdue:
        return False
    except OSError as error:
        raise BackendError(f"writing back failed: {error}") from error
    return True


def space(path: Path | str) -> Space:
    """What may still be written at `path`: statfs, and the user's quota where one is told."""
    sizes = os.statvfs(path)
    free = _counted(sizes.f_blocks, sizes.f_bavail, sizes.f_frsize)[1]
    inodes = _counted(sizes.f_files, sizes.f_favail)[1]
    source = "statfs"
    limit = tools.user_quota(mount_of(path).point)
    if limit is not None:
        free, inodes = _lower(free, limit.bytes), _lower(inodes, limit.inodes)
        source = "statfs and user quota"
    return Space(free, inodes, source)


def _counted(total: int, free: int, unit: int = 1) -> tuple[int | None, int | None]:
    """Total and free of statfs, times `unit`; None for what is not counted there.

    DFUSE says -1 of inodes (2**64 - 1 where that is read as unsigned), btrfs 0 of 0.
    """
    if total == 0:
        return None, None
    return _amount(total, unit), _amount(free, unit)


def _amount(number: int, unit: int) -> int | None:
    return number * unit if 0 <= number < _NO_COUNT else None


def _lower(first: int | None, second: int | None) -> int | None:
    limits = [value for value in (first, second) if value is not None]
    return min(limits) if limits else None
