"""What all backends on DAOS share: a pool, a container in it, their facts and state."""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

from fsmatrix.backends.access import Access
from fsmatrix.backends.clusters.levels import ClusterBackend
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    CacheMethod,
    Evidence,
    Foreseen,
    ProvisionContext,
    Settled,
    Space,
)
from fsmatrix.backends.daos import containers, daos_state, libraries, tools
from fsmatrix.backends.daos import tools as daos_tools
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.daos_options import OPTION_OF, DaosOptions
from fsmatrix.backends.daos.levels import Levels, Shape
from fsmatrix.backends.errors import BackendError, value_or_error
from fsmatrix.backends.local import provenance
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, Scalar, text, texts
from fsmatrix.results.evidence.target import Deployment

# Cache states of libdaos and libdfs, which keep no data in the client: each read goes to the
# servers.  So both hold without doing anything, and `warm` does not exist.  The servers' caches are
# not emptied; the evidence says so.
NOTHING_CACHED = frozenset({"cold", "bypass"})


class DaosBackend(ClusterBackend):
    """Base of the backends on DAOS.  `details` of their accesses are those of a Place."""

    levels_type = Levels
    layout: ClassVar[str] = containers.POSIX  # of the suite's own containers
    testbed: ClassVar[str] = "daos"
    testbed_options: ClassVar[Mapping[str, str]] = {"pool": "pool", "system": "system"}

    @abstractmethod
    def _attach(self, place: Place, details: JsonObject, context: ProvisionContext) -> Access:
        """The access to a container; `details` are those of every access on DAOS."""

    @property
    def _chosen(self) -> DaosOptions:
        return cast(DaosOptions, self.options)

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """The tool is there, DAOS's libraries let MPI start, and an agent answers."""
        present = daos_tools.daos_installed()
        if reason := libraries.mpi_clash() if present else daos_tools.daos_absence():
            return Availability(False, reason=reason)
        try:
            version = daos_tools.daos_version()
            system = daos_tools.Client().system_query().system_name
        except BackendError as error:
            return Availability(False, reason=str(error), installed=True)
        return Availability(True, f"{version}, system {system}")

    def refusal(self) -> str:
        """No tool, no such pool or container, or a pool that cannot hold its properties."""
        options = self._chosen
        try:
            system = options.client.system_query()
            if options.levels is not None:
                return ""
            pool = options.client.pool_query(options.pool)
            if options.container:
                containers.given(options.client, options.pool, options.container)
        except BackendError as error:
            return str(error)
        return options.misfit(daos_state.shape(pool, system))

    @property
    def _levels(self) -> Levels | None:
        options = self._chosen
        return Levels(options.levels, options.client) if options.levels is not None else None

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Factors of the suite's own containers; storage nodes, if the options say how.

        Redundancy and failure domain, as far as they tell them.
        """
        own = {*OPTION_OF, *({"storage_nodes"} if self._levels else ())}
        return replace(
            super().foreseen(level),
            level_factors=frozenset() if self._chosen.container else frozenset(own),
            attributes=self._chosen.coordinates,
        )

    def level_refusal(self, level: Level, bed: Mapping[str, Scalar] | None = None) -> str:
        """Too few servers for a pool, or for a class; no rights; no such class...

        Each node of a bed has a server with one engine.
        """
        levels = self._levels
        if levels is not None and bed is None and (reason := levels.refusal(level)):
            return reason
        try:
            options = self._chosen.at(level)
            if bed is not None:
                nodes, targets = int(bed["storage_nodes"]), int(bed["targets_per_node"])
                return options.misfit(Shape(nodes, nodes, nodes * targets))
            if levels is not None:
                return options.misfit(levels.shape(level))
            pool, system = options.client.pool_query(options.pool), options.client.system_query()
        except BackendError as error:
            return str(error)
        return options.misfit(daos_state.shape(pool, system))

    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """Make the level's pool, if there is one, and the container; or find what is given."""
        own = self.foreseen().level_factors
        self.refuse_level({name: level[name] for name in level.keys() - own})
        options = self._chosen.at(level)
        return self._at(
            level, context, lambda pool: self._in(pool or options.pool, options, context)
        )

    def _in(self, label: str, options: DaosOptions, context: ProvisionContext) -> Access:
        client = options.client
        pool, system = daos_state.returned(client, label, context.progress), client.system_query()
        empty = None
        if options.container:
            place = containers.given(client, label, options.container)
        else:
            if not client.containers(label):
                empty = daos_state.free_space(pool).bytes
            if reason := options.misfit(daos_state.shape(pool, system)):
                raise BackendError(reason)
            place = containers.make(client, label, options.creation, context, self.layout)
        details = {
            **place.details,
            **daos_state.at_attachment(pool).document(),
            **({"empty_free": empty} if empty else {}),
            "provider": system.fabric_provider,
            "servers": daos_state.servers(system),
            "host": socket.gethostname(),
        }
        return self._attach(place, details, context)

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Destroy the container; BackendError if another one is called so."""
        containers.release(Place.of(access.details), context)

    def finish(self, context: ProvisionContext) -> None:
        """Destroy what a failed provision or release of this process left."""
        containers.finish(context)
        super().finish(context)

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of pool, container and system; what cannot be told is recorded as such."""
        place = Place.of(access.details)
        client, pool, container = place.client, place.pool, place.container
        here = daos_state.engines_seen(texts(access.details, "servers"))
        empty = access.details.get("empty_free")
        return {
            "managed": place.own,
            **({"empty_free": empty} if empty else {}),
            "here": vars(here),
            **self.level_facts(access),
            "kernel": os.uname().release,
            "provider": access.details["provider"],
            "servers": len(texts(access.details, "servers")),
            "hosts": [host for host in texts(access.details, "servers") if host],
            "daos": value_or_error(lambda: {"version": daos_tools.daos_version()}),
            "server": value_or_error(lambda: {"version": client.server_version()}),
            "agent": str(tools.socket_path()),
            "pool": value_or_error(lambda: daos_state.pool_facts(client.pool_query(pool))),
            "container": value_or_error(lambda: daos_state.container_facts(place.query())),
            "properties": value_or_error(
                lambda: daos_state.known_properties(client.properties(pool, container))
            ),
        }

    def deployment(self, described: JsonObject) -> Deployment:
        """As the tools tell; before, the level or the options."""
        options = self._chosen
        oclass = described.get("object_class") or options.file_oclass or options.oclass
        return daos_state.of_container(described, str(oclass), options.chunk_size)

    def space(self, access: Access | None = None) -> Space:
        """Free bytes of the pool, which others may fill too, for data of the options' class."""
        options = self._chosen
        pool = str(access.details["pool"]) if access else options.pool
        if not pool:
            return Space(None, None, "unknown: each level has its own pool")
        try:
            free = daos_state.free_space(options.client.pool_query(pool))
        except BackendError as error:
            return Space(None, None, f"unknown: {error}")
        return daos_state.for_data(free, options.file_oclass or options.oclass)

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Bytes over this kernel's network, where DAOS's are among them; else the engines' own."""
        details = access.details
        addresses = tuple(texts(details, "servers"))
        if provenance.on_loopback(addresses):
            return daos_state.counters(details)
        over_tcp = daos_state.over_tcp(text(details, "provider"))
        return provenance.counters_to(addresses) if over_tcp else {}

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Nothing is to be done: see NOTHING_CACHED."""
        del access, files, method
        if state not in cls.cache_states:
            raise BackendError(f"there is no data cache in the client: no cache state {state!r}")
        return Evidence(state, "none", {"client_cache": "none", "server_caches": "unknown"})

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """Servers and engines of this system that run on this kernel: they poll."""
        return daos_state.engines_here(texts(access.details, "servers"))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait for rebuilds, and for space that comes back late."""
        return daos_state.settle(access.details, timeout)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with pool and container."""
        return daos_state.health(access.details)


def require_seen(access: Access) -> None:
    """BackendError if this node does not reach the very container that the conductor chose.

    A program that opens a container which is not there silently makes it.
    """
    reason = Place.of(access.details).gone()
    if reason:
        raise BackendError(
            f"{socket.gethostname()}: {reason}; it was seen on {access.details['host']}"
        )
