"""Kinds of journal entries: each is registered by who makes such things, and loaded by its name.

A journal names a kind and never code: only what is registered here, or by the entry points of an
installed package, is ever loaded, and only for a name that is in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from fsmatrix.backends.journal.proof import Facts, Ground, LeftAlone
from fsmatrix.results.registry import BrokenEntry, Registry


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

    `proof` raises LeftAlone unless the thing that the facts name shows by itself that this store
    made it; nothing is undone before.  `undo` gets the facts and whether they are of this boot;
    it looks first whether the thing is the very one that was recorded, and returns what it did
    ("" if nothing was left), or raises LeftAlone.
    """

    stage: Stage
    proof: Callable[[Facts, Ground], None]
    undo: Callable[[Facts, bool], str]
    ends_with_boot: bool = False


# values are instances of Kind
KINDS: Registry[Any] = Registry(
    "fsmatrix.journal",
    {
        "mount": "fsmatrix.backends.journal.rollback:MOUNT",
        "loop": "fsmatrix.backends.journal.rollback:LOOP",
        "io-limit": "fsmatrix.backends.local.devices.limits:IO_LIMIT",
        "memory-limit": "fsmatrix.backends.journal.memory:MEMORY_LIMIT",
        "device": "fsmatrix.backends.journal.rollback:DEVICE",
        "image": "fsmatrix.backends.journal.rollback:IMAGE",
        "folder": "fsmatrix.backends.journal.rollback:FOLDER",
        "tree": "fsmatrix.backends.journal.rollback:TREE",
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


def load_kinds(names: Iterable[str]) -> Mapping[str, Kind | LeftAlone]:
    """Those of `names` that are registered; for one that cannot be loaded, why not."""
    registered = set(KINDS.names())  # once: a forged journal may name many
    return {name: _load(name) for name in set(names) & registered}


def _load(name: str) -> Kind | LeftAlone:
    try:
        kind: object = KINDS.load(name)
    except BrokenEntry as error:
        return LeftAlone(f"the kind {name!r} cannot be loaded: {error}")
    if not isinstance(kind, Kind):
        return LeftAlone(f"the kind {name!r} is registered as {kind!r}, which is no Kind")
    return kind
