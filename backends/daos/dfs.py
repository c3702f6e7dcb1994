"""DAOS by libdfs: a POSIX container, for programs that speak DFS.

Cache states.  libdfs keeps no data in the client: each read goes to the servers.  So `cold` and
`bypass` (nothing in the client's memory can serve a read) both hold without doing anything, and
`warm` does not exist.  The servers' caches are not emptied; the evidence says so.

Counters.  Over TCP the bytes pass this kernel's network interfaces and are counted there.
RDMA (verbs, cxi) and engines on this very machine pass them by: there are no counters then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsmatrix.backends.access import Access, DfsAccess, expect
from fsmatrix.backends.base import CacheMethod, Evidence, ProvisionContext
from fsmatrix.backends.daos import ondaos
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.options import DaosDfsOptions
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal


class DaosDfs(ondaos.OnDaos):
    """A container of the suite's own in an existing pool, or one that is given."""

    name = "daos-dfs"
    Options = DaosDfsOptions
    access_type = DfsAccess
    cache_states = frozenset({"cold", "bypass"})
    driver = "dfs"

    def refusal(self) -> str:
        """As of every backend on DAOS."""
        if self._chosen.container:
            return "container: daos-dfs cannot yet make a directory of its own in one that exists"
        return super().refusal()

    def _attach(
        self, place: Place, details: Mapping[str, Any], context: ProvisionContext
    ) -> DfsAccess:
        return DfsAccess(
            backend=self.name,
            target=context.target,
            details=details,
            pool=place.pool,
            container=place.container,
            system=place.client.system,
        )

    def describe(self, access: Access) -> dict[str, Any]:
        """As of every backend on DAOS."""
        return {"filesystem": "dfs", **super().describe(access)}

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very container that the conductor chose."""
        del journal
        ondaos.require_seen(expect(access, DfsAccess))

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Nothing is to be done: see the module."""
        del access, files, method
        if state not in cls.cache_states:
            raise BackendError(f"libdfs has no data cache in the client: no cache state {state!r}")
        return Evidence(state, "none", {"client_cache": "none", "server_caches": "unknown"})
