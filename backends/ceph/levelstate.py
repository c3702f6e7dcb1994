"""A level's bucket, rule and pool in the cluster: made, looked at, removed."""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fsmatrix.backends.ceph import facts
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import JsonObject, Stored, objects, whole, wholes
from fsmatrix.results.evidence.target import Redundancy, parse_redundancy

# A level of the cluster factors in CRUSH: a root of its own over hosts that stay where they are.
#
# Pure: from what the cluster says to the commands that make a level, and those that remove it.
# Hosts are only linked and unlinked, never moved, re-classed or removed.


PGS_PER_OSD = 100  # so that chance does not decide how full an OSD is


def placement_groups(redundancy: Redundancy, osds: int) -> int:
    """pg_num of a pool on so many OSDs: a power of two, so that all groups are of one size."""
    wanted = PGS_PER_OSD * osds / redundancy.size
    return 1 << max(0, (int(wanted - 1e-9)).bit_length())


def placement_refusal(redundancy: str, failure_domain: str, hosts: int, osds: int) -> str:
    """Why that can never be placed on so many hosts and OSDs (empty: it can)."""
    places = hosts if failure_domain == "host" else osds
    needed = parse_redundancy(redundancy).size
    if needed <= places:
        return ""
    what = "hosts" if failure_domain == "host" else "OSDs"
    return (
        f"redundancy {redundancy} with failure domain {failure_domain} needs {needed} {what}, and "
        f"there are {places}: data could never be placed. Take more nodes, another redundancy, or "
        "failure domain osd"
    )


MARK = "fsmatrix"  # key of our mark on a pool, in the metadata of its application


@dataclass(frozen=True)
class Command:
    """A monitor command.  `arguments` in the order in which the ceph tool takes them."""

    prefix: str
    arguments: JsonObject
    named: JsonObject = field(default_factory=dict)  # what the tool takes as --name=value

    @property
    def text(self) -> str:
        """As one would type it."""
        words = ["ceph", self.prefix]
        for value in self.arguments.values():
            words += map(str, value) if isinstance(value, list) else [str(value)]
        for name, value in self.named.items():
            option = "--" + name.replace("_", "-")
            words.append(option if value is True else f"{option}={value}")
        return " ".join(words)


@dataclass(frozen=True)
class Host:
    """A host bucket with its OSDs of the wanted class that are up and in."""

    name: str
    osds: tuple[int, ...]


def hosts_of(tree: JsonObject, root: str, device_class: str) -> list[Host] | None:
    """From `ceph osd tree`: hosts below `root` with usable OSDs of the class, by name.

    None if there is no such root.  Class "": OSDs of any.
    """
    nodes = {whole(node, "id"): node for node in objects(tree, "nodes")}
    start = next((node for node in nodes.values() if node["name"] == root), None)
    if start is None:
        return None
    hosts, waiting = [], [start]
    while waiting:
        node = waiting.pop()
        children = wholes(node, "children") if "children" in node else ()
        below = [nodes[number] for number in children if number in nodes]
        if node["type"] != "host":
            waiting += below
            continue
        osds = sorted(whole(osd, "id") for osd in below if _usable(osd, device_class))
        if osds:
            hosts.append(Host(str(node["name"]), tuple(osds)))
    return sorted(hosts, key=lambda host: host.name)


def _usable(osd: JsonObject, device_class: str) -> bool:
    of_class = not device_class or osd.get("device_class") == device_class
    return bool(
        osd["type"] == "osd" and of_class and osd.get("status") == "up" and osd.get("reweight", 0)
    )


@dataclass(frozen=True)
class Level:
    """What is made for a level; all of it has the same name, which holds random digits."""

    name: str
    tag: str
    hosts: tuple[str, ...]
    osds: tuple[int, ...]  # of these hosts, of the class
    redundancy: Redundancy
    failure_domain: str
    device_class: str
    pg_num: int
    filesystem: str = ""  # gets the pool as a data pool; empty: the pool is used by itself

    @property
    def application(self) -> str:
        """What the pool is for, in Ceph's words."""
        return "cephfs" if self.filesystem else "rados"

    def making(self) -> list[Command]:
        """Commands in order.  Links come before the rule: it takes the root's class by name."""
        name, groups = self.name, self.pg_num
        steps = [Command("osd crush add-bucket", {"name": name, "type": "root"})]
        steps += [
            Command("osd crush link", {"name": host, "args": [f"root={name}"]})
            for host in self.hosts
        ]
        pool: JsonObject = {"pool": name, "pg_num": groups, "pgp_num": groups}
        off = {"autoscale_mode": "off"}
        if self.redundancy.erasure_coded:
            profile: JsonObject = {"name": name, "profile": self._profile()}
            steps += [
                Command("osd erasure-code-profile set", profile),
                Command("osd crush rule create-erasure", {"name": name, "profile": name}),
                Command(
                    "osd pool create",
                    {**pool, "pool_type": "erasure", "erasure_code_profile": name, "rule": name},
                    off,
                ),
                Command(
                    "osd pool set", {"pool": name, "var": "allow_ec_overwrites", "val": "true"}
                ),
            ]
        else:
            rule = {"name": name, "root": name, "type": self.failure_domain}
            rule |= {"class": self.device_class} if self.device_class else {}
            steps += [
                Command("osd crush rule create-replicated", rule),
                Command(
                    "osd pool create",
                    {**pool, "pool_type": "replicated"},
                    {"rule": name, "size": self.redundancy.size, **off},
                ),
            ]
        mark = {"pool": name, "app": self.application, "key": MARK, "value": self.tag}
        if self.filesystem:  # adding it to a file system enables the application
            steps.append(Command("fs add_data_pool", {"fs_name": self.filesystem, "pool": name}))
        else:
            steps.append(Command("osd pool application enable", {"pool": name, "app": "rados"}))
        return [*steps, Command("osd pool application set", mark)]

    def _profile(self) -> list[str]:
        code = self.redundancy
        values = [f"k={code.k}", f"m={code.m}", f"crush-failure-domain={self.failure_domain}"]
        values.append(f"crush-root={self.name}")
        return values + ([f"crush-device-class={self.device_class}"] if self.device_class else [])


