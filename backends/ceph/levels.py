"""Levels of `storage_nodes` and `interface` on a Ceph that exists, each with a pool of its own.

By CRUSH: a root of our own to which N hosts are linked, a rule on it (with a device class), a pool.
Nothing that exists is moved or changed, and all is removed again.  Or the user names a prepared
pool for each level; then nothing is made, and it is checked on how many hosts that pool lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fsmatrix.backends.base import ProvisionContext, choose_hosts
from fsmatrix.backends.ceph import facts, levelstate
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.ceph_state import settle
from fsmatrix.backends.ceph.levelstate import (
    Host,
    Level,
    Recorded,
    hosts_of,
    placement_refusal,
)
from fsmatrix.backends.ceph.options import LevelOptions
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, positive, read
from fsmatrix.results.evidence.stored import Level as Wanted

ENTRY = "ceph-level"  # kind of journal entry
PURGE_SECONDS = 30.0


@dataclass(frozen=True)
class Levels:
    """How a target's levels are made, and in which cluster."""

    login: Login
    options: LevelOptions
    filesystem: str | None  # None: RADOS; "": the only one
    unfit: Callable[[Cluster, str], str]  # why a pool cannot be used by the backend

    # -- before anything is made ------------------------------------------------------------
    def refusal(self, level: Wanted) -> str:
        """Why this level cannot be (empty: it can)."""
        nodes = level.get("storage_nodes", 1)
        if positive(nodes) is None:
            return f"storage_nodes={nodes}: a level is a number of hosts, 1 or more"
        try:
            with self.login.connect() as cluster:
                if self.options.pools:
                    return self._prepared_refusal(cluster, level)
                return self._crush_refusal(cluster, level) or levelstate.refusal(
                    cluster, self.options.copies.size == 1
                )
        except BackendError as error:
            return str(error)

    def required_consent(self) -> str:
        """What the user must agree to before anything is made (empty: nothing, or agreed)."""
        if self.options.pools or self.options.consent:
            return ""
        with self.login.connect() as cluster:
            scaled = [
                str(pool["pool_name"])
                for pool in cluster.mon("osd dump")["pools"]
                if pool["pg_autoscale_mode"] == "on"
            ]
        return (
            "for each level a CRUSH root over linked hosts, a rule and a pool are made in cluster "
            f"{cluster.conf or 'of the default configuration'} and removed again; nothing that "
            "exists is moved. While two roots hold the same hosts, Ceph's pg_autoscaler leaves "
            f"the pools on them as they are (it is on for: {', '.join(scaled) or 'none'}). "
            "`fsmatrix run --dry-run` prints every command; options.levels.consent: true agrees"
        )

    def commands(self, level: Wanted, block_seed: str, name: str) -> list[str]:
        """What making and removing this level would tell the cluster, as one would type it."""
        if self.options.pools:
            return []
        with self.login.connect() as cluster:
            planned = self._level(cluster, level, block_seed, name, "dry-run")
        removal = Recorded.of(planned, self.login).removal()
        return [command.text for command in [*planned.making(), *removal]]

    def _prepared_refusal(self, cluster: Cluster, level: Wanted) -> str:
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

    def _number(self, level: Wanted, hosts: Sequence[Host]) -> int:
        given = positive(level.get("storage_nodes"))
        return given or self.options.storage_nodes or max(1, len(hosts))

    def _groups(self, osds: int) -> int:
        return self.options.pg_num or self.options.copies.placement_groups(osds)

    def _level(
        self, cluster: Cluster, level: Wanted, block_seed: str, name: str, tag: str
    ) -> Level:
        hosts = self._hosts(cluster, level)
        names = choose_hosts((host.name for host in hosts), self._number(level, hosts), block_seed)
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

    # -- making -----------------------------------------------------------------------------
    def make(self, level: Wanted, context: ProvisionContext) -> dict[str, Json]:
        """Make it, journalled; facts of it, with "pool".  BackendError, with nothing left."""
        reason = self.refusal(level) or self.required_consent()
        if reason:
            raise BackendError(reason)
        with self.login.connect(levelstate.SERVE_SECONDS) as cluster:
            prepared = self.options.prepared(level)
            if prepared is not None:
                lies = facts.where(cluster, prepared.pool)
                return {"pool": prepared.pool, "made": False, "placement": lies.document()}
            name = context.new_name()
            level_made = self._level(cluster, level, context.block_seed, name, context.tag)
            levelstate.require_absent(cluster, name)
            recorded = Recorded.of(level_made, self.login)
            entry = context.journal.begin(
                ENTRY, target=context.target, path=name, **recorded.document()
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
            "pool": name,
            "made": True,
            "redundancy": self.options.redundancy,
            "failure_domain": level_made.failure_domain,
            "device_class": level_made.device_class,
            "root": self.options.root,
            "pg_num": level_made.pg_num,
            "groups_moved": moved,
            "placement": lies.document(),
        }


def release(level: JsonObject, context: ProvisionContext) -> None:
    """Remove a level that `make` made; a prepared pool stays."""
    if not level["made"]:
        return
    recorded = read(Recorded, level, "level")
    if recorded.filesystem:  # removed files are purged from the pool before it goes
        settle(recorded.login, PURGE_SECONDS, recorded.filesystem)
    levelstate.remove(recorded)
    context.journal.end_all(ENTRY, path=recorded.name)


def _said(level: Wanted) -> str:
    return ", ".join(f"{name}={value}" for name, value in level.items())
