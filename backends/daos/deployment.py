"""How DAOS is deployed, from what its tool tells of a system, a pool and a container."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from fsmatrix.backends.base import Space
from fsmatrix.backends.daos.levels import parse_class
from fsmatrix.backends.daos.options import DOMAINS
from fsmatrix.results.evidence.stored import JsonObject, inside, positive, whole
from fsmatrix.results.evidence.target import (
    CLIENT,
    DURABLE,
    NONE,
    NVME,
    PMEM,
    POLLED,
    RAM,
    RDMA,
    TCP,
    WRITE_BACK,
    Deployment,
    stored_bytes,
)

SCM = f"{PMEM} or {RAM}"  # the tool does not tell which; engines that run here can be looked at
DFUSE = "kernel and dfuse"
_CACHING = {  # durability of a write, data cache
    "site": (WRITE_BACK, "page cache"),
    "write_through": (DURABLE, "page cache"),
    "disabled": (DURABLE, NONE),
}
_RDMA = re.compile(r"verbs|cxi|opx|psm|ucx\+(?:dc|rc|ud|all)")
_TCP = re.compile(r"tcp|sockets")


@dataclass(frozen=True)
class Bulk:
    """What `Deployment` says of the tier that takes bulk data."""

    media: str | None = None
    metadata_media: str | None = None
    fill: float | None = None
    usable_bytes: int | None = None


def of_container(described: JsonObject, oclass: str = "", chunk: int | None = None) -> Deployment:
    """Of a POSIX container spoken to by libdfs, which keeps nothing in the client.

    `described`: what `describe` told (empty: before it is made); `oclass` and `chunk`: as the
    options ask for them.  Data go over the fabric as they are: DAOS protects by certificates
    what its servers are told, not what they store.
    """
    answers = {name: _answer(described, name) for name in ("pool", "container", "properties")}
    container, properties = answers["container"], answers["properties"]
    redundancy = redundancy_of(
        _class(container, "file_object_class") or _class(container, "object_class") or oclass,
        str(properties.get("rd_fac", "")),
    )
    checksum = properties.get("cksum")
    servers = positive(described.get("servers"))
    return Deployment(
        redundancy=redundancy,
        failure_domain=_domain(redundancy, str(properties.get("rd_lvl", ""))),
        durability=DURABLE,
        checksums=None if checksum is None else checksum_of(str(checksum)),
        ec_encoder=None if redundancy is None else CLIENT if redundancy.startswith("EC") else NONE,
        chunk_size=positive(container.get("chunk_size")) or chunk,
        transport=transport_of(str(described.get("provider", ""))),
        encrypted=False,
        data_cache=NONE,
        metadata_cache=NONE,
        storage_nodes=servers,
        **_servers(inside(described, "here"), servers),
        **vars(_space(described, redundancy)),
    )


def of_mount(container: Deployment, caching: str, interception: str) -> Deployment:
    """Of a container that is mounted by DFUSE; what it has itself is `of_container`.

    `caching`: site (dfuse's own: all caches and write-back), write_through, disabled; of anything
    else it is not known.  `interception`: what goes around the mount: ioil (reads and writes),
    pil4dfs (all; it keeps directory entries itself), none.
    """
    durability, data_cache = _CACHING.get(caching, (None, None))
    names: str | None = NONE if caching == "disabled" else DFUSE if data_cache else None
    if interception in ("ioil", "pil4dfs"):
        durability, data_cache = DURABLE, NONE
    return replace(
        container,
        durability=durability,
        data_cache=data_cache,
        metadata_cache="libpil4dfs" if interception == "pil4dfs" else names,
    )


def redundancy_of(oclass: str, factor: str = "") -> str | None:
    """ "none", "replica 2" or "EC 2+1" of an object class; None if it does not tell.

    Without a class a redundancy factor of 0 ("rd_fac0") means none; with another one libdfs
    chooses by itself between copies and an erasure code.
    """
    if not oclass:
        return NONE if factor == "rd_fac0" else None
    try:
        kind = parse_class(oclass)
    except ValueError:
        return None
    if kind.everywhere:
        return None
    if kind.k:
        return f"EC {kind.k}+{kind.m}"
    return NONE if kind.copies == 1 else f"replica {kind.copies}"


def for_data(free: Space, oclass: str) -> Space:
    """How much data of an object class fits into free space; as it is, where that does not tell."""
    stored = stored_bytes(redundancy_of(oclass) or "")
    if free.bytes is None or stored is None:
        return free
    return Space(int(free.bytes / stored), None, "daos pool query, redundancy deducted")


def transport_of(provider: str) -> str | None:
    """RDMA or TCP of a fabric provider: ofi+verbs;ofi_rxm, ofi+tcp, ucx+dc_x."""
    return RDMA if _RDMA.search(provider) else TCP if _TCP.search(provider) else None


def checksum_of(value: str) -> str:
    """The property `cksum`: computed by the client, checked by servers and clients."""
    return NONE if value == "off" else f"{value} end to end"


def _answer(described: JsonObject, name: str) -> JsonObject:
    """What was told; nothing where the tool gave an error."""
    value = inside(described, name)
    return {} if "error" in value else value


def _class(container: JsonObject, name: str) -> str:
    value = str(container.get(name, ""))
    return "" if value == "UNKNOWN" else value


def _domain(redundancy: str | None, level: str) -> str | None:
    """ "rank (1)" as "rank", and "node (2)" as "host", as in the coordinate."""
    name = level.partition(" ")[0]
    return NONE if redundancy == NONE else DOMAINS.get(name, name) or None


def _servers(here: JsonObject, servers: int | None) -> dict[str, Any]:
    """Cores, memory and devices of engines that all run on this kernel, and whose cores they use.

    Engines poll.  One with its storage in memory has that as its one device.
    """
    if not here:
        return {}
    known: dict[str, Any] = {"shared_cores": POLLED if here["running"] else NONE}
    if count := positive(here["engines"]):
        known |= {"server_cores": here["cores"], "server_memory": here["memory"]}
        if here["scm"] == RAM and servers:
            known["devices_per_node"] = count / servers
    return known


def _space(described: JsonObject, redundancy: str | None) -> Bulk:
    """Media, usable bytes and used share of the tier that takes bulk data.

    A new pool has less free than its size, by what its targets reserve: what is used counts
    against what was free when it was seen empty, if it was.  Beside NVMe, memory may hold a copy
    of what is on it only.
    """
    pool = _answer(described, "pool")
    scm = str(inside(described, "here").get("scm") or SCM)
    tiers = inside(pool, "tiers")
    sizes = {name: inside(tiers, name) for name in tiers}
    bulk = next((name for name in ("nvme", "scm") if sizes.get(name, {}).get("total")), None)
    if bulk is None:
        return Bulk()
    total, free = whole(sizes[bulk], "total"), whole(sizes[bulk], "free")
    stored = stored_bytes(redundancy) if redundancy else None
    return Bulk(
        media=NVME if bulk == "nvme" else scm,
        metadata_media=SCM if bulk == "nvme" else scm,
        fill=max(0.0, 1 - free / (positive(described.get("empty_free")) or total)),
        usable_bytes=int(total / stored) if stored else None,
    )
