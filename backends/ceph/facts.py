"""Provenance of a Ceph cluster: what the monitors and OSDs tell, without secrets.

Also where the placement groups of pools lie.  With few groups chance decides how much an OSD has
to do: it would pass for a property of the cluster.  So groups are moved (pg-upmap-items) until
each OSD has as many as the next.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.errors import value_or_error
from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.stored import Json, JsonObject, inside, mapping, wholes
from fsmatrix.results.evidence.target import FILE, HDD, NVME, RAM, SSD, Placement

T = TypeVar("T")
PROGRAM = "osdmaptool"
_AT_ONCE = 64  # commands that share one proposal of the monitor
_UPMAP = re.compile(r"^ceph osd pg-upmap-items (\S+) ([0-9 ]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Group:
    """A placement group."""

    pgid: str
    state: str
    up: tuple[int, ...]  # OSDs that it is meant for


def balance_groups(cluster: Cluster, pools: Sequence[str], folder: Path) -> int:
    """Move groups of these pools alone until OSDs have equally many; returns how many moved.

    osdmaptool computes the moves; `folder` gets its files.  Clients must be of luminous or newer
    (`osd set-require-min-compat-client`), which is not changed here.
    """
    (folder / "osdmap").write_bytes(_osdmap(cluster))
    argv = [
        PROGRAM,
        str(folder / "osdmap"),
        "--upmap",
        str(folder / "upmaps"),
        "--mark-up-in",  # the OSDs need not run yet
        "--upmap-deviation",
        "1",
        "--upmap-max",
        "10000",
    ]
    for pool in pools:
        argv += ["--upmap-pool", pool]
    tools.run(argv, deadline=60.0)
    path = folder / "upmaps"
    moves = _UPMAP.findall(path.read_text()) if path.exists() else []

    def move(upmap: tuple[str, str]) -> None:
        group, osds = upmap
        cluster.mon("osd pg-upmap-items", pgid=group, id=[int(osd) for osd in shlex.split(osds)])

    at_once(move, moves)
    return len(moves)


def at_once(ask: Callable[[T], Any], values: Iterable[T]) -> None:
    """Send commands together: the monitor decides on them together."""
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        list(workers.map(ask, values))


def _osdmap(cluster: Cluster) -> bytes:
    answer = cluster.mon_bytes("osd getmap")
    if not answer:
        raise CephError("osd getmap gave nothing")
    return answer


def evenness(groups: Iterable[Group], osds: Sequence[int]) -> Placement:
    """Groups of each of the OSDs that a pool is meant for, and max/mean; every copy counts."""
    count = Counter(osd for group in groups for osd in group.up)
    return Placement(
        pgs_per_osd=tuple(count[osd] for osd in osds),
        max_over_mean=max(count.values(), default=0) * len(osds) / (sum(count.values()) or 1),
    )


def wait_for_stats(cluster: Cluster, osds: Iterable[int], deadline: float) -> None:
    """Until the manager knows what the OSDs know now: "active+clean" can be stale."""
    wanted = {}
    for osd in osds:
        answer = cluster.osd(osd, "flush_pg_stats")
        wanted[osd] = int(answer if isinstance(answer, int | str) else answer["seq"])
    while wanted:
        for osd, seq in list(wanted.items()):
            if int(cluster.mon("osd last-stat-seq", id=osd, format="plain")) >= seq:
                del wanted[osd]
        if wanted and time.monotonic() > deadline:
            raise CephError(f"statistics of OSDs {sorted(wanted)} did not reach the monitor")
        if wanted:
            time.sleep(0.02)


def groups_of(cluster: Cluster, pool: str) -> list[Group]:
    """Placement groups of a pool, as the manager knows them."""
    return groups_in(cluster.mgr("pg ls-by-pool", poolstr=pool))


def groups_in(answer: Any) -> list[Group]:
    """Those that an answer of the manager lists."""
    stats = answer["pg_stats"] if isinstance(answer, dict) else answer
    return [Group(str(pg["pgid"]), str(pg["state"]), tuple(map(int, pg["up"]))) for pg in stats]


def where(cluster: Cluster, pool: str, expected: Iterable[int] = ()) -> Placement:
    """Hosts, OSDs and machines that a pool lies on, and how evenly.

    `expected`: OSDs that it is meant for, if that is known: one without any group counts.
    """
    groups = groups_of(cluster, pool)
    osds = sorted({*expected, *(osd for group in groups for osd in group.up)})
    tree = cluster.mon("osd tree")["nodes"]
    hosts = [node for node in tree if node["type"] == "host" and set(node["children"]) & {*osds}]
    machines = {
        str(entry["hostname"]) for entry in cluster.mon("osd metadata") if entry["id"] in osds
    }
    return replace(
        evenness(groups, osds),
        hosts=tuple(sorted({str(host["name"]) for host in hosts})),
        osds=tuple(osds),
        machines=tuple(sorted(machines)),
        keys=(),
    )


# What Ceph's OSDs tell of the machines and the media that they run on.


def of_osds(metadata: Sequence[JsonObject], here: str, cores: int | None) -> dict[str, Json]:
    """What `osd metadata` tells of machines: memory in bytes, media, object stores.

    An OSD tells no number of cores: `cores` are known where all run on host `here`.
    """
    machines = {str(osd["hostname"]): int(str(osd["mem_total_kb"])) << 10 for osd in metadata}
    media, tables = zip(*(_media(osd) for osd in metadata), strict=True) if metadata else ((), ())
    return {
        "memory": sum(machines.values()),
        "cores": cores if machines.keys() == {here} else None,
        "media": " + ".join(sorted(set(media))) if all(media) else "",
        "metadata_media": " + ".join(sorted(set(tables))) if all(tables) else "",
        "objectstores": sorted({str(osd["osd_objectstore"]) for osd in metadata}),
    }


def _media(osd: JsonObject) -> tuple[str, str]:
    """Where an OSD keeps data, and where its tables: the names of objects, and small values."""
    data = _medium(osd, "bluestore_bdev")
    return data, _medium(osd, "bluefs_db") if osd.get("bluefs_dedicated_db") == "1" else data


def _medium(osd: JsonObject, device: str) -> str:
    """Of the device whose facts begin so; empty if the OSD does not tell."""
    if osd["osd_objectstore"] == "memstore":
        return RAM
    devices = str(osd.get(f"{device}_devices", "")).split(",")
    if osd.get(f"{device}_access_mode") == "file" or all(d.startswith("loop") for d in devices):
        return FILE
    if all(name.startswith("nvme") for name in devices):
        return NVME
    return {"hdd": HDD, "ssd": SSD}.get(str(osd.get(f"{device}_type", "")), "")


MESSENGER = ("ms_type", "ms_client_mode")  # options of this client that are told
OSDS_ASKED = 64  # whose configuration is read; further ones are counted only
POOL_TYPES = {1: "replicated", 3: "erasure"}
# values that are secrets, or name the daemon, its host and its files rather than how it works
_LEFT_OUT = re.compile(
    r"(^|.*[/_.])(key|keyring|keyfile|secret|password|passwd|token|credential|cert|certificate|crt|pem)s?"
    r"([/_.].*|$)|.*(_addr|_host|_data|_dir|_file|_path|_network|admin_socket|_members|_journal)$|"
    r".*_(access|secret)_.*|fsid|host|name|chdir|rotating.*|setuser.*|setgroup.*|auth_.*|"
    r"crush_location|daemonize|osd_mkfs_.*|log_to_.*|err_to_.*|.*_uuid"
)


def cluster_facts(
    cluster: Cluster, pools: Iterable[str] = (), filesystem: str = ""
) -> dict[str, Json]:
    """Version, health, pools, OSD tree, file system, configuration that differs.

    `pools`: those under test (their erasure-code profile and CRUSH rule in full).
    """
    facts = {
        "fsid": value_or_error(lambda: cluster.fsid),
        "client": value_or_error(lambda: cluster.version),
        "versions": value_or_error(lambda: versions(cluster)),
        "health": value_or_error(lambda: health_facts(cluster.mon("health"))),
        "pools": value_or_error(lambda: pool_facts(cluster, set(pools))),
        "osds": value_or_error(lambda: osd_facts(cluster)),
        "configuration": value_or_error(lambda: configuration(cluster)),
        "messenger": value_or_error(lambda: {name: cluster.option(name) for name in MESSENGER}),
    }
    if filesystem:
        facts["filesystem"] = value_or_error(lambda: filesystem_facts(cluster, filesystem))
    return facts


def versions(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Kind of daemon -> version -> how many run it."""
    answer = cluster.mon("versions")
    return {kind: dict(counts) for kind, counts in answer.items() if kind != "overall"}


