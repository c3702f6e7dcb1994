"""The backends by name; other packages add theirs by the entry-point group."""

from __future__ import annotations

from fsmatrix.backends.base import Backend
from fsmatrix.results.registry import Registry
from fsmatrix.results.registry import UnknownName as UnknownName

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
