"""What a backend hands to a workload: frozen, JSON-able descriptions, no open handles.

The accesses below are those that engines speak to; a backend may have one of its own, which it
names as its `access_type`: workloads say by the type which they speak.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from fsmatrix.results.evidence.stored import Json, JsonObject


@dataclass(frozen=True)
class Access:
    """Base of all accesses.  `backend` and `details` are what mount() needs on a node."""

    type: ClassVar[str] = ""
    word: ClassVar[str] = ""  # for it in messages
    backend: str
    target: str
    details: JsonObject = field(default_factory=dict)

    @property
    def folders(self) -> tuple[str, ...]:
        """Directories of this machine that are worked in, absolute."""
        return ()

    @property
    def preloaded(self) -> str:
        """Path of a library that is put into programs that work on it; empty: none is.

        What it did it says when a process ends by exit(3): a program should fork none that do not.
        """
        return str(self.details.get("preload", ""))

    def to_json(self) -> dict[str, Json]:
        """A plain dict that `from_json` turns back into an equal access."""
        return {"type": self.type, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: JsonObject) -> Self:
        """Inverse of `to_json`; TypeError if it is of another type, or has other fields.

        Which class it is says the backend that made it: its `access_type`.
        """
        values: Any = dict(data)
        if (given := values.pop("type", "")) != cls.type:
            raise TypeError(f"a {cls.word} access is needed here, not one of type {given!r}")
        return cls(**values)


@dataclass(frozen=True)
class PathAccess(Access):
    """A directory that the suite made for itself on the file system under test."""

    type: ClassVar[str] = "path"
    word: ClassVar[str] = "path"
    path: str = ""  # absolute; the player's root, everything is written below it

    @property
    def folders(self) -> tuple[str, ...]:
        """The one."""
        return (self.path,)


@dataclass(frozen=True)
class PathsAccess(Access):
    """A directory of the suite's on each of several devices: each rank works in one of them."""

    type: ClassVar[str] = "paths"
    word: ClassVar[str] = "paths"
    paths: tuple[str, ...] = ()  # absolute; rank i works below number i modulo their number

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(self.paths))  # JSON has lists only

    @property
    def folders(self) -> tuple[str, ...]:
        """All of them."""
        return self.paths


@dataclass(frozen=True)
class DeviceAccess(Access):
    """A block device without a file system: each process works in a range of its own."""

    type: ClassVar[str] = "device"
    word: ClassVar[str] = "device"
    NODE: ClassVar[str] = "data"  # name of the device's node in a run's folder
    device: str = ""  # as the campaign names it; for messages
    path: str = ""  # folder of the runs' folders; everything is written by the nodes in them
    direct: bool = True  # runs use O_DIRECT, whatever the cache state

    @property
    def folders(self) -> tuple[str, ...]:
        """The device itself: a site may forbid it."""
        return (self.device,)


@dataclass(frozen=True)
class DfsAccess(Access):
    """A POSIX container of DAOS, spoken to by libdfs."""

    type: ClassVar[str] = "dfs"
    word: ClassVar[str] = "DFS"
    pool: str = ""  # label or UUID
    container: str = ""
    system: str = ""  # DAOS server group; empty: the agent's own
    prefix: str = "/"  # directory in the container that the suite made for itself
    library: str = ""  # folder of libdaos and libdfs; empty: the loader finds them


@dataclass(frozen=True)
class DaosAccess(Access):
    """Containers of DAOS without a file system, for programs that bring a layout of their own."""

    type: ClassVar[str] = "daos"
    word: ClassVar[str] = "DAOS"
    pool: str = ""  # label or UUID
    container: str = ""  # label; a run's containers are called `<container>.<run>...`
    system: str = ""  # DAOS server group; empty: the agent's own
    oclass: str = ""  # object class that programs give to their objects; empty: their own choice

    @staticmethod
    def of_run(label: str, run: str) -> str:
        """Label of a run's own container beside the suite's own container `label`."""
        return f"{label}.{run}"

    def run_root(self, run: str) -> str:
        """Where a run's programs write."""
        return f"daos://{self.pool}/{self.of_run(self.container, run)}"


@dataclass(frozen=True)
class RadosAccess(Access):
    """A RADOS pool and a prefix of object names that the suite owns."""

    type: ClassVar[str] = "rados"
    word: ClassVar[str] = "RADOS"
    pool: str = ""
    conf: str = ""  # ceph.conf; empty: the library's default
    user: str = "admin"  # without "client."
    prefix: str = ""


@dataclass(frozen=True)
class CephfsAccess(Access):
    """A directory of CephFS, spoken to by libcephfs."""

    type: ClassVar[str] = "cephfs"
    word: ClassVar[str] = "CephFS"
    conf: str = ""
    user: str = "admin"  # without "client."
    filesystem: str = ""  # empty: the only one
    path: str = "/"  # directory that the suite made for itself


A = TypeVar("A", bound=Access)


def expect(access: Access, kind: type[A]) -> A:
    """The access itself; TypeError if it is of another kind."""
    if not isinstance(access, kind):
        raise TypeError(f"a {kind.word} access is needed here, not {type(access).__name__}")
    return access
