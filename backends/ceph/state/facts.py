"""Provenance of a Ceph cluster: what the monitors and OSDs tell, without secrets."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.ceph.state.placement import where
from fsmatrix.backends.errors import value_or_error
from fsmatrix.results.evidence.target import FILE, HDD, NVME, RAM, SSD
from fsmatrix.results.evidence.values import Json, JsonObject, inside, mapping, wholes

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
    balance = max(counts) * len(counts) / sum(counts) if sum(counts) else None
    hosts = [node for node in nodes if node["type"] == "host"]
    return {
        "tree": nodes,
        "number": len(osds),
        "hosts": len(hosts),
        "device_classes": sorted({str(node.get("device_class", "")) for node in osds}),
        "pgs_max_over_mean": balance,
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
