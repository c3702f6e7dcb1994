"""What lies below a place and changes what is measured there: said before anything runs."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

from fsmatrix.backends.local import clients, provenance
from fsmatrix.backends.system import devices
from fsmatrix.backends.system.mounts import Mount, mount_of, option_values
from fsmatrix.results.evidence.target import MEMORY_TYPES

# how a client in user space is told to keep nothing itself, by its type in mountinfo
UNCACHED = {
    "fuse.ceph-fuse": "ceph-fuse --client_oc=false",
    "fuse.daos": "dfuse --disable-caching",
    "fuse.dfuse": "dfuse --disable-caching",
    "fuse.sshfs": "sshfs -o direct_io,dir_cache=no",
}
HOST = re.compile(r"(?:.*@)?(?://)?(\[[^\]]+\]|[^:/,@]+)[:/]")  # of host:/path, //host/share


def of_mount(mount: Mount) -> Iterator[str]:
    """Sentences with their remedies; none where nothing is known."""
    for number in devices.devices_of(mount):
        for name in devices.loops_below(number):
            yield from _of_loop(name, mount.point)
    if _in_user_space(mount):
        remedy = UNCACHED.get(mount.fstype, "its option for direct I/O, often -o direct_io")
        yield (
            f"{mount.point} is a FUSE mount ({mount.fstype}), whose daemon may cache what no cache "
            f"state here empties: mount it without ({remedy})"
        )
    if server := _own_server(mount):
        yield (
            f"the server {server} of {mount.point} ({mount.fstype}) is this machine, whose memory "
            "and CPUs then work for both sides: run fsmatrix on another client (launcher.hosts)"
        )


def of_place(place: Path) -> Iterator[str]:
    """The same of a directory, a block device, or an image that is or will be at `place`."""
    if place.is_block_device():
        return
    if place.is_dir():
        yield from of_mount(mount_of(place))
    else:
        yield from of_image(place)


def disks_of(place: Path) -> frozenset[str]:
    """ "major:minor" of the disks below a directory or block device, or of a file system without
    any; images may share one."""
    if place.is_block_device():
        return frozenset({devices.disk_of(devices.number_of(place))})
    if not place.is_dir():
        return frozenset()
    mount = mount_of(place)
    return frozenset(map(devices.disk_of, devices.devices_of(mount))) or frozenset({mount.device})


def of_image(place: Path) -> Iterator[str]:
    """The same of an image that is or will be at `place`, or below it."""
    mount = mount_of(next(path for path in (place, *place.parents) if path.exists()))
    if mount.fstype in MEMORY_TYPES:
        yield f"{place} is in memory ({mount.fstype}): no storage is measured; put it on a disk"
    yield from of_mount(mount)


def _of_loop(name: str, point: str) -> Iterator[str]:
    if not devices.loop_direct_io(name):
        yield (
            f"/dev/{name} below {point} works through the page cache of its image: "
            f"losetup --direct-io=on /dev/{name}"
        )
    file = Path(devices.image_of(name))
    if file.exists() and (fstype := mount_of(file).fstype) in MEMORY_TYPES:
        yield f"{file}, the image below {point}, is in memory ({fstype}): put it on a disk"


def _own_server(mount: Mount) -> str:
    """The server of a network mount if that is this machine, as the mount names it."""
    if not (clients.recognise(mount.fstype) or _in_user_space(mount)):
        return ""
    named = HOST.match(mount.source)
    options = option_values(mount.super_options)
    server = options.get("addr") or (named[1].strip("[]") if named else "")
    names = ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0])
    return server if server in names or provenance.is_own(server) else ""


def _in_user_space(mount: Mount) -> bool:
    return mount.fstype in ("fuse", "fuseblk") or mount.fstype.startswith("fuse.")