def removing(name: str, hosts: Sequence[str], filesystem: str, coded: bool) -> list[Command]:
    """Commands that take a level down, in order."""
    steps = []
    if filesystem:
        steps.append(Command("fs rm_data_pool", {"fs_name": filesystem, "pool": name}))
    sure = {"yes_i_really_really_mean_it": True}
    steps.append(Command("osd pool delete", {"pool": name, "pool2": name}, sure))
    steps.append(Command("osd crush rule rm", {"name": name}))
    if coded:
        steps.append(Command("osd erasure-code-profile rm", {"name": name}))
    steps += [Command("osd crush unlink", {"name": host, "ancestor": name}) for host in hosts]
    return [*steps, Command("osd crush rm", {"name": name})]


# What a cluster must allow before pools are made in it: rights, deletion, placement groups.


NEEDED = (
    "making levels needs a user with the capabilities of an administrator "
    "(mon 'allow *', mgr 'allow *', osd 'allow *', mds 'allow *'), or prepared pools "
    "(levels.pools)"
)


def refusal(cluster: Cluster, unprotected: bool) -> str:
    """Why pools cannot be made and removed here; `unprotected`: pools of one copy."""
    try:
        # Harmless: there is no such rule, and none is removed.  Who may not is told so.
        cluster.mon("osd crush rule rm", name=f"fsmatrix-probe-{secrets.token_hex(8)}")
        may_delete = _monitor_option(cluster, "mon_allow_pool_delete")
        may_one = not unprotected or _monitor_option(cluster, "mon_allow_pool_size_one")
    except CephError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"client.{cluster.user} may not: {NEEDED}"
        raise
    for name, allowed in (
        ("mon_allow_pool_delete", may_delete),
        ("mon_allow_pool_size_one", may_one),
    ):
        if not allowed:
            return f"the monitors do not allow it: ceph config set mon {name} true"
    return ""


def too_many_groups(cluster: Cluster, per_osd: float) -> str:
    """Why so many placement groups more for each OSD are too many."""
    allowed = int(_monitor_option(cluster, "mon_max_pg_per_osd"))
    nodes = cluster.mon("osd df")["nodes"]
    there = max((int(node["pgs"]) for node in nodes if node.get("status") == "up"), default=0)
    if there + per_osd <= allowed:
        return ""
    return (
        f"an OSD would have {there + per_osd:.0f} placement groups, and mon_max_pg_per_osd is "
        f"{allowed}: set levels.pg_num, or raise it"
    )


def _monitor_option(cluster: Cluster, name: str) -> Any:
    """As a monitor has it now, wherever it is set."""
    monitor = cluster.mon("quorum_status")["quorum_names"][0]
    return cluster.mgr("config show", who=f"mon.{monitor}", key=name)


CLEAN_SECONDS = 120.0  # for a new pool's placement groups
SERVE_SECONDS = 60.0  # for one call: a read lease is 16 s with Ceph's defaults
UPMAP_CLIENT = "luminous"  # releases are named in the order of the alphabet


@dataclass(frozen=True, kw_only=True)
class Recorded(Stored):
    """What removing a level needs: in its journal entry, and in the details of accesses."""

    name: str
    tag: str
    linked: tuple[str, ...]  # hosts
    filesystem: str
    coded: bool
    conf: str
    user: str
    keyring: str

    @classmethod
    def of(cls, level: Level, login: Login) -> Recorded:
        """Of a level that is to be made."""
        return cls(
            name=level.name,
            tag=level.tag,
            linked=level.hosts,
            filesystem=level.filesystem,
            coded=level.redundancy.erasure_coded,
            conf=login.conf,
            user=login.user,
            keyring=login.keyring,
        )

    @property
    def login(self) -> Login:
        """Who made it."""
        return Login(self.conf, self.user, self.keyring)

    def removal(self) -> list[Command]:
        """Commands that take it down."""
        return removing(self.name, self.linked, self.filesystem, self.coded)


