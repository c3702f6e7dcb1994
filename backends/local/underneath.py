"""What lies below a place: network and parallel file systems described, and cautions about any.

File systems that somebody else mounted are known by their type in mountinfo or their magic number;
their own tools tell the rest.  A tool that is missing, fails or hangs is recorded as such and stops
nothing.  What changes the measurement there is said before anything runs.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.local import provenance
from fsmatrix.backends.system import devices, libc, tools
from fsmatrix.backends.system.mounts import Mount, mount_of, option_values
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.target import MEMORY_TYPES

MOUNTSTATS = Path("/proc/self/mountstats")
DEADLINE = 10.0  # seconds for each tool
Commands = Callable[[str, Mount], dict[str, list[str]]]
# how a client in user space is told to keep nothing itself, by its type in mountinfo
UNCACHED = {
    "fuse.ceph-fuse": "ceph-fuse --client_oc=false",
    "fuse.daos": "dfuse --disable-caching",
    "fuse.dfuse": "dfuse --disable-caching",
    "fuse.sshfs": "sshfs -o direct_io,dir_cache=no",
}
HOST = re.compile(r"(?:.*@)?(?://)?(\[[^\]]+\]|[^:/,@]+)[:/]")  # of host:/path, //host/share


@dataclass(frozen=True)
class Client:
    """One kind of network file system."""

    name: str
    fstypes: frozenset[str]
    magic: frozenset[int]
    commands: Commands  # (path, mount) -> name of the fact -> argv


def _lustre(path: str, mount: Mount) -> dict[str, list[str]]:
    del mount
    return {
        "striping": ["lfs", "getstripe", "-d", path],
        "targets": ["lfs", "df", path],
        "version": ["lfs", "--version"],
    }


def _gpfs(path: str, mount: Mount) -> dict[str, list[str]]:
    device = mount.source.removeprefix("/dev/")
    return {"attributes": ["mmlsattr", "-L", path], "filesystem_settings": ["mmlsfs", device]}


def _beegfs(path: str, mount: Mount) -> dict[str, list[str]]:
    return {
        "striping": ["beegfs-ctl", f"--mount={mount.point}", "--getentryinfo", path],
        "targets": ["beegfs-ctl", f"--mount={mount.point}", "--listtargets", "--spaceinfo"],
    }


def _none(path: str, mount: Mount) -> dict[str, list[str]]:
    del path, mount
    return {}


# magic numbers: linux/magic.h, and the f_type that each client's own sources give
CLIENTS: tuple[Client, ...] = (
    Client("lustre", frozenset({"lustre"}), frozenset({0x0BD00BD0}), _lustre),
    Client("gpfs", frozenset({"gpfs"}), frozenset({0x47504653}), _gpfs),
    Client(
        "beegfs",
        frozenset({"beegfs", "beegfs_nodev", "fhgfs"}),
        frozenset({0x19830326}),
        _beegfs,
    ),
    Client("nfs", frozenset({"nfs", "nfs4"}), frozenset({0x6969}), _none),
    Client(
        "cephfs",
        frozenset({"ceph", "fuse.ceph", "fuse.ceph-fuse"}),
        frozenset({0xC36400}),
        _none,
    ),
    Client("dfuse", frozenset({"fuse.daos", "fuse.dfuse"}), frozenset(), _none),
    Client("smb", frozenset({"cifs", "smb3"}), frozenset({0xFF534D42, 0xFE534D42}), _none),
    Client("9p", frozenset({"9p"}), frozenset({0x01021997}), _none),
)


def recognise(fstype: str, magic: int | None = None) -> Client | None:
    """The kind of network file system; None for a local one.  The type decides, then magic."""
    for client in CLIENTS:
        if fstype in client.fstypes:
            return client
    for client in CLIENTS:
        if magic in client.magic:
            return client
    return None


def recognise_at(path: str, mount: Mount) -> Client | None:
    """As `recognise`, with the magic number of `path`."""
    return recognise(mount.fstype, libc.statfs_magic(path))


def client_facts(client: Client, path: str, mount: Mount) -> dict[str, Json]:
    """What the kind's own tools tell about `path`: name of the fact -> text or {"error"}."""
    facts: dict[str, Json] = {"network_filesystem": client.name}
    for name, argv in client.commands(path, mount).items():
        if tools.find(argv[0]) is None:
            facts[name] = {"error": tools.refusal(argv[0]) or f"{argv[0]} is not installed"}
            continue
        try:
            facts[name] = tools.run(argv, deadline=DEADLINE).stdout.strip()
        except ToolError as error:
            facts[name] = {"error": str(error)}
    if client.name == "nfs":
        facts["mountstats"] = mountstats_of(mount.point)
    return facts


def mountstats_of(point: str) -> str | dict[str, str]:
    """The section of this mount in /proc/self/mountstats."""
    try:
        text = MOUNTSTATS.read_text(errors="replace")
    except OSError as error:
        return {"error": f"{MOUNTSTATS}: {error.strerror}"}
    return parse_mountstats(text).get(point) or {"error": f"{point} is not in {MOUNTSTATS}"}


def parse_mountstats(text: str) -> dict[str, str]:
    """Sections by mount point; each begins with "device SOURCE mounted on POINT with ..."."""
    sections: dict[str, str] = {}
    point = ""
    for line in text.splitlines():
        if line.startswith(("device ", "no device ")) and " mounted on " in line:
            point = line.partition(" mounted on ")[2].partition(" with fstype ")[0]
            sections[point] = line
        elif point:
            sections[point] += f"\n{line}"
    return {name: section.rstrip() for name, section in sections.items()}


def cautions_of_mount(mount: Mount) -> Iterator[str]:
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


def cautions_of_place(place: Path) -> Iterator[str]:
    """The same of a directory, a block device, or an image that is or will be at `place`."""
    if place.is_block_device():
        return
    if place.is_dir():
        yield from cautions_of_mount(mount_of(place))
    else:
        yield from cautions_of_image(place)


def disks_of(place: Path) -> frozenset[str]:
    """ "major:minor" of the disks below a directory or block device, or of a file system without
    any; images may share one."""
    if place.is_block_device():
        return frozenset({devices.disk_of(devices.number_of(place))})
    if not place.is_dir():
        return frozenset()
    mount = mount_of(place)
    return frozenset(map(devices.disk_of, devices.devices_of(mount))) or frozenset({mount.device})


def cautions_of_image(place: Path) -> Iterator[str]:
    """The same of an image that is or will be at `place`, or below it."""
    mount = mount_of(next(path for path in (place, *place.parents) if path.exists()))
    if mount.fstype in MEMORY_TYPES:
        yield f"{place} is in memory ({mount.fstype}): no storage is measured; put it on a disk"
    yield from cautions_of_mount(mount)


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
    if not (recognise(mount.fstype) or _in_user_space(mount)):
        return ""
    named = HOST.match(mount.source)
    options = option_values(mount.super_options)
    server = options.get("addr") or (named[1].strip("[]") if named else "")
    names = ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0])
    return server if server in names or provenance.is_own(server) else ""


def _in_user_space(mount: Mount) -> bool:
    return mount.fstype in ("fuse", "fuseblk") or mount.fstype.startswith("fuse.")
