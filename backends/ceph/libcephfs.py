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
from collections.abc import Sequence
from typing import Literal, cast

from pydantic import Field

from fsmatrix.backends.access import Access, CephfsAccess, expect
from fsmatrix.backends.ceph import ceph_state, deployment, trees
from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.librados import NO_WAIT, root_text
from fsmatrix.backends.ceph.ceph_options import LibcephfsOptions
from fsmatrix.backends.ceph.cephfs_mounted import (
    CephfsBackend,
    ceph_facts,
    cluster_details,
    library_refusal,
    require_seen,
)
from fsmatrix.backends.ceph.trees import Tree
from fsmatrix.backends.contract import (
    Availability,
    CacheMethod,
    Evidence,
    ProvisionContext,
    RunPlace,
)
from fsmatrix.backends.errors import BackendError, value_or_error
from fsmatrix.backends.journal.journal import DATA, Journal
from fsmatrix.results.evidence.stored import Json, inside
from fsmatrix.results.evidence.target import Deployment

NONBLOCKING = "ceph_ll_nonblocking_readv_writev"


class DriverOptions(LibcephfsOptions):
    """Options of a CephFS by libcephfs, in the player's driver."""

    depth_by: Literal["auto", "threads"] = Field(
        "auto",
        description="who keeps operations in flight: auto = the library where it exports a "
        "nonblocking call, else threads; threads = always the driver's own",
    )


class Libcephfs(CephfsBackend):
    """A directory `fsmatrix-<tag>` in an existing CephFS."""

    name = "libcephfs"
    Options = DriverOptions
    access_type = CephfsAccess
    cache_states = frozenset({"cold", "bypass"})
    driver = "cephfs"

    @property
    def _chosen(self) -> DriverOptions:
        return cast(DriverOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """The libraries are there; which cluster is meant only the options say."""
        reason = library_refusal()
        return Availability(False, reason=reason) if reason else Availability(True, capi.CEPHFS)

    def refusal(self) -> str:
        """No cluster, no access, no such file system or data pool."""
        return library_refusal() or trees.refusal(self._chosen)

    def _attach(self, context: ProvisionContext) -> CephfsAccess:
        """Make the directory, with its layout."""
        tree = trees.make(self._chosen, context)
        return CephfsAccess(
            backend=self.name,
            target=context.target,
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

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of cluster, file system and layout; what cannot be told is recorded as such."""
        tree = Tree.of(expect(access, CephfsAccess).details)
        return {
            "filesystem": "cephfs",
            "managed": True,
            "kernel": os.uname().release,
            "client_options": dict(inside(access.details, "client")),
            "depth_by": access.details["depth_by"],
            "layout": value_or_error(tree.layout),
            **self.level_facts(access),
            "ceph": ceph_facts(tree.login, tree.filesystem),
        }

    def client_deployment(self) -> Deployment:
        """Its object cache lives as long as a step's connections."""
        return deployment.client_of(self._chosen.client, self._chosen.object_size)

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very directory that the conductor made."""
        del journal
        require_seen(Tree.of(expect(access, CephfsAccess).details), str(access.details["host"]))

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """What the player's driver `cephfs` gets: lines key=value."""
        tree = Tree.of(access.details)
        path = f"{expect(access, CephfsAccess).path}/{name}"
        values = {**tree.login.facts, "filesystem": tree.filesystem, "path": path}
        values["depth_by"] = str(access.details.get("depth_by", ""))
        return RunPlace((root_text(values, {**NO_WAIT, **inside(access.details, "client")}),))

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
        why = "ends with each step's connections"
        return ceph_state.client_keeps_nothing(access.details, state, why)


def depth_by(options: DriverOptions) -> str:
    """Who keeps operations in flight: "library" or "threads", as in drivers.Driver."""
    exported = hasattr(capi.load(capi.CEPHFS), NONBLOCKING)
    return "library" if exported and options.depth_by == "auto" else "threads"
