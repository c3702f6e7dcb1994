"""What all backends on Ceph are: their cluster's state, and its factors (option `levels`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self, cast

from fsmatrix.backends.access import Access
from fsmatrix.backends.ceph import ceph_state, deployment, mounts
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.ceph_options import LEVEL_FACTORS, CephOptions
from fsmatrix.backends.ceph.ceph_state import Watch
from fsmatrix.backends.ceph.levels import Levels
from fsmatrix.backends.clusters.levels import ClusterBackend
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Foreseen,
    ProvisionContext,
    Settled,
    Space,
    SpeedEstimate,
)
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import JsonObject, Level, Scalar, inside, text, texts
from fsmatrix.results.evidence.target import Deployment


class CephBackend(ClusterBackend):
    """Base of the backends on Ceph."""

    levels_type = Levels
    pool_option: ClassVar[str]  # that names the pool
    pace: ClassVar[SpeedEstimate] = SpeedEstimate(attach=3.0, run=0.5, bandwidth=120e6, files=500.0)

    @abstractmethod
    def _attach(self, context: ProvisionContext) -> Access:
        """`provision` in the pool that the options name."""

    @abstractmethod
    def unfit(self, cluster: Cluster, pool: str) -> str:
        """Why a pool cannot be used (empty: it can)."""

    @abstractmethod
    def client_deployment(self) -> Deployment:
        """What its way to the cluster decides: caches, durability, the size of objects."""

    @property
    def _levels(self) -> Levels | None:
        options = cast(CephOptions, self.options)
        if options.levels is None:
            return None
        filesystem = getattr(options, "filesystem", None)
        return Levels(options.levels, options.login, filesystem, self.unfit)

    def _in(self, pool: str) -> Self:
        """The same backend with the pool of a level for its own."""
        update = {self.pool_option: pool, "levels": None}
        return type(self)(self.options.model_copy(update=update))

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Both cluster factors, if the options say how; redundancy, if all levels have the same."""
        options = cast(CephOptions, self.options).levels
        known = super().foreseen(level)
        if options is None:
            return known
        of_all = {"redundancy": options.redundancy, "failure_domain": options.failure_domain}
        return replace(
            known, level_factors=LEVEL_FACTORS, attributes={} if options.pools else of_all
        )

    def level_refusal(self, level: Level, bed: Mapping[str, Scalar] | None = None) -> str:
        """No such hosts, redundancy that cannot be placed, missing rights..."""
        return self._levels.refusal(level) if self._levels and bed is None else ""

    def deployment(self, described: JsonObject) -> Deployment:
        """The client's half, then the cluster's; of levels what their options say."""
        pool = str(inside(described, "level").get("pool", ""))
        whole = self.client_deployment().completed(deployment.of_cluster(described, pool))
        options = cast(CephOptions, self.options).levels
        if options is None or options.pools:
            return whole
        return whole.completed(deployment.of_options(options.redundancy, options.failure_domain))

    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """Make the level, if there is one, and what the runs need in it."""
        if level and self._levels is None:
            raise BackendError(
                f"{self.name} makes levels of {', '.join(level)} only with options.levels"
            )
        return self._at(
            level, context, lambda pool: (self._in(pool) if pool else self)._attach(context)
        )

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The cluster's daemons, if they run here: a test bed."""
        return mounts.servers(str(access.details["conf"]))

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Network bytes, where they are all seen.  The pools' own counters lag by seconds."""
        return ceph_state.counters(texts(access.details, "osd_addresses"), Login.of(access.details))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Wait for placement groups and, of a CephFS, the purge queue."""
        details = access.details
        filesystem = text(details, "filesystem") if "filesystem" in details else None
        return ceph_state.settle(Login.of(details), timeout, filesystem)

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """What is wrong with the cluster."""
        return ceph_state.health(Login.of(access.details))

    @classmethod
    def watch(cls, access: Access) -> Watch | None:
        """What the conductor asks of the cluster while a step runs."""
        return Watch(Login.of(access.details))


def pool_space(login: Login, names: Sequence[str]) -> Space:
    """The least that these pools may still take, redundancy deducted."""
    try:
        with login.connect() as cluster:
            stats = {pool["name"]: pool["stats"] for pool in cluster.mon("df")["pools"]}
            quotas = {
                pool["pool_name"]: pool["quota_max_bytes"]
                for pool in cluster.mon("osd dump")["pools"]
            }
    except BackendError as error:
        return Space(None, None, f"unknown: {error}")
    free = [
        value
        for name in names
        if name in stats
        for value in (
            int(stats[name]["max_avail"]),
            *([max(0, quotas[name] - int(stats[name]["stored"]))] if quotas.get(name) else []),
        )
    ]
    return Space(min(free, default=None), None, "ceph df and quotas, redundancy deducted")
