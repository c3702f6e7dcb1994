"""How a Ceph cluster is deployed: facts about a pool and its servers, from what `facts` tells.

A client's half (caches, durability, objects) comes from the options of each backend.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fsmatrix.backends.system.mounts import option_values
from fsmatrix.results.evidence.stored import (
    JsonObject,
    inside,
    mapping,
    objects,
    positive,
    text,
    texts,
    whole,
    wholes,
)
from fsmatrix.results.evidence.target import (
    DURABLE,
    NONE,
    RDMA,
    SHARED,
    TCP,
    WRITE_BACK,
    Deployment,
    Redundancy,
    parse_redundancy,
    redundancy_of,
)

PAGES = "page cache"
CAPABILITIES = "capabilities of the MDS"
_PAIR = re.compile(r"(\w+)=(\S+)")
_FALSE = frozenset({"false", "0", "no", "off"})


def of_cluster(described: JsonObject, pool: str = "") -> Deployment:
    """What the cluster tells of a data pool (empty: the one described, of the layout, the first).

    `described`: what a backend's `describe` told; nothing is known where that is empty.
    """
    ceph = inside(described, "ceph")
    pools = inside(ceph, "pools")
    if not pools or "error" in pools:
        return Deployment()
    layout = dict(_PAIR.findall(str(described.get("layout", ""))))
    data = pool or described.get("pool") or layout.get("pool") or _first(ceph)
    facts = inside(pools, str(data))
    return (
        _of_pool(facts)
        .completed(_of_servers(facts, ceph))
        .completed(_of_messenger(inside(ceph, "messenger"), inside(ceph, "configuration")))
        .completed(
            Deployment(
                chunk_size=int(layout["object_size"]) if "object_size" in layout else None,
                metadata_media=_metadata_media(ceph),
            )
        )
    )


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


def _first(ceph: JsonObject) -> str:
    """The data pool that new files get by default."""
    filesystem = inside(ceph, "filesystem")
    return next(iter(texts(filesystem, "data_pools")), "") if "data_pools" in filesystem else ""


def _of_pool(pool: JsonObject) -> Deployment:
    """Redundancy, failure domain, usable bytes."""
    profile = inside(pool, "erasure_code_profile")
    if "type" not in pool or "error" in profile:
        return Deployment()
    coded = pool["type"] == "erasure"
    k, m = (int(text(profile, "k")), int(text(profile, "m"))) if coded else (0, 0)
    by_redundancy = redundancy_of(Redundancy(whole(pool, "size"), k, m))
    steps = objects(pool, "crush_steps") if "crush_steps" in pool else ()
    kinds = {str(step["type"]) for step in steps if step.get("type")}
    usable = whole(pool, "stored") + whole(pool, "max_avail") if "max_avail" in pool else None
    seen = Deployment(failure_domain=kinds.pop() if len(kinds) == 1 else None, usable_bytes=usable)
    return by_redundancy.completed(seen)


def _of_servers(pool: JsonObject, ceph: JsonObject) -> Deployment:
    """Nodes, devices, media, memory and fill of the OSDs that a pool lies on."""
    placement, hardware = inside(pool, "placement"), inside(pool, "hardware")
    if "hosts" not in placement or "media" not in hardware:
        return Deployment()
    hosts, osds = len(texts(placement, "hosts")), wholes(placement, "osds")
    nodes = inside(ceph, "osds")
    tree = objects(nodes, "tree") if "tree" in nodes else ()
    sizes = [node for node in tree if node["id"] in osds and node.get("kb")]
    total = sum(whole(node, "kb") for node in sizes)
    bluestore = texts(hardware, "objectstores") == ("bluestore",)
    media = None if ceph.get("filesystem") else text(hardware, "metadata_media") or None
    return Deployment(
        storage_nodes=hosts or None,
        devices_per_node=len(osds) / hosts if hosts else None,
        media=text(hardware, "media") or None,
        metadata_media=media,
        server_memory=whole(hardware, "memory"),
        server_cores=positive(hardware["cores"]),
        shared_cores=SHARED if hardware["cores"] else NONE,
        checksums=_checksums(inside(ceph, "configuration")) if bluestore else None,
        fill=sum(whole(node, "kb_used") for node in sizes) / total if total else None,
    )


def _metadata_media(ceph: JsonObject) -> str | None:
    """Of the pool that holds a file system's metadata."""
    name = str(inside(ceph, "filesystem").get("metadata_pool", ""))
    media = inside(ceph, "pools", name, "hardware").get("metadata_media")
    return str(media) if media else None


def _settings(configuration: JsonObject) -> list[JsonObject]:
    """What groups of OSDs have set; nothing if one of them did not tell."""
    osds = objects(configuration, "osds") if "osds" in configuration else ()
    groups = [mapping(group, "settings") for group in osds]
    return [] if any("error" in settings for settings in groups) else groups


def _checksums(configuration: JsonObject) -> str | None:
    kinds = {
        str(values.get("bluestore_csum_type", "crc32c")) for values in _settings(configuration)
    }
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    return NONE if kind == NONE else f"{kind} at rest"


def _of_messenger(messenger: JsonObject, configuration: JsonObject) -> Deployment:
    """RDMA or TCP, and encryption: the first of the client's modes that the OSDs allow."""
    if "ms_type" not in messenger:
        return Deployment()
    asked = str(messenger["ms_client_mode"]).split()
    allowed = [
        str(values.get("ms_service_mode", "crc secure")) for values in _settings(configuration)
    ]
    modes = {next((mode for mode in asked if mode in mine.split()), "") for mine in allowed}
    return Deployment(
        transport=RDMA if "rdma" in text(messenger, "ms_type") else TCP,
        encrypted=modes == {"secure"} if len(modes) == 1 else None,
    )
