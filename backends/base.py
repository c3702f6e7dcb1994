"""The backend seam: a kind of storage and the way to it.

Where each method runs:
  conductor, once per attachment ..... provision, release, describe
  node leader, once per kernel ....... mount, unmount, guard, cache, counters, settle, health, seen
  every rank ......................... the driver's connect (in the player)

The node leaders' half is `node_side.py`.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.errors import BackendError as BackendError
from fsmatrix.backends.journal.journal import PREFIX, Journal
from fsmatrix.backends.node_side import CacheMethod as CacheMethod
from fsmatrix.backends.node_side import Evidence as Evidence
from fsmatrix.backends.node_side import NodeSide
from fsmatrix.backends.node_side import Settled as Settled
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.evidence.values import Json, JsonObject, Level, Scalar
from fsmatrix.results.registry import Registry
from fsmatrix.results.registry import UnknownName as UnknownName

# Which storage hosts form a level: drawn by name, once for each block.


def choose_hosts(names: Iterable[str], number: int, block_seed: str) -> list[str]:
    """So many of these at random, sorted; the same `block_seed` gives the same ones.

    Those of a smaller level are among those of a larger one, so that levels of one block differ
    by the added hosts only.
    """

    def ticket(name: str) -> bytes:
        return hashlib.blake2b(f"{block_seed}/{name}".encode(), digest_size=16).digest()

    return sorted(sorted(names, key=ticket)[:number])


# What planning guesses of a storage system's speed, until its first runs have been measured.
#
# The guesses are of one machine with 2 CPUs (docs/campaign.md names the command); a plan that is
# right within a factor of two is all that they are for.


@dataclass(frozen=True)
class SpeedEstimate:
    """Seconds, and rates of all clients together."""

    attach: float = 1.5  # provide, mount, unmount and release it once
    run: float = 0.25  # of a run beside its work: directories, caches, settling, removal
    bandwidth: float = 300e6  # bytes/s
    files: float = 2_000.0  # files/s


class BackendOptions(BaseModel):
    """Base of all typed backend options: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Availability:
    """Answer of `check`: can it be used on this machine, which version, or why not."""

    ok: bool
    version: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Space:
    """What a campaign may fill; None where it is not known."""

    bytes: int | None
    inodes: int | None
    source: str  # what says so: statfs, quota, an estimate


def _quiet(message: str) -> None:
    del message


@dataclass(frozen=True)
class ProvisionContext:
    """What a backend gets from the conductor: where it may keep things, and the journal."""

    target: str
    state: Path  # directory of this target inside the campaign's state directory
    journal: Journal
    tag: str  # drawn for this attachment: names and marks what the suite makes for it
    options: Mapping[str, str] = field(default_factory=dict)  # device_state
    block_seed: str = ""  # what a random choice of this block is made of: seed and block
    progress: Callable[[str], None] = _quiet  # told what takes long

    def new_name(self) -> str:
        """For what is made on servers: of this attachment, and random, so that it proves itself."""
        return f"{PREFIX}{self.tag}-{self.target}-{secrets.token_hex(4)}"


