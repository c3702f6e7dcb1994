"""DAOS by libdfs: a POSIX container of the suite's own, for programs that speak DFS.

What is made is one container, `fsmatrix-<tag>-<target>-<8 random digits>`: several shards of a
campaign may use one pool, and the label alone proves whose it is, also when a crash left the
journal without the UUID.  Nothing else in the pool is touched.

Cache states.  libdfs keeps no data in the client: each read goes to the servers.  So `cold` and
`bypass` (nothing in the client's memory can serve a read) both hold without doing anything, and
`warm` does not exist.  The servers' caches are not emptied; the evidence says so.

Counters.  Over TCP the bytes pass this kernel's network interfaces and are counted there.
RDMA (verbs, cxi) and engines on this very machine pass them by: there are no counters then.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import Field

from fsmatrix.backends.access import Access, DfsAccess, expect
from fsmatrix.backends.base import (
    Backend,
    BackendOptions,
    CacheMethod,
    Evidence,
    ProvisionContext,
    Settled,
    Space,
    Usable,
)
from fsmatrix.backends.daos import deployment
from fsmatrix.backends.daos import facts as daos_facts
from fsmatrix.backends.daos import tool as daos_tool
from fsmatrix.backends.daos.tool import Container, Pool
from fsmatrix.backends.errors import BackendError, value_or_error
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import provenance
from fsmatrix.results.evidence.deployment import Deployment
from fsmatrix.results.units import PositiveSize

ENTRY = "daos-container"  # kind of journal entry
# daos_prop.h, daos_label_is_valid; a leading "-" would be an option of the tool
NAME = r"^[A-Za-z0-9_][A-Za-z0-9:._-]{0,126}$"
CLASS = r"^[A-Za-z0-9_]*$"
PAUSE = 0.5  # seconds between two looks at a rebuild


class DaosDfsOptions(BackendOptions):
    """Options of a DAOS pool; properties that are not given are the pool's defaults."""

    pool: str = Field(pattern=NAME, description="label or UUID of the pool, which exists")
    system: str = Field("", pattern=f"^$|{NAME}", description="DAOS system, if not the agent's")
    oclass: str = Field("", pattern=CLASS, description="object class of the container's objects")
    dir_oclass: str = Field("", pattern=CLASS, description="object class of its directories")
    chunk_size: PositiveSize | None = Field(None, description="chunk size of its files")