def remove(recorded: Recorded) -> bool:
    """Remove what is there of a recorded level; False if nothing was.

    CephError, with nothing removed, if the pool of that name carries another mark than ours.
    """
    name = recorded.name
    with recorded.login.connect() as cluster:
        pools = {str(pool["pool_name"]): pool for pool in cluster.mon("osd dump")["pools"]}
        if name in pools:
            marks = [
                app[MARK] for app in pools[name]["application_metadata"].values() if MARK in app
            ]
            if marks not in ([], [recorded.tag]):
                raise CephError(f"pool {name} belongs to {marks[0]!r}: not touched")
        there = present(cluster, name)
        for command in recorded.removal():
            try:
                run(cluster, command)
            except CephError as error:
                if error.errno != errno.ENOENT and not _never_added(error, command):
                    raise
        return bool(there)


def _never_added(error: CephError, command: Command) -> bool:
    """The pool was not (or is no longer) a data pool of the file system."""
    return command.prefix == "fs rm_data_pool" and error.errno == errno.EINVAL


def require_absent(cluster: Cluster, name: str) -> None:
    """CephError if anything in the cluster has that name."""
    if present_kinds := present(cluster, name):
        raise CephError(
            f"{', '.join(present_kinds)} {name} exists and is not the suite's: left alone"
        )


def present(cluster: Cluster, name: str) -> list[str]:
    """Which of bucket, rule, profile and pool of that name there are."""
    crush = cluster.mon("osd crush dump")
    names = {
        "bucket": [bucket["name"] for bucket in crush["buckets"]],
        "rule": [rule["rule_name"] for rule in crush["rules"]],
        "profile": cluster.mon("osd erasure-code-profile ls"),
        "pool": [pool["poolname"] for pool in cluster.mon("osd lspools")],
    }
    return [kind for kind, existing in names.items() if name in existing]


def run(cluster: Cluster, command: Command) -> None:
    """Do it; CephError that says the command and, where that is it, which right is missing."""
    try:
        cluster.mon(command.prefix, **command.arguments, **command.named)
    except CephError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            text = f"{error.text or 'refused'}; {NEEDED}"
            raise CephError(command.text, error.errno, text) from error
        raise CephError(command.text, error.errno, error.text) from error


def even_out(cluster: Cluster, pool: str, size: int) -> int | str:
    """Groups moved, or why none could be: see placement.balance.

    Groups of one copy stay: in Ceph 16 some that move never get a read lease from anybody and
    serve nothing ever after (state laggy; seen in 5 of 12 pools, in none of 14 with two copies).
    """
    if size == 1:
        return "not balanced: groups of a single copy may not serve any more when they move"
    release = str(cluster.mon("osd dump")["require_min_compat_client"])
    if release < UPMAP_CLIENT:
        return f"not balanced: clients older than {UPMAP_CLIENT} are allowed ({release})"
    try:
        with work_folder() as folder:
            return facts.balance_groups(cluster, [pool], folder)
    except ToolError as error:
        return f"not balanced: {error}"


def wait_clean(cluster: Cluster, pool: str, number: int) -> None:
    """Until all placement groups of a new pool are where they are to stay, and serve.

    What the manager tells may be of before they moved, and a group that has moved may serve only
    once the read lease of its old OSD is over: so all of them are asked in the end.
    """
    deadline, pause, missing = time.monotonic() + CLEAN_SECONDS, 0.1, "unknown"
    while time.monotonic() < deadline:
        groups = facts.groups_of(cluster, pool)
        osds = sorted({osd for group in groups for osd in group.up})
        facts.wait_for_stats(cluster, osds, deadline)
        missing = _missing(cluster, pool, number)
        if not missing:
            with cluster.ioctx(pool) as context:
                next(iter(context.names()), None)
            return
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    raise CephError(
        f"placement groups of pool {pool} are not clean after {CLEAN_SECONDS:.0f} s: {missing}"
    )


def _missing(cluster: Cluster, pool: str, number: int) -> str:
    """What a pool's placement groups lack (empty: nothing)."""
    groups = {group.pgid: group for group in facts.groups_of(cluster, pool)}
    states = sorted({group.state for group in groups.values()} - {"active+clean"})
    if len(groups) != number or states:
        return f"{len(groups)} of {number} are there, in states {states}"
    for moved in cluster.mon("osd dump")["pg_upmap_items"]:
        group = groups.get(str(moved["pgid"]))
        up = set(group.up) if group else set()
        if up and not all(
            mapping["to"] in up and mapping["from"] not in up for mapping in moved["mappings"]
        ):
            return f"{moved['pgid']} has not moved"
    return ""
