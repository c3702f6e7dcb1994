"""The backend seam: a kind of storage and the way to it.

Where each method runs:
  anywhere, nothing is asked ......... foreseen, deployment, run_place
  where it is planned ................ check, refusal, level_refusal, engine_refusal, space...
  conductor, once per attachment ..... provision, release, describe
  conductor, during a step ........... watch
  node leader, once per kernel ....... mount, unmount, make_run, cache, counters, settle, health
  every rank ......................... the driver's connect (in the player)

A backend says what is abstract, and overrides of the rest what is different with it; what is final
is made of these.  The node leaders' half is class methods of an `Access` alone: the node leader
that calls them, once per kernel and mount namespace, is another process on another machine than the
conductor that made the access.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, final

from pydantic import BaseModel, ConfigDict

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.errors import BackendError as BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import PREFIX, Journal
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.evidence import Interception
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, Scalar
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.registry import Registry
from fsmatrix.results.registry import UnknownName as UnknownName

CacheMethod = Literal["auto", "drop_caches", "fadvise"]


@dataclass(frozen=True)
class Evidence:
    """What was done to reach a cache state, and what the system showed afterwards."""

    state: str  # the state reached: cold, warm, bypass, memory; unknown = could not be shown
    method: str  # drop_caches, fadvise, read, O_DIRECT, none
    facts: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """Outcome of a bounded wait until the system is quiet."""

    reached: bool
    seconds: float
    state: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Preload:
    """A library that is put into all processes that work on a target (the player: in C only)."""

    environment: Mapping[str, str]  # what puts it there; the player works in processes of its own
    told: Callable[[Iterable[str]], Interception]  # what it did, from all that a step's printed


@dataclass(frozen=True)
class RunPlace:
    """Where a run works, and what is put into the processes that work there."""

    roots: tuple[str, ...]  # as the player's driver is told them: rank i in number i modulo theirs
    preload: Preload | None = None


class Watch(Protocol):
    """Looks at a storage system again and again, over one connection, from the conductor."""

    def look(self) -> list[str]:
        """What is wrong now, or was since the look before (empty: nothing known)."""

    def silent(self) -> list[str]:
        """What holds data and does not answer, also if the system does not know of it yet."""

    def close(self) -> None:
        """End the connection; harmless if there is none."""


class NodeSide(ABC):
    """What is asked with an access alone, mostly by node leaders; `Backend` is the rest of it."""

    # -- attached ------------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Attach the storage on this kernel.  Journalled; harmless if it is attached."""
        del access, journal

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Detach it; harmless if it is not attached."""
        del access, journal

    # -- around steps --------------------------------------------------------------------
    @classmethod
    @abstractmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Bring this kernel's caches of `files` (relative; folders mean all in them) into `state`.

        `method` of cold: `fadvise` touches these files only, `drop_caches` (root) the whole
        kernel, `auto` is fadvise where it is shown to work and else drop_caches if root.
        """

    @classmethod
    @abstractmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Monotonic counters; a counter that does not exist here is absent.

        device_{read,written}_bytes, device_busy_seconds, device_{reads,writes} (requests) and
        device_{read,write}_seconds (of all requests together); of the disk below a loop device
        backing_{read,written}_bytes; of a network file system network_{received,sent}_bytes.
        """

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """Processes of this kernel that work for the storage: a FUSE client, servers run here.

        What they use of the CPUs is not foreign load.
        """
        del access
        return []

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait, at most `timeout` seconds, until the system is quiet."""
        del access, timeout
        return Settled(True, 0.0)

    @classmethod
    def watch(cls, access: Access) -> Watch | None:
        """What looks at the health while a step runs; None: nothing, `health` around it is all."""
        del access
        return None

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with the system now (empty: nothing known)."""
        del access
        return []

    @final
    @classmethod
    def responds(cls, access: Access) -> list[str]:
        """As `health`, asked when no operation completes: first what does not answer."""
        watch = cls.watch(access)
        if watch is None:
            return cls.health(access)
        with closing(watch):
            return [*watch.silent(), *cls.health(access)]

    # -- the place of a run --------------------------------------------------------------
    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """Where the run of that name works.  Pure."""
        return RunPlace((str(Path(access.path) / name) if isinstance(access, PathAccess) else "",))

    @final
    @classmethod
    def run_root(cls, access: Access, name: str) -> str:
        """Where its rank 0 works."""
        return cls.run_place(access, name).roots[0]

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Make the run's own place; harmless if it is there.  BackendError if it may not be used.

        `programs`: external programs will work there, which may know less than the player.
        """
        del programs
        if isinstance(access, PathAccess):
            (_runs(access) / name).mkdir(exist_ok=True)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove it with all in it, also while another kernel does; links are not followed."""
        if isinstance(access, PathAccess):
            remove_tree(_runs(access) / name)


def _runs(access: PathAccess) -> Path:
    """The folder of the runs' folders, as this process reaches it."""
    return Path(tree.reached(access.path, access.details))


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


