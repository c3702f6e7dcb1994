"""What the backends on CephFS share: they work in a directory of the suite's own (see own)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import ClassVar, cast

from fsmatrix.backends.access import Access
from fsmatrix.backends.base import ProvisionContext, Space
from fsmatrix.backends.ceph.bindings import capi, cephfs
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.levelled import Levelled, pool_space
from fsmatrix.backends.ceph.options import CephfsOptions
from fsmatrix.backends.ceph.places import own
from fsmatrix.backends.ceph.places.trees import Tree
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import Json, inside


class OnCephfs(Levelled):
    """Base of libcephfs, cephfs-fuse and cephfs-kernel."""

    pool_option = "data_pool"
    testbed: ClassVar[str] = "ceph"
    testbed_options: ClassVar[Mapping[str, str]] = {"conf": "conf", "filesystem": "filesystem"}

    @property
    def _chosen(self) -> CephfsOptions:
        return cast(CephfsOptions, self.options)

    def unfit(self, cluster: Cluster, pool: str) -> str:
        """It is no data pool of the file system."""
        return own.unfit(cluster, self._chosen.filesystem, pool)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        own.finish(context)

    def space(self, access: Access | None = None) -> Space:
        """What the data pool that new files get may still take; of prepared ones the least."""
        options = self._chosen
        if access is None and options.levels is not None and options.levels.pools:
            return pool_space(options.login, options.levels.named)
        level = inside(access.details, "level") if access else {}
        pool = str(level.get("pool", options.data_pool))
        try:
            if not pool:
                with options.login.connect() as cluster:
                    pool = facts.filesystem_of(cluster, options.filesystem).data_pools[0]
        except BackendError as error:
            return Space(None, None, f"unknown: {error}")
        return pool_space(options.login, [pool])


def library_refusal() -> str:
    """Why libcephfs or librados cannot be used (empty: they can)."""
    try:
        cephfs.load()
    except BackendError as error:
        return str(error)
    return capi.available(capi.RADOS)


def cluster_details(login: Login) -> dict[str, Json]:
    """What node-side methods need to know of the cluster."""
    with login.connect() as cluster:
        return {"fsid": cluster.fsid, "osd_addresses": facts.addresses(cluster)}


def ceph_facts(login: Login, filesystem: str) -> dict[str, Json]:
    """Facts of the cluster with the pools of a file system, or why there are none."""
    try:
        with login.connect() as cluster:
            found = facts.filesystem_of(cluster, filesystem)
            tested = [found.metadata_pool, *found.data_pools]
            return facts.cluster_facts(cluster, tested, found.name)
    except BackendError as error:
        return {"error": str(error)}


def require_seen(tree: Tree, host: str) -> None:
    """BackendError if this node does not see the very tree that `host` made."""
    if tree.found_tag() != tree.tag:
        raise BackendError(
            f"{tree.path}, made on host {host}, is not seen in CephFS {tree.filesystem} on "
            f"{socket.gethostname()}: is it the same cluster?"
        )
