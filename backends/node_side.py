"""The half of a backend that works on the nodes: mounts, caches, counters, places of runs.

Class methods of an `Access` alone: the node leader that calls them, once per kernel and mount
namespace, is another process on another machine than the conductor that made the access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.evidence import Interception
from fsmatrix.results.evidence.values import JsonObject

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


class Watch(Protocol):
    """Looks at a storage system again and again, over one connection."""

    def look(self) -> list[str]:
        """What is wrong now, or was since the look before (empty: nothing known)."""

    def close(self) -> None:
        """End the connection; harmless if there is none."""


class NodeSide(ABC):
    """What node leaders ask of a backend; `Backend` in base.py is the rest of it."""

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Attach the storage on this kernel.  Journalled; harmless if it is attached."""
        del access, journal

    @classmethod
    def unmount(cls, access: Access, journal: Journal) -> None:
        """Detach it; harmless if it is not attached."""
        del access, journal

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
    def run_root(cls, access: Access, name: str) -> str:
        """Where the run of that name works, as the player's driver is told it.  Pure."""
        return str(Path(access.path) / name) if isinstance(access, PathAccess) else ""

    @classmethod
    def run_roots(cls, access: Access, name: str) -> tuple[str, ...]:
        """As `run_root`, where not all ranks work in one: rank i in number i modulo theirs."""
        return (cls.run_root(access, name),)

    @classmethod
    def environment(cls, access: Access) -> dict[str, str]:
        """What programs that work on it get into their environment.  Pure.

        If it is not empty, the player (in C only) works in processes of its own that have it.
        """
        del access
        return {}

    @classmethod
    def intercepted(cls, access: Access, texts: Iterable[str]) -> Interception | None:
        """What a preloaded library says of a step's programs, in all that they printed.  Pure.

        None: no library is put into them.
        """
        del access, texts
        return None

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Make the run's own place; harmless if another kernel made it.

        `programs`: external programs will work there, which may know less than the player.
        """
        del programs
        if isinstance(access, PathAccess):
            (_runs(access) / name).mkdir(exist_ok=True)

    @classmethod
    def guard(cls, access: Access) -> None:
        """The last look before each step; BackendError if nothing may be written there now."""
        del access

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove it with all in it, also while another kernel does; links are not followed."""
        if isinstance(access, PathAccess):
            remove_tree(_runs(access) / name)

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait, at most `timeout` seconds, until the system is quiet."""
        del access, timeout
        return Settled(True, 0.0)

    @classmethod
    def health_watch(cls, access: Access) -> Watch | None:
        """What looks at the health during a step, from the conductor's machine; None: nothing."""
        del access
        return None

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with the system now (empty: nothing known)."""
        del access
        return []

    @classmethod
    def responds(cls, access: Access) -> list[str]:
        """As `health`, asked when no operation completes: whether what holds data answers."""
        return cls.health(access)


def _runs(access: PathAccess) -> Path:
    """The folder of the runs' folders, as this process reaches it."""
    return Path(tree.reached(access.path, access.details))