class DaosDfs(Backend):
    """A container of the suite's own in an existing pool."""

    name = "daos-dfs"
    Options = DaosDfsOptions
    access_type = DfsAccess
    cache_states = frozenset({"cold", "bypass"})
    driver = "dfs"

    @property
    def _chosen(self) -> DaosDfsOptions:
        return cast(DaosDfsOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Usable:
        """The tool is there, and an agent answers it."""
        if not daos_tool.installed():
            return Usable(False, reason=daos_tool.MISSING)
        try:
            version = daos_tool.version()
            system = daos_tool.system_query("").system_name
        except BackendError as error:
            return Usable(False, reason=f"{error}; does daos_agent run here?")
        return Usable(True, f"{version}, system {system}")

    def refusal(self) -> str:
        """No tool, or no such pool."""
        try:
            self._pool()
        except BackendError as error:
            return str(error)
        return ""

    def _pool(self) -> Pool:
        return daos_tool.pool_query(self._chosen.pool, self._chosen.system)

    def provision(self, level: Mapping[str, Any], context: ProvisionContext) -> DfsAccess:
        """Make the container and look whether it is there.

        After a failure its journal entry stays, since the servers may have made it all the
        same: `finish`, or the next --resume, takes it down.
        """
        self.refuse_level(level)
        options = self._chosen
        pool, system = self._pool(), daos_tool.system_query(options.system)
        label = f"fsmatrix-{context.tag}-{context.target}-{secrets.token_hex(4)}"
        container = self._make(label, context)
        return DfsAccess(
            backend=self.name,
            target=context.target,
            pool=options.pool,
            container=label,
            system=options.system,
            details={
                "uuid": container.container_uuid,
                "pool_uuid": pool.uuid,
                "provider": system.fabric_provider,
                "servers": daos_facts.servers(system),
                "host": socket.gethostname(),
            },
        )

    def _make(self, label: str, context: ProvisionContext) -> Container:
        pool, system = self._chosen.pool, self._chosen.system
        taken = f"container {label} of pool {pool} exists and is not the suite's: left alone"
        if daos_tool.container_query(pool, label, system) is not None:
            raise BackendError(taken)
        facts = {"pool": pool, "label": label, "system": system, "path": f"{pool}/{label}"}
        entry = context.journal.begin(ENTRY, target=context.target, **facts)
        try:
            container = daos_tool.create(pool, label, system, *self._properties())
        except daos_tool.DaosError as error:
            if error.status != daos_tool.EXIST:
                raise
            context.journal.end(entry)
            raise BackendError(taken) from error
        context.journal.confirm(entry, uuid=container.container_uuid)
        existing = daos_tool.container_query(pool, label, system)
        if existing is None or existing.container_uuid != container.container_uuid:
            raise BackendError(f"container {label} of pool {pool} was made, but is not there")
        if existing.container_type != "POSIX":
            raise BackendError(f"container {label} is of type {existing.container_type}, not POSIX")
        return existing

    def _properties(self) -> list[str]:
        """Options of `daos container create`."""
        options = self._chosen
        given = {
            "oclass": options.oclass,
            "dir-oclass": options.dir_oclass,
            "chunk-size": options.chunk_size,
        }
        return [f"--{name}={value}" for name, value in given.items() if value]

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Destroy the container that was made; BackendError if another one is called so."""
        dfs = expect(access, DfsAccess)
        daos_tool.remove(dfs.pool, dfs.container, dfs.system, access.details["uuid"])
        context.journal.end_all(ENTRY, pool=dfs.pool, label=dfs.container)

    def finish(self, context: ProvisionContext) -> None:
        """Destroy what a failed provision or release of this process left."""
        for entry in context.journal.pending(ENTRY, target=context.target):
            if entry.is_own:
                daos_tool.remove_recorded(entry.facts)
                context.journal.end(entry)

    def describe(self, access: Access) -> dict[str, Any]:
        """Facts of pool, container and system; what cannot be told is recorded as such."""
        dfs = expect(access, DfsAccess)
        place = (dfs.pool, dfs.container, dfs.system)
        return {
            "filesystem": "dfs",
            "managed": True,
            "kernel": os.uname().release,
            "provider": access.details["provider"],
            "servers": len(access.details["servers"]),
            "daos": value_or_error(lambda: {"version": daos_tool.version()}),
            "pool": value_or_error(lambda: daos_facts.pool_facts(_pool_of(dfs))),
            "container": value_or_error(
                lambda: daos_facts.container_facts(daos_tool.container_query(*place))
            ),
            "properties": value_or_error(
                lambda: daos_facts.known_properties(daos_tool.properties(*place))
            ),
        }

    def deployment(self, described: Mapping[str, Any]) -> Deployment:
        """As the tool and the options tell."""
        return deployment.of_container(described, self._chosen.oclass, self._chosen.chunk_size)

    def space(self, access: Access | None = None) -> Space:
        """Free bytes of the pool, which others may fill too."""
        del access
        try:
            return daos_facts.free(self._pool())
        except BackendError as error:
            return Space(None, None, f"unknown: {error}")

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very container that the conductor made.

        A program that opens a container which is not there silently makes it.
        """
        del journal
        reason = _gone(expect(access, DfsAccess))
        if reason:
            raise BackendError(
                f"{socket.gethostname()}: {reason}; it was made on {access.details['host']}"
            )

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Nothing is to be done: see the module."""
        del access, files, method
        if state not in cls.cache_states:
            raise BackendError(f"libdfs has no data cache in the client: no cache state {state!r}")
        return Evidence(state, "none", {"client_cache": "none", "server_caches": "unknown"})

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Bytes over this kernel's network, where DAOS's are among them."""
        details = access.details
        if daos_facts.on_network(details["provider"], tuple(details["servers"])):
            return provenance.network_counters()
        return {}

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait for the end of a rebuild.  Aggregation of overwritten data is not seen."""
        dfs, began = expect(access, DfsAccess), time.monotonic()
        while True:
            left = timeout - (time.monotonic() - began)
            try:
                pool = _pool_of(dfs, deadline=left)
            except BackendError as error:
                return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
            state = {
                "rebuild": pool.rebuild.state if pool.rebuild else "not known",
                "free": {tier.media_type: tier.free for tier in pool.tiers},
                "aggregation": "not known",
            }
            quiet, seconds = not daos_facts.rebuilding(pool), time.monotonic() - began
            if quiet or seconds + PAUSE >= timeout:
                return Settled(quiet, seconds, state)
            time.sleep(PAUSE)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """Targets and ranks that are out, a rebuild, a container that has gone."""
        dfs = expect(access, DfsAccess)
        try:
            sentences, gone = daos_facts.ailments(_pool_of(dfs)), _gone(dfs)
        except BackendError as error:
            return [str(error)]
        return [*sentences, gone] if gone else sentences


def _pool_of(dfs: DfsAccess, deadline: float | None = None) -> Pool:
    return daos_tool.pool_query(dfs.pool, dfs.system, deadline)


def _gone(dfs: DfsAccess) -> str:
    """Why the container is not the one that was made (empty: it is)."""
    container = daos_tool.container_query(dfs.pool, dfs.container, dfs.system)
    if container is None:
        return f"container {dfs.container} is not in pool {dfs.pool}"
    if container.container_uuid != dfs.details["uuid"]:
        return f"container {dfs.container} of pool {dfs.pool} is not the one that was made"
    return ""