NO_LEVEL: Level = MappingProxyType({})


class BackendOptions(BaseModel):
    """Base of all typed backend options: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Availability:
    """Answer of `check`: can it be used on this machine, which version, or why not."""

    ok: bool
    version: str = ""
    reason: str = ""
    installed: bool = False  # nothing but a system that answers is missing

    @property
    def uninstalled(self) -> str:
        """Why it could not be used even where a system is up (empty: it could)."""
        return "" if self.ok or self.installed else self.reason


@dataclass(frozen=True)
class Foreseen:
    """What the options of a target, and a level, tell before anything is asked or made."""

    level_factors: frozenset[str] = frozenset()  # cluster factors whose levels it can make
    # of the cluster, at all levels; they become coordinates (redundancy, failure_domain)
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    # factor -> emulated, for what it makes of this machine alone
    realised: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()  # directories, images and devices that they name, as written
    state_bytes: int = 0  # kept in the campaign's state directory until the campaign ends
    state_direct: bool = False  # by direct I/O alone
    root_count: int = 1  # roots of a run's place
    programs_speak: bool = True  # programs that work on it speak to its servers themselves


@dataclass(frozen=True)
class Space:
    """What a campaign may fill; None where it is not known."""

    bytes: int | None
    inodes: int | None
    source: str  # what says so: statfs, quota, an estimate
    block: int = 1  # bytes that every offset and size must be a multiple of
    overwritten: str = ""  # what is lost by that, in words (empty: only what is ours)


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
    guarded: ClassVar[bool] = False  # `make_run` is asked again before each step of a run
    network: ClassVar[bool] = True  # processes that work on it speak to servers, or mount for them
    pace: ClassVar[SpeedEstimate] = SpeedEstimate()

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    # -- whether it can be used ----------------------------------------------------------
    @classmethod
    @abstractmethod
    def check(cls) -> Availability:
        """Whether it can be used here."""

    def refusal(self) -> str:
        """Why these options cannot work on this machine (empty: they can)."""
        return ""

    def unusable(self) -> str:
        """Why it is not available here, now, with these rights and options (empty: it can)."""
        return self.refusal() if (usable := self.check()).ok else usable.reason

    def engine_refusal(self, level: Level, engine: str, program: str = "") -> str:
        """Why an engine, or its very program, cannot work on it (empty: nothing known).

        `engine`: "player" or an external one's name; `program`: path of that, where it is known.
        """
        del level, engine, program
        return ""

    def level_refusal(self, level: Level, bed: Mapping[str, Scalar] | None = None) -> str:
        """Why this level cannot be made here (empty: it can).

        `bed`: attributes of the test bed on which it will be made; nothing can be asked yet.
        """
        del level, bed
        return ""

    # -- what it will be and do ----------------------------------------------------------
    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """What the options tell of a level that can be made.  Pure: nothing is asked."""
        del level
        speak = self.network and not issubclass(self.access_type, PathAccess)
        return Foreseen(programs_speak=speak)

    def required_consent(self) -> str:
        """What the user must still agree to before anything is made (empty: nothing)."""
        return ""

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """What `provision` and `release` would do, as an administrator would type it."""
        del level, block_seed
        return []

    # -- made and removed --------------------------------------------------------------
    @abstractmethod
    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """Make or choose what this level needs.  Journalled.  BackendError if impossible."""

    @final
    def refuse_level(self, level: Level) -> None:
        """For a `provision` that makes no levels: BackendError if one is asked for."""
        if level:
            raise BackendError(f"{self.name} realises no cluster factors: {', '.join(level)}")

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Undo provision; may keep for the next attachment what `finish` removes."""
        del access, context

    def finish(self, context: ProvisionContext) -> None:
        """The campaign ends: remove what `release` kept.  Journalled."""
        del context

    # -- what is known of it -------------------------------------------------------------
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
    "cephfs-fuse": "fsmatrix.backends.ceph.cephfs_mounted:CephfsFuse",
    "cephfs-kernel": "fsmatrix.backends.ceph.cephfs_mounted:CephfsKernel",
    "daos-dfs": "fsmatrix.backends.daos.native:DaosDfs",
    "daos-dfuse": "fsmatrix.backends.daos.dfuse:DaosDfuse",
    "daos-objects": "fsmatrix.backends.daos.native:DaosObjects",
    "device": "fsmatrix.backends.local.devices.bare_device:Device",
    "devices": "fsmatrix.backends.local.devices.several:Devices",
    "directory": "fsmatrix.backends.local.directory:Directory",
    "ext2": "fsmatrix.backends.local.ext:Ext2",
    "ext4": "fsmatrix.backends.local.ext:Ext4",
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
