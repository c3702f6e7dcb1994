"""CephFS by libcephfs: a directory of the suite's own, spoken to by the player's driver.

Cache states.  Each step's connections are new ones, and what a client of libcephfs keeps ends with
it: `cold` and `bypass` hold without doing anything in the client, and `warm` does not exist.
What OSDs and MDSs keep is told, and dropped on request.

Depth.  Who keeps operations in flight is decided once, in the conductor, and told to every rank's
driver, which does it that way or does not connect: `describe` says what was really done.  Ceph
16.2 exports no nonblocking call; the way through it has only been run over a stand-in
(tests/standins/cephfs).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from pydantic import Field

from fsmatrix.backends.access import Access, CephfsAccess
from fsmatrix.backends.base import CacheMethod, Evidence, Room, Settled, Space, Usable
from fsmatrix.backends.ceph import caches, capi, cephfs, facts, health, network, own, settle
from fsmatrix.backends.ceph.health import Watch
from fsmatrix.backends.ceph.levelled import Levelled
from fsmatrix.backends.ceph.librados import Cluster
from fsmatrix.backends.ceph.login import NO_WAIT, Login, root_text
from fsmatrix.backends.ceph.options import CephfsOptions, LibcephfsOptions
from fsmatrix.backends.ceph.trees import Tree
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import Journal
from fsmatrix.backends.made import DATA
from fsmatrix.backends.rados import pool_space

NONBLOCKING = "ceph_ll_nonblocking_readv_writev"


class DriverOptions(LibcephfsOptions):
    """Options of a CephFS by libcephfs, in the player's driver."""

    depth_by: Literal["auto", "threads"] = Field(
        "auto",
        description="who keeps operations in flight: auto = the library where it exports a "
        "nonblocking call, else threads; threads = always the driver's own",
    )


