"""Places on a real Ceph for the player's drivers rados and cephfs: empty roots on the bed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from fsmatrix.backends.ceph.bindings.librados import Cluster, IoCtx
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests.backends.playing import SEED as SEED
from tests.backends.playing import PlayerPlace

OBJECT = 1 << 16  # bytes
DRIVER_NAMES = ("rados", "cephfs")


def get_xattr(context: IoCtx, name: str, attribute: str) -> bytes:
    """An attribute of an object, by librados; the suite itself reads none."""
    buffer = ctypes.create_string_buffer(1 << 16)
    words = (name.encode(), attribute.encode(), buffer, ctypes.c_size_t(len(buffer)))
    size = context._library.rados_getxattr(context._handle, *words)
    assert size >= 0, (name, attribute, size)
    return buffer.raw[:size]


def lines(**values: object) -> str:
    """The text of a root."""
    return "".join(f"{key.replace('__', '.')}={value}\n" for key, value in values.items())


@dataclass(frozen=True)
class Place(PlayerPlace):
    """A driver and an empty root of its own on the bed."""

    driver: str
    bed: CephTestbed
    name: str

    def root(self, **more: object) -> str:
        base: dict[str, object] = {"conf": self.bed.conf, "user": self.bed.user}
        base |= {"keyring": self.bed.keyring}
        if self.driver == "rados":
            base |= {"pool": self.bed.pools["rados"], "namespace": self.name}
            base |= {"object_size": OBJECT}
        else:
            base |= {"filesystem": self.bed.filesystem, "path": f"/{self.name}"}
        return lines(**(base | more))

    def objects(self, cluster: Cluster) -> IoCtx:
        """What is below: the objects of the namespace, or those of all files' data."""
        pool = self.bed.pools["rados" if self.driver == "rados" else "data"]
        return cluster.ioctx(pool, self.name if self.driver == "rados" else "")
