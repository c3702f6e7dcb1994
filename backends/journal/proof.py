"""Which store this is, and what proves that a recorded thing is its own, before it is touched.

A store has a random id beside its journals, and the place where that was drawn; `store` is a digest
of both.  It stands in every line of a journal, in the markers of trees and in the environment of
what is started, so that a thing proves by itself which store made it.  A copy of a store has
another place, so it is another store: nothing that the original made is its.

A journal says what to look at, never what to do: each kind of thing has to show by itself, by
where it is and what it carries, that this very store made it.

Things of this machine are taken down again in the same way whatever backend made them.  Every such
function looks first whether the thing is the very one that was recorded.  It returns what it did
("" if nothing was left), or raises NotProvenOurs with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.system import devices, mounts
from fsmatrix.backends.system.devices import Backing, loop_backing, loops_attached_to
from fsmatrix.backends.system.files import place_of
from fsmatrix.results.evidence.stored import JsonObject, text, whole
from fsmatrix.results.files import safefile
from fsmatrix.results.process import environment
from fsmatrix.results.registry import BrokenEntry, Registry

FILE = "identity.json"
VARIABLE = "FSMATRIX_STORE"  # in the environment of what a store starts
SESSION = "FSMATRIX_SESSION"  # and of what belongs to one session of it: its name
LIMIT = 4096
_ID = re.compile(r"[0-9a-f]{32}")
Facts = JsonObject
PREFIX = "fsmatrix-"
_IMAGE = re.compile(r"[0-9a-f]{16}\.img|image\.\d+")
POINT = re.compile(r"mnt(-\d+)?")  # name of a mount point
_TAGGED = re.compile(r"fsmatrix-[0-9a-f]{16,}(-\d+)?")
_TMPFS = re.compile(r"fsmatrix-[A-Za-z0-9_.-]+")
_LOOP = re.compile(r"/dev/loop\d+")


@dataclass(frozen=True)
class Identity:
    """A folder of journals: where it is, and what proves that something is its own."""

    folder: Path  # absolute, without links
    store: str  # 32 hex digits

    @property
    def state(self) -> Path:
        """Where a store keeps its images and mount points."""
        return self.folder.parent / "state"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that may have to be ended by somebody else than who started them."""
        return environment_proof(self.store)

    def new_uuid(self) -> str:
        """Of a file system on a device: half of it is random, half says whose it is."""
        return self._uuid(secrets.token_bytes(8))

    def made_uuid(self, text: str) -> bool:
        """Whether `new_uuid` of this very store gave it."""
        try:
            return text == self._uuid(uuid.UUID(text).bytes[:8])
        except ValueError:
            return False

    def _uuid(self, drawn: bytes) -> str:
        version = bytes([*drawn[:6], drawn[6] & 0x0F | 0x40, drawn[7]])
        ours = hashlib.sha256(self.store.encode() + version).digest()[:8]
        return str(uuid.UUID(bytes=version + ours, version=4))


def identity(folder: Path) -> Identity:
    """Of the journals in `folder`; made if there is none.  BackendError if it is not ours."""
    place = folder.resolve()
    drawn = _read(place) or _make(place)
    # the inode tells a copy from the original where both are called alike (containers)
    text = f"{drawn}\0{place}\0{place.stat().st_ino}"
    return Identity(place, hashlib.sha256(text.encode()).hexdigest()[:32])


def environment_proof(store: str, session: str = "") -> dict[str, str]:
    """What the environment of a process of a store holds, and of one of its sessions."""
    return {VARIABLE: store} | ({SESSION: session} if session else {})


def carries(pid: int, store: str, session: str = "") -> bool:
    """Whether a process was started with that proof in its environment."""
    return _as_bytes(environment_proof(store, session)) <= environment(pid)


def carriers(store: str, session: str = "") -> list[int]:
    """All processes of this kernel that carry the proof of a store, or of a session of it.

    Kernel threads and the dead have no environment.  One that is being started has none for a
    moment: its parent has.
    """
    wanted = _as_bytes(environment_proof(store, session))
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours to look at
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                pids.append(int(folder.name))
    return pids


