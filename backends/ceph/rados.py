"""RADOS: objects in a pool, in namespaces of the suite's own.

Nothing else in the pool is touched, and no pool is made but for `levels` (ceph/levels.py).  The
player cuts files into objects of `object_size`.

Namespaces.  An attachment owns the prefix `fsmatrix-<tag>-<target>-<8 random digits>`.  The
namespace of that very name holds the marker and one object `run.<name>` for each run, written
before the run's own namespace `<prefix>.<name>` is used.  Only namespaces that are recorded so are
emptied, and only if the marker holds the tag.  Of the pool's objects without a namespace those are
removed whose names begin with `<prefix>.<name>.`, after a run that was recorded as one of programs.
To list a namespace, OSDs go through all objects of the pool: a pool of its own is faster.

Cache states.  librados keeps no data in the client: `cold` and `bypass` hold without doing
anything there, and `warm` does not exist.  What the OSDs keep is told, and dropped on request.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from fsmatrix.backends.access import Access, RadosAccess, expect
from fsmatrix.backends.ceph import ceph_state, facts
from fsmatrix.backends.ceph.bindings import capi
from fsmatrix.backends.ceph.bindings.capi import CephError, harmless
from fsmatrix.backends.ceph.bindings.librados import Cluster, IoCtx, Login, root_text
from fsmatrix.backends.ceph.ceph_backend import CephBackend, pool_space
from fsmatrix.backends.ceph.ceph_options import RadosOptions
from fsmatrix.backends.contract import (
    Availability,
    CacheMethod,
    Evidence,
    ProvisionContext,
    RunPlace,
)
from fsmatrix.backends.contract import Space as FreeSpace
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.tree import LIMIT, MARKER, marker_of, tag_in, whose
from fsmatrix.results.evidence.stored import Json, JsonObject, inside
from fsmatrix.results.evidence.target import DURABLE, NONE, Deployment

RUN_RECORD = "run."
PROGRAMS_RECORD = b"programs"
ENTRY = "rados-space"  # kind of journal entry


@dataclass(frozen=True)
class Space:
    """The prefix of an attachment in a pool, with the tag that its marker holds."""

    login: Login
    pool: str
    prefix: str
    tag: str

    @property
    def facts(self) -> dict[str, str]:
        """For accesses and journal entries; `of` reads them."""
        values = {name: getattr(self, name) for name in ("pool", "prefix", "tag")}
        return {**self.login.facts, **values}

    @classmethod
    def of(cls, facts: JsonObject) -> Space:
        """The space that such facts describe."""
        return cls(Login.of(facts), *(str(facts[name]) for name in ("pool", "prefix", "tag")))

    def namespace(self, run: str) -> str:
        """The namespace that a run works in."""
        return f"{self.prefix}.{run}"

    def make(self) -> None:
        """Write the marker; CephError if anything is in a namespace of that name."""
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            if next(iter(markers.names()), None) is not None:
                raise CephError(
                    f"namespace {self.prefix} of pool {self.pool} exists and is not the suite's: "
                    "left alone"
                )
            markers.write_full(MARKER, marker_of(self.tag))

    def found_tag(self, cluster: Cluster) -> str | None:
        """The tag in the marker; None if there is none."""
        with cluster.ioctx(self.pool, self.prefix) as markers:
            return _tag(markers)

    def make_run(self, run: str, programs: bool = False) -> None:
        """Record a run; its namespace needs no making.  Harmless if it is recorded.

        `programs`: IOR and fio know no namespaces, so their objects have the run's namespace for a
        prefix of their names, in the namespace that has no name.
        """
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            self._require(_tag(markers))
            markers.write_full(f"{RUN_RECORD}{run}", PROGRAMS_RECORD if programs else b"")

    def remove_run(self, run: str) -> None:
        """Remove the objects of a recorded run; harmless if it is gone."""
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            self._require(_tag(markers))
            if markers.exists(f"{RUN_RECORD}{run}"):
                self._empty(cluster, markers, run)

    def remove(self) -> bool:
        """Remove all of it, the marker last; False if there is nothing.

        CephError, with nothing removed, if objects are there without our marker.
        """
        with self.login.connect() as cluster:
            try:
                markers = cluster.ioctx(self.pool, self.prefix)
            except CephError as error:
                if error.errno == errno.ENOENT:  # with its pool it has gone as well
                    return False
                raise
            names = list(markers.names())
            if not names:
                return False
            self._require(_tag(markers))
            for name in names:
                if name.startswith(RUN_RECORD):
                    self._empty(cluster, markers, name.removeprefix(RUN_RECORD))
            markers.remove_many([name for name in names if name != MARKER])
            markers.remove_many([MARKER])
        return True

    def _empty(self, cluster: Cluster, markers: IoCtx, run: str) -> None:
        if markers.read(f"{RUN_RECORD}{run}", len(PROGRAMS_RECORD)) == PROGRAMS_RECORD:
            with cluster.ioctx(self.pool) as plain:  # the whole pool has to be gone through
                first = f"{self.namespace(run)}."
                plain.remove_many([name for name in plain.names() if name.startswith(first)])
        with cluster.ioctx(self.pool, self.namespace(run)) as space:
            space.remove_all()
        markers.remove_many([f"{RUN_RECORD}{run}"])

    def _require(self, marker_tag: str | None) -> None:
        if marker_tag != self.tag:
            raise CephError(
                f"namespace {self.prefix} of pool {self.pool} {whose(marker_tag)}: not touched "
                f"(expected {self.tag!r})"
            )


def _tag(markers: IoCtx) -> str | None:
    with harmless(errno.ENOENT):
        return tag_in(markers.read(MARKER, LIMIT))
    return None


class Rados(CephBackend):
    """Namespaces of the suite's own in an existing pool."""

    name = "rados"
    Options = RadosOptions
    access_type = RadosAccess
    cache_states = frozenset({"cold", "bypass"})
    driver = "rados"
    pool_option = "pool"
    testbed: ClassVar[str] = "ceph"
    testbed_options: ClassVar[Mapping[str, str]] = {"conf": "conf", "pool": "pools.rados"}

    @property
    def _chosen(self) -> RadosOptions:
        return cast(RadosOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """librados is there; which cluster is meant only the options say."""
        reason = capi.available(capi.RADOS)
        return Availability(False, reason=reason) if reason else Availability(True, capi.RADOS)

    def refusal(self) -> str:
        """No cluster, no access, no such pool, or one that is not for this."""
        try:
            with self._chosen.login.connect(options=self._chosen.client) as cluster:
                return pool_refusal(cluster, self._chosen.pool) if self._chosen.pool else ""
        except BackendError as error:
            return str(error)

    def unfit(self, cluster: Cluster, pool: str) -> str:
        """Not there, or not for this."""
        return pool_refusal(cluster, pool)

    def _attach(self, context: ProvisionContext) -> RadosAccess:
        """Take a prefix of namespaces, journalled first, and mark it."""
        options, login = self._chosen, self._chosen.login
        with login.connect(options=options.client) as cluster:
            reason = pool_refusal(cluster, options.pool)
            if reason:
                raise BackendError(reason)
            fsid, addresses = cluster.fsid, facts.addresses(cluster)
        prefix = context.new_name()
        space = Space(login, options.pool, prefix, context.tag)
        place = f"{options.pool}/{prefix}"
        entry = context.journal.begin(ENTRY, target=context.target, path=place, **space.facts)
        try:
            space.make()
        except CephError as error:
            if error.errno in (0, errno.EACCES, errno.EPERM):  # foreign, or nothing was written
                context.journal.end(entry)
            raise
        return RadosAccess(
            backend=self.name,
            target=context.target,
            pool=options.pool,
            conf=login.conf,
            user=login.user,
            prefix=prefix,
            details={
                **space.facts,
                "object_size": options.object_size,
                "client": options.client,
                "drop_server_caches": options.drop_server_caches,
                "fsid": fsid,
                "osd_addresses": addresses,
                "host": socket.gethostname(),
            },
        )

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Remove the objects of all runs, and the marker."""
        space = Space.of(access.details)
        space.remove()
        context.journal.end_all(ENTRY, pool=space.pool, prefix=space.prefix)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        context.journal.undo_own(ENTRY, context.target, lambda facts: Space.of(facts).remove())
        super().finish(context)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of cluster and pool; what cannot be told is recorded as such."""
        rados = expect(access, RadosAccess)
        described = {
            "filesystem": "rados",
            "managed": True,
            "kernel": os.uname().release,
            "pool": rados.pool,
            "object_size": access.details["object_size"],
            "client_options": dict(inside(access.details, "client")),
            **self.level_facts(access),
        }
        try:
            with Login.of(access.details).connect() as cluster:
                return described | {"ceph": facts.cluster_facts(cluster, [rados.pool])}
        except BackendError as error:
            return described | {"ceph": {"error": str(error)}}

    def client_deployment(self) -> Deployment:
        """librados keeps nothing, and an object is written when all its OSDs have it."""
        return Deployment(
            durability=DURABLE,
            chunk_size=self._chosen.object_size,
            data_cache=NONE,
            metadata_cache=NONE,
        )

    def space(self, access: Access | None = None) -> FreeSpace:
        """What the pool may still take, by `ceph df` and its quota; others may fill it too.

        Of several prepared pools the least, as long as none is chosen.
        """
        options = self._chosen
        if access is None and options.levels is not None:
            return pool_space(options.login, options.levels.named)
        pool = expect(access, RadosAccess).pool if access else options.pool
        return pool_space(options.login, [pool])

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very namespace that the conductor marked."""
        del journal
        space = Space.of(access.details)
        with space.login.connect() as cluster:
            marker_tag = space.found_tag(cluster)
        if marker_tag != space.tag:
            raise BackendError(
                f"{socket.gethostname()}: namespace {space.prefix} of pool {space.pool}, made on "
                f"{access.details['host']}, is not there: is it the same cluster?"
            )

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """What the player's driver `rados` gets: lines key=value."""
        space = Space.of(access.details)
        values = {
            **space.login.facts,
            "pool": space.pool,
            "namespace": space.namespace(name),
            "object_size": access.details["object_size"],
        }
        return RunPlace((root_text(values, inside(access.details, "client")),))

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Record the run's namespace; harmless if another node did."""
        Space.of(access.details).make_run(name, programs)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove the objects of the run's namespace; harmless if it is gone."""
        Space.of(access.details).remove_run(name)

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Nothing is to be done in the client: see the module."""
        del files, method
        if state not in cls.cache_states:
            raise BackendError(f"librados has no cache in the client: no cache state {state!r}")
        return ceph_state.client_keeps_nothing(access.details, state, "none")


def pool_refusal(cluster: Cluster, name: str) -> str:
    """Why a pool cannot take the player's objects (empty: it can)."""
    pools = {pool["pool_name"]: pool for pool in cluster.mon("osd dump")["pools"]}
    if name not in pools:
        return f"there is no pool {name} (there are: {', '.join(sorted(pools)) or 'none'})"
    pool = pools[name]
    if "metadata" in pool["application_metadata"].get("cephfs", {}):
        return f"pool {name} holds the metadata of a CephFS: nothing is written there"
    flags = pool["flags_names"].split(",")
    if pool["erasure_code_profile"] and "ec_overwrites" not in flags:
        return (
            f"pool {name} is erasure-coded and cannot be written in part: "
            f"ceph osd pool set {name} allow_ec_overwrites true"
        )
    return ""