class Backend(NodeSide):
    """One kind of storage.  Subclasses: one file each, one line in registry.BUILTIN."""

    name: ClassVar[str]
    Options: ClassVar[type[BackendOptions]] = BackendOptions
    access_type: ClassVar[type[Access]]  # of every access that it gives
    cache_states: ClassVar[frozenset[str]] = frozenset({"cold", "warm", "bypass"})
    device_states: ClassVar[frozenset[str]] = frozenset({"as_found"})
    driver: ClassVar[str] = "posix"
    testbed: ClassVar[str] = ""  # the system of the test bed that it works on; empty: on none
    testbed_options: ClassVar[Mapping[str, str]] = {}  # option -> what a test bed tells for it
    reference: ClassVar[bool] = False  # memory: shown only on request, never ranked
    network: ClassVar[bool] = True  # processes that work on it speak to servers, or mount for them
    pace: ClassVar[SpeedEstimate] = SpeedEstimate()

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    @classmethod
    @abstractmethod
    def check(cls) -> Availability:
        """Whether it can be used here."""

    @classmethod
    def uninstalled(cls) -> str:
        """Why it cannot be used even where a system is up (empty: it can)."""
        return "" if (usable := cls.check()).ok else usable.reason

    def refusal(self) -> str:
        """Why these options cannot work on this machine (empty: they can)."""
        return ""

    def unusable(self) -> str:
        """Why it is not available here, now, with these rights and options (empty: it can)."""
        return self.refusal() if (usable := self.check()).ok else usable.reason

    def memory(self) -> str:
        """Type of the file system in memory that holds its files (empty: none, or not known)."""
        return ""

    def named_places(self) -> tuple[Path, ...]:
        """Directories, images and devices that its options name.  BackendError as `refusal`."""
        return ()

    def state_bytes(self) -> int:
        """Bytes that it keeps in the campaign's state directory until the campaign ends."""
        return 0

    def state_refusal(self, folder: Path, size: int) -> str:
        """Why `size` bytes of what it keeps cannot be in `folder` (empty: they can)."""
        del folder, size
        return ""

    def engine_refusal(self, engine: str) -> str:
        """Why that engine cannot work with these options (empty: nothing known).  Pure."""
        del engine
        return ""

    def block(self) -> int:
        """Bytes that every offset and size must be a multiple of here (1: any)."""
        return 1

    @property
    def level_factors(self) -> frozenset[str]:
        """Cluster factors whose levels it can make, with these options."""
        return frozenset()

    def level_refusal(self, level: Level) -> str:
        """Why this level cannot be made here (empty: it can)."""
        del level
        return ""

    def testbed_refusal(self, level: Level, attributes: Mapping[str, Scalar]) -> str:
        """Why it cannot make a level on a bed with these attributes (empty: it can).  Pure."""
        del level, attributes
        return ""

    def programs_speak(self, level: Level) -> bool:
        """Whether a program that works on it speaks to its servers itself.  Pure."""
        del level
        return self.network and not issubclass(self.access_type, PathAccess)

    def program_refusal(self, level: Level, program: str) -> str:
        """Why a program (its path; empty: the player) cannot work on it (empty: it can)."""
        del level, program
        return ""

    def root_count(self, level: Level) -> int:
        """How many `run_roots` there are at a level that can be made.  Pure."""
        del level
        return 1

    def realised(self, level: Level) -> dict[str, str]:
        """Factor -> emulated, for what it makes of this machine alone.  Pure."""
        del level
        return {}

    def required_consent(self) -> str:
        """What the user must still agree to before anything is made (empty: nothing)."""
        return ""

    def overwrites(self, space: int) -> str:
        """What is lost when runs need `space` bytes, in words (empty: nothing that is not ours).

        Asked of what can be used here.
        """
        del space
        return ""

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """What `provision` and `release` would do, as an administrator would type it."""
        del level, block_seed
        return []

    def attributes(self) -> dict[str, Scalar]:
        """Facts about the cluster that its options tell and that no level changes.

        They become coordinates (redundancy, failure_domain).  Pure: nothing is asked.
        """
        return {}

    def refuse_level(self, level: Level) -> None:
        """For a `provision` that makes no levels: BackendError if one is asked for."""
        if level:
            raise BackendError(f"{self.name} realises no cluster factors: {', '.join(level)}")

    @abstractmethod
    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """Make or choose what this level needs.  Journalled.  BackendError if impossible."""

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Undo provision; may keep for the next attachment what `finish` removes."""
        del access, context

    def finish(self, context: ProvisionContext) -> None:
        """The campaign ends: remove what `release` kept.  Journalled."""
        del context

    @abstractmethod
    def describe(self, access: Access) -> dict[str, Json]:
        """Provenance while attached: mount options, device, model, capacity, kernel..."""

    def deployment(self, described: JsonObject) -> Deployment:
        """What decides whether it is compared fairly; what is not known stays None.

        Pure: from the options and what `describe` told; nothing is asked.  Before anything is
        attached `described` is the level, often empty, and the options tell the rest.
        """
        del described
        return Deployment()

    def space(self, access: Access | None = None) -> Space:
        """What a campaign may fill: of `access` if it is attached, else an estimate."""
        del access
        return Space(None, None, "unknown")


# The backends by name; other packages add theirs by the entry-point group.


BUILTIN: dict[str, str] = {
    "btrfs": "fsmatrix.backends.local.btrfs:Btrfs",
    "cephfs-fuse": "fsmatrix.backends.ceph.cephfs_fuse:CephfsFuse",
    "cephfs-kernel": "fsmatrix.backends.ceph.cephfs_kernel:CephfsKernel",
    "daos-dfs": "fsmatrix.backends.daos.dfs:DaosDfs",
    "daos-dfuse": "fsmatrix.backends.daos.dfuse:DaosDfuse",
    "daos-objects": "fsmatrix.backends.daos.objects:DaosObjects",
    "device": "fsmatrix.backends.local.devices.bare.backend:Device",
    "devices": "fsmatrix.backends.local.devices.backend:Devices",
    "directory": "fsmatrix.backends.local.directory:Directory",
    "ext2": "fsmatrix.backends.local.ext2:Ext2",
    "ext4": "fsmatrix.backends.local.ext4:Ext4",
    "f2fs": "fsmatrix.backends.local.f2fs:F2fs",
    "libcephfs": "fsmatrix.backends.ceph.libcephfs:Libcephfs",
    "nilfs2": "fsmatrix.backends.local.nilfs2:Nilfs2",
    "rados": "fsmatrix.backends.ceph.rados:Rados",
    "tmpfs": "fsmatrix.backends.local.tmpfs:Tmpfs",
    "xfs": "fsmatrix.backends.local.xfs:Xfs",
}
BACKENDS: Registry[Backend] = Registry("fsmatrix.backends", BUILTIN, "backend")


def names() -> list[str]:
    """Names of all backends, sorted."""
    return BACKENDS.names()


def load(name: str) -> type[Backend]:
    """The class of a backend; UnknownName (with a proposal) or BrokenEntry."""
    return BACKENDS.load(name)
