"""Network and parallel file systems that somebody else mounted: recognised and described.

Each kind is known by its type in mountinfo or its magic number; its own tools tell the
rest.  A tool that is missing, fails or hangs is recorded as such and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import libc, tools
from fsmatrix.backends.system.mounts import Mount
from fsmatrix.results.evidence.values import Json

MOUNTSTATS = Path("/proc/self/mountstats")
DEADLINE = 10.0  # seconds for each tool

Commands = Callable[[str, Mount], dict[str, list[str]]]


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