def health_facts(health: JsonObject) -> dict[str, Json]:
    """Status, and the checks that are not passed with their words."""
    checks = mapping(health, "checks")
    messages = {name: mapping(mapping(checks, name), "summary")["message"] for name in checks}
    return {"status": health["status"], "checks": messages}


def pool_facts(cluster: Cluster, tested: set[str]) -> dict[str, dict[str, Json]]:
    """Of each pool: redundancy, placement groups, rule, flags, quota; `tested` in full."""
    rules = {rule["rule_id"]: rule for rule in cluster.mon("osd crush rule dump")}
    stats = {pool["name"]: pool["stats"] for pool in cluster.mon("df")["pools"]}
    pools = {}
    for pool in cluster.mon("osd dump")["pools"]:
        name, rule = pool["pool_name"], rules.get(pool["crush_rule"], {})
        profile = pool["erasure_code_profile"]
        facts = {
            "type": POOL_TYPES.get(pool["type"], pool["type"]),
            "size": pool["size"],
            "min_size": pool["min_size"],
            "pg_num": pool["pg_num"],
            "pg_autoscale_mode": pool["pg_autoscale_mode"],
            "crush_rule": rule.get("rule_name", pool["crush_rule"]),
            "flags": pool["flags_names"],
            "quota_max_bytes": pool["quota_max_bytes"],
            "options": pool["options"],
            "tested": name in tested,
            "metadata": "metadata" in pool.get("application_metadata", {}).get("cephfs", {}),
        }
        if profile:
            facts["erasure_code_profile"] = _profile(cluster, profile)
        if name in tested:
            facts["crush_steps"] = rule.get("steps", [])
            facts["placement"] = value_or_error(lambda name=name: where(cluster, name).document())  # type: ignore[misc]
            facts["hardware"] = value_or_error(lambda facts=facts: _hardware(cluster, facts))  # type: ignore[misc]
            facts |= {what: stats[name][what] for what in ("stored", "max_avail")}
        pools[name] = facts
    return pools