def _as_bytes(variables: Mapping[str, str]) -> set[bytes]:
    return {f"{name}={value}".encode() for name, value in variables.items()}


def _read(folder: Path) -> str:
    path = folder / FILE
    try:
        data = json.loads(safefile.read_note(path, LIMIT))
        drawn = data["id"]
    except FileNotFoundError:
        return ""
    except safefile.NotTrusted as error:
        raise BackendError(str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackendError(f"{path}: damaged: it holds no id of a store") from error
    if not isinstance(drawn, str) or not _ID.fullmatch(drawn):
        raise BackendError(f"{path}: damaged: {drawn!r} is no id of a store")
    return drawn


def _make(folder: Path) -> str:
    """Draw an id; the first of several shards that do so at the same time decides."""
    drawn = secrets.token_hex(16)
    aside = folder / f".{FILE}.{os.uname().nodename}.{os.getpid()}.{drawn[:8]}"
    safefile.create_note(aside, json.dumps({"id": drawn, "made_by": "fsmatrix"}).encode())
    try:
        os.link(aside, folder / FILE)
    except FileExistsError:
        return _read(folder)
    except OSError:  # a file system without hard links
        if not (folder / FILE).exists():
            aside.replace(folder / FILE)
        return _read(folder)
    finally:
        aside.unlink(missing_ok=True)
    return drawn


class NotProvenOurs(Exception):
    """Something is there that is not, or not provably, what the journal recorded."""


@dataclass(frozen=True)
class PlannedPaths:
    """Places that the stored plan names, by target: its user asked for them."""

    images: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnershipScope:
    """What a store may undo things on: who it is, and what its plan names."""

    identity: Identity
    named: PlannedPaths = field(default_factory=PlannedPaths)
    folder: Path | None = None  # a test bed's own; None: the store's `state`

    @property
    def state(self) -> Path:
        """Where images and mount points are."""
        return self.identity.state if self.folder is None else self.folder

    def holds(self, path: Path) -> bool:
        """Whether it is a place inside, reached by no link."""
        return path.is_absolute() and path.resolve() == path and path.is_relative_to(self.state)

    def image(self, path: Path, target: str | None = None) -> bool:
        """Whether an image of this store may be there (of a target, or of any)."""
        if self.holds(path):
            return _IMAGE.fullmatch(path.name) is not None
        images = self.named.images
        named = images.values() if target is None else [images.get(target, "")]
        return any(_is_named(path, image) for image in named)

    def device(self, path: str, target: str | None = None) -> bool:
        """Whether the plan names this block device (for a target, or for any)."""
        devices = self.named.devices
        named = devices.values() if target is None else [devices.get(target, "")]
        return any(device and Path(device).resolve() == Path(path) for device in named)


def _is_named(path: Path, image: str) -> bool:
    """Whether a plan's image is there; one whose variables are not set here is nowhere."""
    try:
        return bool(image) and path == place_of(image)
    except BackendError:
        return False


def of_mount(facts: Facts, ground: OwnershipScope) -> None:
    """At a mount point of ours: our tmpfs, our image, or a device that the plan names."""
    path, source = str(facts["path"]), str(facts["source"])
    mount = mounts.mounted_at(path)
    if mount is None or mount.source != source:
        return
    if not ground.holds(Path(path)) or not POINT.fullmatch(Path(path).name):
        raise NotProvenOurs(f"{path} is no mount point of this results directory: not unmounted")
    ours = (
        bool(_TMPFS.fullmatch(source))
        if mount.fstype == "tmpfs"
        else our_loop(source, ground) or ground.device(source)
    )
    if not ours:
        raise NotProvenOurs(f"{path}: nothing proves that {source} is ours: not unmounted")


def our_loop(device: str, ground: OwnershipScope) -> bool:
    """Whether an image of ours is behind this loop device, or a part of such a one."""
    if not _LOOP.fullmatch(device):
        return False
    behind = loop_backing(device)
    if behind is None:
        return False
    file = _file_of(behind)
    return ground.image(file) or our_loop(str(file), ground)


def _file_of(behind: Backing) -> Path:
    return Path(behind.file.removesuffix(" (deleted)"))


def of_loop(facts: Facts, ground: OwnershipScope) -> None:
    """The kernel says that an image of ours is behind it, or another loop device of ours."""
    image = Path(str(facts["image"]))
    attached = loops_attached_to(whole(facts, "inode"), whole(facts, "filesystem"))
    part = bool(_LOOP.fullmatch(str(image)))
    if part and not attached:
        return
    if not (our_loop(str(image), ground) if part else ground.image(image)):
        raise NotProvenOurs(f"{image} is no image of this results directory: not detached")
    for behind in attached:
        if _file_of(behind) != image:
            raise NotProvenOurs(f"{behind.device} has {behind.file} behind it: not detached")


def of_image(facts: Facts, ground: OwnershipScope) -> None:
    """In the state directory, or where the plan wants this target's image; and our own file."""
    path = Path(str(facts["path"]))
    if not ground.image(path, str(facts.get("target", ""))):
        raise NotProvenOurs(f"{path} is no image of this results directory: not removed")
    if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
        raise NotProvenOurs(f"{path} belongs to user {path.lstat().st_uid}: not removed")


def of_folder(facts: Facts, ground: OwnershipScope) -> None:
    """A mount point in the state directory."""
    path = Path(str(facts["path"]))
    if not ground.holds(path) or not POINT.fullmatch(path.name):
        raise NotProvenOurs(f"{path} is no mount point of this results directory: not removed")


def of_tree(facts: Facts, ground: OwnershipScope) -> None:
    """A marker with the recorded tag and this store's proof; without one, our name and owner."""
    path, tag = Path(str(facts["path"])), str(facts["tag"])
    if not os.path.lexists(path):
        return
    if not path.is_absolute():
        raise NotProvenOurs(f"{path} is no absolute path: not removed")
    mark = tree.read_mark(path)
    if mark is None:
        named = _TAGGED.fullmatch(path.name) and path.name.startswith(f"{PREFIX}{tag}")
        if not named or path.lstat().st_uid != os.geteuid():
            raise NotProvenOurs(f"{path} has no marker: not removed")
    elif mark.tag != tag:
        raise NotProvenOurs(f"{path} belongs to {mark.tag!r}: not removed (expected {tag!r})")
    elif mark.store != ground.identity.store:
        raise NotProvenOurs(f"{path} belongs to another results directory: not removed")


def of_device(facts: Facts, ground: OwnershipScope) -> None:
    """The plan names it for the recorded target, and the UUID was drawn by this store."""
    device, uuid = str(facts["device"]), str(facts["uuid"])
    if not ground.device(device, str(facts.get("target", ""))):
        raise NotProvenOurs(f"{device} is not named by the stored campaign: not touched")
    if not ground.identity.made_uuid(uuid):
        raise NotProvenOurs(
            f"{device}: the UUID {uuid} is not of this results directory: not touched"
        )


def of_server_thing(facts: Facts, ground: OwnershipScope) -> None:
    """On servers: a name of ours, which holds random digits; marker or UUID are looked at next."""
    del ground
    names = [str(facts[name]) for name in ("name", "prefix", "label") if name in facts]
    if not names or not all(name.startswith(PREFIX) for name in names):
        raise NotProvenOurs(
            f"{' '.join(names) or 'this'} is no name that the suite gives: not removed"
        )


# Kinds of journal entries: each is registered by who makes such things, and loaded by its name.
#
# A journal names a kind and never code: only what is registered here, or by the entry points of an
# installed package, is ever loaded, and only for a name that is in the registry.


class Stage(IntEnum):
    """What must be gone before the next can go; within a stage the youngest goes first."""

    MOUNT = 0
    NETWORK_MOUNT = 1
    LOOP = 2
    DEVICE = 3
    IMAGE = 4
    FOLDER = 5  # a mount point
    TREE = 6
    CONTAINER = 7  # from here on servers
    SERVER_TREE = 8
    NAMESPACE = 9
    POOL = 10


@dataclass(frozen=True)
class Kind:
    """How things of one kind show whose they are, and how they are taken down.

    `proof` raises NotProvenOurs unless the thing that the facts name shows by itself that this
    store made it; nothing is undone before.  `undo` gets the facts and whether they are of this
    boot; it looks first whether the thing is the very one that was recorded, and returns what it
    did ("" if nothing was left), or raises NotProvenOurs.
    """

    stage: Stage
    proof: Callable[[Facts, OwnershipScope], None]
    undo: Callable[[Facts, bool], str]
    ends_with_boot: bool = False


def kind_on_servers(stage: Stage, remove: Callable[[Facts], bool], done: str) -> Kind:
    """Of what is on servers, where it outlives a boot of this machine.

    `remove` looks itself whether it is what was made; False if there was nothing.  `done`: what
    is said then, with {names} of facts.
    """

    def undo(facts: Facts, same_boot: bool) -> str:
        del same_boot
        return done.format_map(facts) if remove(facts) else ""

    return Kind(stage, of_server_thing, undo)


# values are instances of Kind
KINDS: Registry[Any] = Registry(
    "fsmatrix.journal",
    {
        "mount": "fsmatrix.backends.journal.proof:MOUNT",
        "loop": "fsmatrix.backends.journal.proof:LOOP",
        "io-limit": "fsmatrix.backends.local.devices.emulated:IO_LIMIT",
        "memory-limit": "fsmatrix.backends.journal.journal:MEMORY_LIMIT",
        "device": "fsmatrix.backends.journal.proof:DEVICE",
        "image": "fsmatrix.backends.journal.proof:IMAGE",
        "folder": "fsmatrix.backends.journal.proof:FOLDER",
        "tree": "fsmatrix.backends.journal.proof:TREE",
        "cephfs-mount": "fsmatrix.backends.ceph.rollback:CEPHFS_MOUNT",
        "cephfs-tree": "fsmatrix.backends.ceph.rollback:CEPHFS_TREE",
        "rados-space": "fsmatrix.backends.ceph.rollback:RADOS_SPACE",
        "ceph-level": "fsmatrix.backends.ceph.rollback:CEPH_LEVEL",
        "daos-container": "fsmatrix.backends.daos.rollback:DAOS_CONTAINER",
        "daos-tree": "fsmatrix.backends.daos.rollback:DAOS_TREE",
        "daos-pool": "fsmatrix.backends.daos.rollback:DAOS_POOL",
        "dfuse-mount": "fsmatrix.backends.daos.rollback:DFUSE_MOUNT",
    },
    "kind of journal entry",
)


def load_kinds(names: Iterable[str]) -> Mapping[str, Kind | NotProvenOurs]:
    """Those of `names` that are registered; for one that cannot be loaded, why not."""
    registered = set(KINDS.names())  # once: a forged journal may name many
    return {name: _load(name) for name in set(names) & registered}


def _load(name: str) -> Kind | NotProvenOurs:
    try:
        kind: object = KINDS.load(name)
    except BrokenEntry as error:
        return NotProvenOurs(f"the kind {name!r} cannot be loaded: {error}")
    if not isinstance(kind, Kind):
        return NotProvenOurs(f"the kind {name!r} is registered as {kind!r}, which is no Kind")
    return kind


def undo_mount(facts: Facts, same_boot: bool) -> str:
    """Unmount `path` if `source` is mounted exactly there."""
    path, source = str(facts["path"]), str(facts["source"])
    mount = mounts.mounted_at(path)
    if mount is None or not same_boot:
        return ""
    if mount.source != source:
        raise NotProvenOurs(f"{path}: {mount.source} is mounted there, not {source}")
    try:
        mounts.unmount(path)
    except OSError as error:
        raise not_unmounted(path, error) from error
    return f"unmounted {path}"


def not_unmounted(path: str, error: OSError) -> NotProvenOurs:
    """Why a mount stays, and which processes use it."""
    if error.errno != errno.EBUSY:
        return NotProvenOurs(f"{path} cannot be unmounted: {error.strerror}")
    return NotProvenOurs(f"{path} is still in use by {mounts.described(mounts.of_place(path))}")


def undo_loop(facts: Facts, same_boot: bool) -> str:
    """Detach the loop devices whose file is the recorded image (`inode`, `filesystem`)."""
    if not same_boot:
        return ""
    image, done = str(facts["image"]), []
    for behind in devices.loops_attached_to(whole(facts, "inode"), whole(facts, "filesystem")):
        if behind.device != (facts.get("device") or behind.device):
            continue
        if not devices.detach_loop(behind):
            who = mounts.described(mounts.of_device(behind.device))
            raise NotProvenOurs(f"{behind.device} ({image}) is still in use by {who}")
        done.append(behind.device)
    return f"detached {', '.join(done)} from {image}" if done else ""


def undo_image(facts: Facts, same_boot: bool) -> str:
    """Remove the image file `path` if it is the recorded inode inside `folder`."""
    path, folder = Path(text(facts, "path")), Path(text(facts, "folder"))
    if path.parent != folder:
        raise NotProvenOurs(f"{path} is not inside {folder}")
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotProvenOurs(f"{path}: {folder} is not there any more; was it moved?") from error
    try:
        status = os.stat(path.name, dir_fd=descriptor, follow_symlinks=False)
        if "inode" not in facts:
            raise NotProvenOurs(f"{path} was being made, and it is not sure that this one is it")
        same = stat.S_ISREG(status.st_mode) and status.st_ino == whole(facts, "inode")
        if same_boot:  # device numbers may change with a boot
            same = same and status.st_dev == whole(facts, "filesystem")
        if not same:
            raise NotProvenOurs(f"{path} is another file than the one that was made")
        if same_boot and devices.loops_attached_to(status.st_ino, status.st_dev):
            raise NotProvenOurs(f"{path} is still attached to a loop device")
        os.unlink(path.name, dir_fd=descriptor)
    except FileNotFoundError:
        return ""
    finally:
        os.close(descriptor)
    return f"removed image {path}"


def undo_tree(facts: Facts, same_boot: bool) -> str:
    """Remove the directory `path` if its marker holds `tag`; an empty one without marker too.

    The empty one is what a crash between making and marking leaves; its name is unique.
    """
    del same_boot
    path, tag = Path(text(facts, "path")), text(facts, "tag")
    try:
        if tree.is_gone(path):
            return ""
        if tree.read_marker(path) is None:
            return undo_folder(facts, same_boot=True)
        tree.remove_tree(path, tag)
    except (BackendError, OSError) as error:
        raise NotProvenOurs(str(error)) from error
    return f"removed directory {path}"


def undo_folder(facts: Facts, same_boot: bool) -> str:
    """Remove the directory `path` (a mount point) if it is empty."""
    del same_boot
    path = Path(text(facts, "path"))
    if mounts.mounted_at(path):
        raise NotProvenOurs(f"{path} is a mount point in use")
    try:
        path.rmdir()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise NotProvenOurs(f"{path} cannot be removed: {error.strerror}") from error
    return f"removed directory {path}"


def undo_device(facts: Facts, same_boot: bool) -> str:
    """Erase the signature of the file system `uuid`, which the suite made on `device`."""
    del same_boot
    device, uuid = str(facts["device"]), str(facts["uuid"])
    if not Path(device).exists():
        raise NotProvenOurs(f"{device} is not there")
    user = devices.in_use(device)
    if user:
        raise NotProvenOurs(f"{device}: {user}")
    return f"erased our file system on {device}" if devices.wipe(device, uuid) else ""


MOUNT = Kind(Stage.MOUNT, of_mount, undo_mount, ends_with_boot=True)
LOOP = Kind(Stage.LOOP, of_loop, undo_loop, ends_with_boot=True)
DEVICE = Kind(Stage.DEVICE, of_device, undo_device)
IMAGE = Kind(Stage.IMAGE, of_image, undo_image)
FOLDER = Kind(Stage.FOLDER, of_folder, undo_folder)
TREE = Kind(Stage.TREE, of_tree, undo_tree)
