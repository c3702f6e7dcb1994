"""What a backend hands to a workload: frozen, JSON-able descriptions, no open handles."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar


@dataclass(frozen=True)
class Access:
    """Base of all accesses.  `backend` and `details` are what mount() needs on a node."""

    type: ClassVar[str] = ""
    word: ClassVar[str] = ""  # for it in messages
    backend: str
    target: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain dict that `access_from_json` turns back into an equal access."""
        return {"type": self.type, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class PathAccess(Access):
    """A directory that the suite made for itself on the file system under test."""

    type: ClassVar[str] = "path"
    word: ClassVar[str] = "path"
    path: str = ""  # absolute; the player's root, everything is written below it


@dataclass(frozen=True)
class DeviceAccess(Access):
    """A block device without a file system."""

    type: ClassVar[str] = "device"
    word: ClassVar[str] = "device"
    device: str = ""


@dataclass(frozen=True)
class DfsAccess(Access):
    """A POSIX container of DAOS, spoken to by libdfs."""

    type: ClassVar[str] = "dfs"
    word: ClassVar[str] = "DFS"
    pool: str = ""  # label or UUID
    container: str = ""
    system: str = ""  # DAOS server group; empty: the agent's own
    prefix: str = "/"  # directory in the container that the suite made for itself


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


ACCESS_TYPES: dict[str, type[Access]] = {
    kind.type: kind for kind in (PathAccess, DeviceAccess, DfsAccess, RadosAccess, CephfsAccess)
}


A = TypeVar("A", bound=Access)


def expect(access: Access, kind: type[A]) -> A:
    """The access itself; TypeError if it is of another kind."""
    if not isinstance(access, kind):
        raise TypeError(f"a {kind.word} access is needed here, not {type(access).__name__}")
    return access


def access_from_json(data: Mapping[str, Any]) -> Access:
    """Inverse of `Access.to_json`; KeyError for an unknown type."""
    values = dict(data)
    return ACCESS_TYPES[values.pop("type")](**values)