def _hardware(cluster: Cluster, pool: JsonObject) -> dict[str, Json]:
    """Of the OSDs that a pool lies on, as far as that is known."""
    placement = inside(pool, "placement")
    osds = wholes(placement, "osds") if "osds" in placement else ()
    metadata = [entry for entry in cluster.mon("osd metadata") if entry["id"] in osds]
    return of_osds(metadata, platform.node(), os.cpu_count())


def _profile(cluster: Cluster, profile: str) -> Any:
    asked = {"name": profile}
    return value_or_error(lambda: cluster.mon("osd erasure-code-profile get", **asked))


def osd_facts(cluster: Cluster) -> dict[str, Json]:
    """The OSD tree: buckets with their children; OSDs with class, weight, size, PGs, state."""
    tree = cluster.mon("osd df", output_method="tree")
    kept = ("type", "device_class", "crush_weight", "reweight", "kb", "kb_used", "pgs", "status")
    nodes = []
    for node in tree["nodes"]:
        facts = {name: node[name] for name in kept if name in node}
        children = {"children": node["children"]} if node.get("children") else {}
        nodes.append({"id": node["id"], "name": node["name"], **facts, **children})
    osds = [node for node in nodes if node["type"] == "osd"]
    counts = [node["pgs"] for node in osds if node.get("status") == "up"]
    balance_groups = max(counts) * len(counts) / sum(counts) if sum(counts) else None
    hosts = [node for node in nodes if node["type"] == "host"]
    return {
        "tree": nodes,
        "number": len(osds),
        "hosts": len(hosts),
        "device_classes": sorted({str(node.get("device_class", "")) for node in osds}),
        "pgs_max_over_mean": balance_groups,
    }


@dataclass(frozen=True)
class Filesystem:
    """A CephFS, and the names of its pools."""

    name: str
    metadata_pool: str
    data_pools: tuple[str, ...]  # the first gets new files by default


