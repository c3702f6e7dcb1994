"""How a Ceph cluster is deployed: facts about a pool and its servers, from what `facts` tells.

A client's half (caches, durability, objects) comes from the options of each backend.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fsmatrix.backends.ceph.levels.redundancy import Redundancy, parse_redundancy
from fsmatrix.backends.system.mounts import option_values
from fsmatrix.results.evidence.deployment import (
    DURABLE,
    NONE,
    RDMA,
    SERVER,
    TCP,
    WRITE_BACK,
    Deployment,
)

PAGES = "page cache"
CAPABILITIES = "capabilities of the MDS"
_PAIR = re.compile(r"(\w+)=(\S+)")
_FALSE = frozenset({"false", "0", "no", "off"})


def of_cluster(described: Mapping[str, Any], pool: str = "") -> Deployment:
    """What the cluster tells of a data pool (empty: the one described, of the layout, the first).

    `described`: what a backend's `describe` told; nothing is known where that is empty.
    """
    ceph = described.get("ceph", {})
    if "pools" not in ceph or "error" in ceph["pools"]:
        return Deployment()
    layout = dict(_PAIR.findall(str(described.get("layout", ""))))
    data = pool or described.get("pool") or layout.get("pool") or _first(ceph)
    facts = ceph["pools"].get(data, {})
    return (
        _of_pool(facts)
        .completed(_of_servers(facts, ceph))
        .completed(_of_messenger(ceph.get("messenger", {}), ceph.get("configuration", {})))
        .completed(
            Deployment(
                chunk_size=int(layout["object_size"]) if "object_size" in layout else None,
                metadata_media=_metadata_media(ceph),
            )
        )
    )


def redundancy_of(redundancy: Redundancy) -> Deployment:
    """Copies or an erasure code, which the primary OSD computes."""
    if redundancy.erasure_coded:
        return Deployment(redundancy=f"EC {redundancy.k}+{redundancy.m}", ec_encoder=SERVER)
    if redundancy.size == 1:
        return Deployment(redundancy=NONE, failure_domain=NONE, ec_encoder=NONE)
    return Deployment(redundancy=f"replica {redundancy.size}", ec_encoder=NONE)


def of_options(redundancy: str, failure_domain: str) -> Deployment:
    """ "size=3" and "host", as options of levels and test beds write it."""
    by_redundancy = redundancy_of(parse_redundancy(redundancy))
    return by_redundancy.completed(Deployment(failure_domain=failure_domain))


def client_of(client: Mapping[str, str], object_size: int | None, pages: str = "") -> Deployment:
    """The half of a client of CephFS in user space, with these options of Ceph.

    Writes stay in its object cache unless `client_oc` is off; then they wait for the OSDs.
    `pages`: what keeps data beside it.
    """
    cached = client.get("client_oc", "true").lower() not in _FALSE
    caches = [name for name in (pages, "object cache" if cached else "") if name]
    modes = client.get("ms_client_mode", "").split()
    return Deployment(
        durability=WRITE_BACK if cached else DURABLE,
        chunk_size=object_size,
        encrypted=modes[0] == "secure" if modes else None,
        data_cache=" and ".join(caches) or NONE,
        metadata_cache=CAPABILITIES,
    )


def kernel_client(mount_options: str, object_size: int | None) -> Deployment:
    """The half of the kernel's client, mounted with these options."""
    options = option_values(mount_options)
    return Deployment(
        durability=DURABLE if "sync" in options else WRITE_BACK,
        chunk_size=object_size,
        encrypted=options.get("ms_mode", "legacy") in ("secure", "prefer-secure"),
        data_cache=PAGES,
        metadata_cache=CAPABILITIES,
    )


def found(data_cache: str | None = None) -> Deployment:
    """The half of a client that somebody else mounted: how, the suite does not know."""
    return Deployment(data_cache=data_cache, metadata_cache=CAPABILITIES)


def _first(ceph: Mapping[str, Any]) -> str:
    """The data pool that new files get by default."""
    return str(next(iter(ceph.get("filesystem", {}).get("data_pools", ())), ""))


def _of_pool(pool: Mapping[str, Any]) -> Deployment:
    """Redundancy, failure domain, usable bytes."""
    profile = pool.get("erasure_code_profile", {})
    if "type" not in pool or "error" in profile:
        return Deployment()
    coded = pool["type"] == "erasure"
    k, m = (int(profile["k"]), int(profile["m"])) if coded else (0, 0)
    by_redundancy = redundancy_of(Redundancy(int(pool["size"]), k, m))
    kinds = {str(step["type"]) for step in pool.get("crush_steps", ()) if step.get("type")}
    usable = pool["stored"] + pool["max_avail"] if "max_avail" in pool else None
    seen = Deployment(failure_domain=kinds.pop() if len(kinds) == 1 else None, usable_bytes=usable)
    return by_redundancy.completed(seen)


def _of_servers(pool: Mapping[str, Any], ceph: Mapping[str, Any]) -> Deployment:
    """Nodes, devices, media, memory and fill of the OSDs that a pool lies on."""
    placement, hardware = pool.get("placement", {}), pool.get("hardware", {})
    if "hosts" not in placement or "media" not in hardware:
        return Deployment()
    hosts = len(placement["hosts"])
    tree = ceph.get("osds", {}).get("tree", ())
    sizes = [node for node in tree if node["id"] in placement["osds"] and node.get("kb")]
    total = sum(node["kb"] for node in sizes)
    bluestore = hardware["objectstores"] == ["bluestore"]
    return Deployment(
        storage_nodes=hosts or None,
        devices_per_node=len(placement["osds"]) / hosts if hosts else None,
        media=hardware["media"] or None,
        metadata_media=None if ceph.get("filesystem") else hardware["metadata_media"] or None,
        server_memory=hardware["memory"],
        server_cores=hardware["cores"],
        checksums=_checksums(ceph.get("configuration", {})) if bluestore else None,
        fill=sum(node["kb_used"] for node in sizes) / total if total else None,
    )


def _metadata_media(ceph: Mapping[str, Any]) -> str | None:
    """Of the pool that holds a file system's metadata."""
    pool = ceph.get("pools", {}).get(str(ceph.get("filesystem", {}).get("metadata_pool", "")), {})
    return pool.get("hardware", {}).get("metadata_media") or None


def _settings(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What groups of OSDs have set; nothing if one of them did not tell."""
    groups = [group["settings"] for group in configuration.get("osds", ())]
    return [] if any("error" in settings for settings in groups) else groups


def _checksums(configuration: Mapping[str, Any]) -> str | None:
    kinds = {
        str(values.get("bluestore_csum_type", "crc32c")) for values in _settings(configuration)
    }
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    return NONE if kind == NONE else f"{kind} at rest"


def _of_messenger(messenger: Mapping[str, Any], configuration: Mapping[str, Any]) -> Deployment:
    """RDMA or TCP, and encryption: the first of the client's modes that the OSDs allow."""
    if "ms_type" not in messenger:
        return Deployment()
    asked = str(messenger["ms_client_mode"]).split()
    allowed = [
        str(values.get("ms_service_mode", "crc secure")) for values in _settings(configuration)
    ]
    modes = {next((mode for mode in asked if mode in text.split()), "") for text in allowed}
    return Deployment(
        transport=RDMA if "rdma" in messenger["ms_type"] else TCP,
        encrypted=modes == {"secure"} if len(modes) == 1 else None,
    )
