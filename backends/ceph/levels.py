"""Levels of `storage_nodes` and `interface` on a Ceph that exists, each with a pool of its own.

By CRUSH: a root of our own to which N hosts are linked, a rule on it (with a device class), a pool.
Nothing that exists is moved or changed, and all is removed again.  Or the user names a prepared
pool for each level; then nothing is made, and it is checked on how many hosts that pool lies.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fsmatrix.backends.ceph import facts, levelstate
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.ceph_options import LevelOptions
from fsmatrix.backends.ceph.ceph_state import settle
from fsmatrix.backends.ceph.levelstate import (
    Host,
    Level,
    Recorded,
    hosts_of,
    placement_refusal,
)
from fsmatrix.backends.clusters.levels import ClusterLevels
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, read
from fsmatrix.results.evidence.stored import Level as Wanted
from fsmatrix.results.evidence.target import Placement

PURGE_SECONDS = 30.0


@dataclass(frozen=True)
class Levels(ClusterLevels):
    """How a target's levels are made, and in which cluster."""

    entry = "ceph-level"

    options: LevelOptions
    login: Login
    filesystem: str | None  # None: RADOS; "": the only one
    unfit: Callable[[Cluster, str], str]  # why a pool cannot be used by the backend

    # -- before anything is made ------------------------------------------------------------
    def _agreed_to(self) -> str:
        with self.login.connect() as cluster:
            scaled = [
                str(pool["pool_name"])
                for pool in cluster.mon("osd dump")["pools"]
                if pool["pg_autoscale_mode"] == "on"
            ]
        return (
            "a CRUSH root over linked hosts, a rule and a pool are made in cluster "
            f"{cluster.conf or 'of the default configuration'} and removed again; nothing that "
            "exists is moved. While two roots hold the same hosts, Ceph's pg_autoscaler leaves "
            f"the pools on them as they are (it is on for: {', '.join(scaled) or 'none'})"
        )

    def _commands(self, level: Wanted, block_seed: str, name: str) -> list[str]:
        with self.login.connect() as cluster:
            planned = self._level(cluster, level, block_seed, name, "dry-run")
        removal = Recorded.of(planned, self.login).removal()
        return [command.text for command in [*planned.making(), *removal]]

    def _prepared_refusal(self, level: Wanted) -> str:
        with self.login.connect() as cluster:
            pool = self.options.prepared(level)
            if pool is None:
                return f"levels.pools must name exactly one pool for {_said(level)}"
            if reason := self.unfit(cluster, pool.pool):
                return reason
            wanted = level.get("storage_nodes")
            hosts = len(facts.where(cluster, pool.pool).hosts or ())
            if wanted is not None and hosts != wanted:
                return f"pool {pool.pool} lies on {hosts} hosts, not on {wanted}"
            return ""

    def _making_refusal(self, level: Wanted) -> str:
        with self.login.connect() as cluster:
            return self._crush_refusal(cluster, level) or levelstate.refusal(
                cluster, self.options.copies.size == 1
            )

    def _crush_refusal(self, cluster: Cluster, level: Wanted) -> str:
        options, hosts = self.options, self._hosts(cluster, level)
        number = self._number(level, hosts)
        if number > len(hosts) or not hosts:
            of_class = options.class_of(level)
            which = f" of class {of_class}" if of_class else ""
            return (
                f"{_said(level) or 'a level'} needs {number} hosts; CRUSH bucket {options.root} "
                f"has {len(hosts)} with OSDs{which} that are up and in"
            )
        fewest = sum(sorted(len(host.osds) for host in hosts)[:number])
        redundancy, domain = options.redundancy, options.failure_domain
        if reason := placement_refusal(redundancy, domain, number, fewest):
            return reason
        copies = options.copies.size * self._groups(fewest)
        return levelstate.too_many_groups(cluster, copies / fewest)

    def _hosts(self, cluster: Cluster, level: Wanted) -> list[Host]:
        tree = cluster.mon("osd tree")
        hosts = hosts_of(tree, self.options.root, self.options.class_of(level))
        if hosts is None:
            raise CephError(f"there is no CRUSH bucket {self.options.root}")
        return hosts

    def _groups(self, osds: int) -> int:
        return self.options.pg_num or levelstate.placement_groups(self.options.copies, osds)

    def _level(
        self, cluster: Cluster, level: Wanted, block_seed: str, name: str, tag: str
    ) -> Level:
        hosts = self._hosts(cluster, level)
        names = self._drawn(level, [host.name for host in hosts], block_seed)
        chosen = [host for host in hosts if host.name in names]
        osds = tuple(osd for host in chosen for osd in host.osds)
        filesystem = ""
        if self.filesystem is not None:
            filesystem = facts.filesystem_of(cluster, self.filesystem).name
        return Level(
            name=name,
            tag=tag,
            hosts=tuple(host.name for host in chosen),
            osds=osds,
            redundancy=self.options.copies,
            failure_domain=self.options.failure_domain,
            device_class=self.options.class_of(level),
            pg_num=self._groups(len(osds)),
            filesystem=filesystem,
        )

    # -- made and removed -------------------------------------------------------------------
    def _placement(self, pool: str) -> Placement:
        with self.login.connect() as cluster:
            return facts.where(cluster, pool)

    def _make(self, level: Wanted, name: str, context: ProvisionContext) -> dict[str, Json]:
        """Nothing is left of it after a failure, or what is stays in the journal."""
        with self.login.connect(levelstate.SERVE_SECONDS) as cluster:
            level_made = self._level(cluster, level, context.block_seed, name, context.tag)
            levelstate.require_absent(cluster, name)
            recorded = Recorded.of(level_made, self.login)
            entry = context.journal.begin(
                self.entry, target=context.target, path=name, **recorded.document()
            )
            try:
                for command in level_made.making():
                    context.progress(command.text)
                    levelstate.run(cluster, command)
                moved = levelstate.even_out(cluster, name, level_made.redundancy.size)
                levelstate.wait_clean(cluster, name, level_made.pg_num)
                lies = facts.where(cluster, name, level_made.osds)
            except BackendError:
                with suppress(BackendError):  # what cannot be removed now stays in the journal
                    levelstate.remove(recorded)
                    context.journal.end(entry)
                raise
        return {
            **recorded.document(),
            "redundancy": self.options.redundancy,
            "failure_domain": level_made.failure_domain,
            "device_class": level_made.device_class,
            "root": self.options.root,
            "pg_num": level_made.pg_num,
            "groups_moved": moved,
            "placement": lies.document(),
        }

    @classmethod
    def remove(cls, facts: JsonObject) -> bool:
        """Removed files are purged from the pool before it goes."""
        recorded = read(Recorded, facts, "level")
        if recorded.filesystem:
            settle(recorded.login, PURGE_SECONDS, recorded.filesystem)
        return levelstate.remove(recorded)


def _said(level: Wanted) -> str:
    return ", ".join(f"{name}={value}" for name, value in level.items())