class Libcephfs(Levelled):
    """A directory `fsmatrix-<tag>` in an existing CephFS."""

    name = "libcephfs"
    Options = DriverOptions
    access_type = CephfsAccess
    cache_states = frozenset({"cold", "bypass"})
    driver = "cephfs"
    pool_option = "data_pool"
    bed_options: ClassVar[Mapping[str, str]] = {"conf": "conf", "filesystem": "filesystem"}

    @property
    def _chosen(self) -> DriverOptions:
        return cast(DriverOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Usable:
        """The libraries are there; which cluster is meant only the options say."""
        reason = library_refusal()
        return Usable(False, reason=reason) if reason else Usable(True, capi.CEPHFS)

    def refusal(self) -> str:
        """No cluster, no access, no such file system or data pool."""
        return library_refusal() or own.refusal(self._chosen)

    def unfit(self, cluster: Cluster, pool: str) -> str:
        """It is no data pool of the file system."""
        return own.unfit(cluster, self._chosen.filesystem, pool)

    def _attach(self, room: Room) -> CephfsAccess:
        """Make the directory, with its layout."""
        tree = own.make(self._chosen, room)
        return CephfsAccess(
            backend=self.name,
            target=room.target,
            conf=tree.login.conf,
            user=tree.login.user,
            filesystem=tree.filesystem,
            path=f"{tree.path}/{DATA}",
            details={
                **tree.facts,
                "client": self._chosen.client,
                "depth_by": depth_by(self._chosen),
                "drop_server_caches": self._chosen.drop_server_caches,
                "host": socket.gethostname(),
                **cluster_details(tree.login),
            },
        )

    def _detach(self, access: Access, room: Room) -> None:
        """Remove the directory and nothing else."""
        own.release(Tree.of(access.details), room)

    def finish(self, room: Room) -> None:
        """Remove what a failed provision or release of this process left."""
        own.finish(room)

    def describe(self, access: Access) -> dict[str, Any]:
        """Facts of cluster, file system and layout; what cannot be told is recorded as such."""
        tree = Tree.of(_cephfs(access).details)
        return {
            "filesystem": "cephfs",
            "managed": True,
            "kernel": os.uname().release,
            "client_options": dict(access.details["client"]),
            "depth_by": access.details["depth_by"],
            "layout": facts.told(tree.layout),
            **self.level_facts(access),
            "ceph": ceph_facts(tree.login, tree.filesystem),
        }

    def space(self, access: Access | None = None) -> Space:
        """What the data pool may still take."""
        return data_space(self._chosen, access)

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very directory that the conductor made."""
        del journal
        require_seen(Tree.of(_cephfs(access).details), str(access.details["host"]))

    @classmethod
    def run_root(cls, access: Access, name: str) -> str:
        """What the player's driver `cephfs` gets: lines key=value."""
        tree = Tree.of(access.details)
        path = f"{_cephfs(access).path}/{name}"
        values = {**tree.login.facts, "filesystem": tree.filesystem, "path": path}
        values["depth_by"] = str(access.details.get("depth_by", ""))
        return root_text(values, {**NO_WAIT, **access.details["client"]})

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Make the run's folder; harmless if another node did."""
        del programs
        Tree.of(access.details).make_run(name)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove it with all in it."""
        Tree.of(access.details).remove_run(name)

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Nothing is to be done in the client: see the module."""
        del files, method
        if state not in cls.cache_states:
            raise BackendError(
                f"a client of libcephfs keeps nothing beyond its step: no cache state {state!r}"
            )
        drop = state == "cold" and access.details["drop_server_caches"]
        tree = Tree.of(access.details)
        told = caches.server_caches(tree.login, drop, tree.filesystem)
        facts_of_client = {"client_cache": "ends with each step's connections"}
        return Evidence(state, "cache drop" if drop else "none", {**facts_of_client, **told})

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Network bytes, where they are all seen.  The pools' own counters lag by seconds."""
        return network.counters(access.details["osd_addresses"], Login.of(access.details))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait for placement groups and the purge queue."""
        return settle.settle(Login.of(access.details), timeout, access.details["filesystem"])

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with the cluster."""
        return health.health(Login.of(access.details))

    @classmethod
    def health_watch(cls, access: Access) -> Watch:
        """What the conductor asks while a step runs."""
        return Watch(Login.of(access.details))


def _cephfs(access: Access) -> CephfsAccess:
    """The access itself; TypeError for another kind."""
    if not isinstance(access, CephfsAccess):
        raise TypeError(f"a CephFS access is needed here, not {type(access).__name__}")
    return access


def depth_by(options: DriverOptions) -> str:
    """Who keeps operations in flight: "library" or "threads", as in drivers.Driver."""
    exported = hasattr(capi.load(capi.CEPHFS), NONBLOCKING)
    return "library" if exported and options.depth_by == "auto" else "threads"


def library_refusal() -> str:
    """Why libcephfs or librados cannot be used (empty: they can)."""
    try:
        cephfs.load()
    except BackendError as error:
        return str(error)
    return capi.available(capi.RADOS)


def cluster_details(login: Login) -> dict[str, Any]:
    """What node-side methods need to know of the cluster."""
    with login.connect() as cluster:
        return {"fsid": cluster.fsid, "osd_addresses": facts.addresses(cluster)}


def ceph_facts(login: Login, filesystem: str) -> dict[str, Any]:
    """Facts of the cluster with the pools of a file system, or why there are none."""
    try:
        with login.connect() as cluster:
            pools = facts.filesystem_of(cluster, filesystem)
            tested = [pools["metadata_pool"], *pools["data_pools"]]
            return facts.cluster_facts(cluster, tested, str(pools["name"]))
    except BackendError as error:
        return {"error": str(error)}


def data_space(options: CephfsOptions, access: Access | None) -> Space:
    """What the data pool that new files get may still take."""
    level = access.details.get("level", {}) if access else {}
    pool = level.get("pool", options.data_pool)
    try:
        if not pool:
            with options.login.connect() as cluster:
                pool = facts.filesystem_of(cluster, options.filesystem)["data_pools"][0]
    except BackendError as error:
        return Space(None, None, f"unknown: {error}")
    return pool_space(options.login, [pool])


def require_seen(tree: Tree, host: str) -> None:
    """BackendError if this node does not see the very tree that `host` made."""
    if tree.found_tag() != tree.tag:
        raise BackendError(
            f"{tree.path}, made on host {host}, is not seen in CephFS {tree.filesystem} on "
            f"{socket.gethostname()}: is it the same cluster?"
        )