def filesystem_of(cluster: Cluster, filesystem: str) -> Filesystem:
    """One entry of `fs ls`; CephError that lists the others if there is none of that name."""
    filesystems = [
        Filesystem(each["name"], each["metadata_pool"], tuple(each["data_pools"]))
        for each in cluster.mon("fs ls")
    ]
    names = ", ".join(sorted(each.name for each in filesystems)) or "none"
    if not filesystem and len(filesystems) == 1:
        return filesystems[0]
    for each in filesystems:
        if each.name == filesystem:
            return each
    if not filesystem and filesystems:
        raise CephError(f"there is more than one file system ({names}): name one")
    raise CephError(f"there is no file system {filesystem or 'yet'} (there are: {names})")


def filesystem_facts(cluster: Cluster, filesystem: str) -> dict[str, Json]:
    """Pools, ranks, standbys and settings of a CephFS."""
    found = filesystem_of(cluster, filesystem)
    dump = cluster.mon("fs dump")
    mdsmap = _mdsmap(dump, found.name)
    states = [info["state"] for info in mdsmap["info"].values()]
    return {
        "name": found.name,
        "metadata_pool": found.metadata_pool,
        "data_pools": list(found.data_pools),
        "max_mds": mdsmap["max_mds"],
        "active_mds": states.count("up:active"),
        "standby_mds": len(dump["standbys"]) + len(states) - states.count("up:active"),
        "max_file_size": mdsmap["max_file_size"],
        "session_timeout": mdsmap["session_timeout"],
        "balancer": mdsmap["balancer"],
    }


def active_mdss(cluster: Cluster, filesystem: str) -> list[str]:
    """Names of the active MDSs of a file system."""
    found = filesystem_of(cluster, filesystem)
    infos = _mdsmap(cluster.mon("fs dump"), found.name)["info"].values()
    return sorted(str(info["name"]) for info in infos if info["state"] == "up:active")


def _mdsmap(dump: Any, filesystem: str) -> Any:
    for entry in dump["filesystems"]:
        if entry["mdsmap"]["fs_name"] == filesystem:
            return entry["mdsmap"]
    raise CephError(f"file system {filesystem} has gone")


def osds_up(cluster: Cluster) -> list[int]:
    """Numbers of the OSDs that are up."""
    return [int(osd["osd"]) for osd in cluster.mon("osd dump")["osds"] if osd["up"]]


def addresses(cluster: Cluster) -> list[str]:
    """IP addresses on which the OSDs that are up serve clients."""
    addresses_up = set()
    for osd in cluster.mon("osd dump")["osds"]:
        if osd["up"]:
            for address in osd["public_addrs"]["addrvec"]:
                addresses_up.add(str(address["addr"]).rpartition(":")[0].strip("[]"))
    return sorted(addresses_up)


def configuration(cluster: Cluster) -> dict[str, Json]:
    """What differs from the defaults: in the monitors' database, and as the OSDs have it.

    OSDs with the same settings are listed together; of large clusters the first OSDS_ASKED.
    """
    database = [
        {name: entry[name] for name in ("section", "mask", "name", "value")}
        for entry in cluster.mon("config dump")
        if not left_out(str(entry["name"]))
    ]
    osds = osds_up(cluster)
    groups: dict[str, tuple[list[int], JsonObject]] = {}
    for osd in osds[:OSDS_ASKED]:
        settings = value_or_error(lambda osd=osd: osd_settings(cluster, osd))  # type: ignore[misc]
        groups.setdefault(repr(settings), ([], settings))[0].append(osd)
    listed: list[Json] = [
        {"osds": several, "settings": settings} for several, settings in groups.values()
    ]
    return {"database": database, "osds": listed, "not_asked": osds[OSDS_ASKED:]}


def osd_settings(cluster: Cluster, osd: int) -> dict[str, Json]:
    """Options of one OSD whose value is not the default."""
    diff = cluster.osd(osd, "config diff")["diff"]
    return {
        name: values["final"]
        for name, values in sorted(diff.items())
        if not left_out(name) and values.get("final") != values.get("default")
    }


def left_out(name: str) -> bool:
    """Whether an option may hold a secret, or only says where things are."""
    return _LEFT_OUT.fullmatch(name) is not None
