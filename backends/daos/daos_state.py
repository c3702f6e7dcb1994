"""What a DAOS system is and does: deployment, facts, health, settling, counters of engines.

How it is deployed is what its tool tells of a system, a pool and a container.

Health.  A look starts a tool, which takes CPU time from clients and engines on its machine.  So
none is taken while a step is timed: each change of the pool map (targets excluded, drained,
reintegrated; a rebuild follows) raises its version, and that is compared with the version at
attachment.

Settling is a bounded wait until a pool has done what earlier runs left it to do.  Quiet: no
rebuild, and free space that grows no more.  The space of what was removed or overwritten comes back
when the engines aggregate, half a minute late: where less than half of what was free at attachment
is left, the next run may need it, and the wait is so long.  What an attachment leaves comes back in
the next one: before anything is attached the wait is for that.

Counters.  Engines count clients' bytes where every engine is on this machine's loopback: no
interface tells them apart from other traffic.  `daos_metrics` reads the shared memory of a local
engine, which takes its owner's or root's rights; no engine and no client is asked.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil

from fsmatrix.backends.contract import Settled, Space
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.daos_options import DOMAINS
from fsmatrix.backends.daos.levels import Shape, parse_class
from fsmatrix.backends.daos.tools import Client, Container, Pool, System
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import parse_mountinfo
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, inside, positive, read, whole
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

# of a container; owner, group and access list stay private
PROPERTIES = frozenset(
    {
        *("cksum", "cksum_size", "srv_cksum", "compression", "encryption"),
        *("dedup", "dedup_threshold", "ec_cell_sz", "ec_pda", "rp_pda", "rd_fac", "rd_lvl"),
        *("perf_domain", "layout_type", "layout_version", "obj_version", "global_version"),
        "status",
    }
)
_HOST = re.compile(r"://(?:\[([^\]]+)\]|([^:/\[\]]+))")
LONGEST_LOOK = 25.0  # seconds for a look; the conductor waits 30
QUIET = frozenset({"idle", "done"})  # states of a rebuild
PAUSE = 0.5  # seconds between two looks
LATE = 40.0  # seconds without growth after which no more space is expected: 35 were seen
LONGEST_WAIT = 120.0  # seconds before an attachment, however it grows
SCARCE = 0.5  # share of what was free at attachment
_most: dict[str, int] = {}  # UUID of a pool -> bytes free in it, the most that this process saw
METRICS_TOOL = "daos_metrics"
MOST_ENGINES = 8
METRICS_TIMEOUT = 5.0  # seconds for each engine: a look stands beside a measurement
REST = 30.0  # seconds after a failed look in which none is tried
# counter -> metrics of a pool that are added up
_SUMS = {
    "network_received_bytes": ("xferred/fetch",),
    "network_sent_bytes": ("xferred/update",),
    "server_aggregated_records": (
        *("vos_aggregation/deleted_sv", "vos_aggregation/deleted_ev"),
        *("vos_aggregation/merged_recs", "vos_gc/ev_del", "vos_gc/sv_del"),
    ),
}
_resting: dict[str, float] = {}  # UUID of a pool -> until when
ENGINE = "daos_engine"
ENGINE_PROGRAMS = ("daos_server", ENGINE)
# of the addresses of a network namespace, in /proc/<pid>/net/fib_trie
_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


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


@dataclass(frozen=True, kw_only=True)
class AtAttachment(Stored):
    """A pool when it was attached: in the details of accesses."""

    pool_uuid: str
    pool_version: int  # of its map: changes with its targets
    engines: int
    free: int | None  # bytes

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """As it was told then; StoredError if the details do not hold it."""
        return read(cls, details, "details")


def at_attachment(pool: Pool) -> AtAttachment:
    """A pool that is attached now."""
    return AtAttachment(
        pool_uuid=pool.uuid,
        pool_version=pool.version,
        engines=pool.total_engines,
        free=free_space(pool).bytes,
    )


def pool_facts(pool: Pool) -> dict[str, Json]:
    """State, size and space of a pool, bytes by tier."""
    facts = pool.model_dump(exclude={"tier_stats"}, exclude_none=True)
    return facts | {"tiers": {tier.media_type: tier.sizes for tier in pool.tiers}}


def container_facts(container: Container | None) -> dict[str, Json]:
    """Layout and object classes of a container; BackendError if it is not there."""
    if container is None:
        raise BackendError("the container does not exist")
    return container.model_dump()


def known_properties(properties: JsonObject) -> dict[str, Json]:
    """Those of a container's properties that are recorded."""
    return {name: value for name, value in properties.items() if name in PROPERTIES}


def free_space(pool: Pool) -> Space:
    """Free bytes of the tier that takes bulk data: NVMe, or SCM where there is none."""
    sizes = {tier.media_type: tier.free for tier in pool.tiers if tier.total}
    return Space(
        sizes.get("nvme", sizes.get("scm")), None, "daos pool query, redundancy not deducted"
    )


def servers(system: System) -> list[str]:
    """Addresses of the engines, each once; "" stands for those that cannot be read."""
    matches = (_HOST.search(engine.uri) for engine in system.rank_uris or ())
    return sorted({match[1] or match[2] if match else "" for match in matches})


def shape(pool: Pool, system: System) -> Shape:
    """What a pool lies on.  Engines at one address share a server; others may, and nobody tells."""
    places = servers(system)
    engines = len(places) if places and "" not in places else pool.total_engines
    return Shape(min(engines, pool.total_engines), pool.total_engines, pool.total_targets)


def over_tcp(provider: str) -> bool:
    """Whether clients use this kernel's network, which RDMA (verbs, cxi) passes by."""
    return re.search(r"\btcp|\bsockets", provider) is not None


def is_rebuilding(pool: Pool) -> bool:
    """Whether a rebuild goes on; False if the pool does not say."""
    return pool.rebuild is not None and pool.rebuild.state not in QUIET


def ailments(pool: Pool) -> list[str]:
    """What is wrong with a pool now, one sentence each."""
    sentences = []
    if pool.state not in ("", "Ready"):
        sentences.append(f"the pool is in state {pool.state}")
    if pool.disabled_targets:
        sentences.append(f"{pool.disabled_targets} of {pool.total_targets} targets are disabled")
    for what, ranks in (("disabled", pool.disabled_ranks), ("dead", pool.dead_ranks)):
        if ranks:
            sentences.append(f"ranks that are {what}: {', '.join(map(str, ranks))}")
    if is_rebuilding(pool) and pool.rebuild:
        sentences.append(f"a rebuild is going on ({pool.rebuild.state})")
    if pool.rebuild and pool.rebuild.status:
        sentences.append(f"the last rebuild ended with status {pool.rebuild.status}")
    return sentences


def health(details: JsonObject) -> list[str]:
    """What is wrong with the pool and container of an access, or was since its attachment."""
    place, began = Place.of(details), time.monotonic()
    try:
        pool = place.client.within(LONGEST_LOOK).pool_query(place.pool)
        left = LONGEST_LOOK - (time.monotonic() - began)
        gone = place.within(left).gone() if left > 1 else ""
    except BackendError as error:
        return [str(error)]
    sentences = ailments(pool)
    before = AtAttachment.of(details).pool_version
    if pool.version != before:
        sentences.append(
            "since it was attached, targets of the pool were excluded or came back (the pool map's "
            f"version was {before} and is {pool.version})"
        )
    return [*sentences, gone] if gone else sentences


def returned(client: Client, label: str, progress: Callable[[str], None]) -> Pool:
    """A pool, once the space of what this process destroyed in it has come back, or no more does.

    BackendError as of `Client.pool_query`.
    """
    pool, began = client.pool_query(label), time.monotonic()
    free, grown = free_space(pool).bytes, began
    most = _most[pool.uuid] = max(_most.get(pool.uuid, 0), free or 0)
    if is_scarce(free, most):
        progress(
            f"pool {label}: waiting for space that comes back, {free} of {most} bytes are free"
        )
    while is_scarce(free, most) and (now := time.monotonic()) - began < LONGEST_WAIT:
        if now - grown >= LATE:
            break
        time.sleep(PAUSE)
        pool, before = client.pool_query(label), free
        free = free_space(pool).bytes
        if before is not None and free is not None and free > before:
            grown = time.monotonic()
    return pool


def settle(details: JsonObject, timeout: float) -> Settled:
    """Wait at most about `timeout` seconds, and for one answer of the tool."""
    place, began = Place.of(details), time.monotonic()
    at_attachment = AtAttachment.of(details).free
    least, grown = None, began  # free space that was seen last, and when it had grown
    while True:
        try:
            pool = place.client.pool_query(place.pool)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        now, free = time.monotonic(), free_space(pool).bytes
        growing = least is not None and free is not None and free > least
        grown = now if growing else grown
        scarce = is_scarce(free, at_attachment)
        rebuilding = is_rebuilding(pool)
        quiet = not rebuilding and not growing and now - grown >= (LATE if scarce else 0.0)
        state: JsonObject = {
            "rebuild": pool.rebuild.state if pool.rebuild else "not known",
            "free": {tier.media_type: tier.free for tier in pool.tiers},
            "free_grows": growing,
            "space_is_scarce": scarce,
        }
        # two looks tell whether it grows
        if (quiet and least is not None) or now - began + PAUSE >= timeout:
            return Settled(quiet, now - began, state)
        least = free
        time.sleep(PAUSE)


def is_scarce(free: int | None, at_attachment: int | None) -> bool:
    """Whether what is free now may be too little for a run; False where it is not told."""
    return free is not None and at_attachment is not None and free < SCARCE * at_attachment


def counters(details: JsonObject) -> dict[str, float]:
    """Of the engines of an access's pool, all of which are here.

    Nothing while a step is sampled (outside the main thread): a look starts a program.  What
    cannot be told is absent.
    """
    attached = AtAttachment.of(details)
    pool, engines = attached.pool_uuid, attached.engines
    if threading.current_thread() is not threading.main_thread() or engines > MOST_ENGINES:
        return {}
    if time.monotonic() < _resting.get(pool, 0.0) or tools.find(METRICS_TOOL) is None:
        return {}
    try:
        metrics = [_metrics(index, pool) for index in range(engines)]
    except ToolError:
        _resting[pool] = time.monotonic() + REST
        return {}
    totals = {
        name: sum(of_engine.get(metric, 0.0) for of_engine in metrics for metric in parts)
        for name, parts in _SUMS.items()
    }
    return {**totals, "network_counting_engines": float(engines)}


def _metrics(index: int, pool: str) -> dict[str, float]:
    """Metric of the pool -> its sum over the targets of one engine."""
    argv = [METRICS_TOOL, f"--srv_idx={index}", "--csv"]
    values = parse_metrics(tools.run(argv, deadline=METRICS_TIMEOUT).stdout.splitlines(), pool)
    if not values:
        raise ToolError(f"{METRICS_TOOL} reports nothing about pool {pool}")
    return values


def parse_metrics(lines: Iterable[str], pool: str) -> dict[str, float]:
    """Sums over targets, of lines as "ID: 0/pool/<uuid>/xferred/fetch/tgt_0,248"."""
    sums: dict[str, float] = {}
    for row in csv.reader(lines):
        before, _, name = row[0].partition(f"/pool/{pool}/") if row else ("", "", "")
        metric, _, target = name.rpartition("/")
        if not before.startswith("ID: ") or not target.startswith("tgt_") or len(row) < 2:
            continue
        if row[1].isdecimal():
            sums[metric] = sums.get(metric, 0.0) + float(row[1])
    return sums


def engines_here(addresses: Iterable[str]) -> list[int]:
    """Pids of the servers and engines whose network has one of these IPv4 addresses.

    A loopback address is of this process's own network only: every network has it.
    """
    return sorted(pid for pid, _, _ in _found(frozenset(addresses)))


@dataclass(frozen=True)
class SeenEngine:
    """What can be seen of a system's servers on this kernel."""

    running: bool  # any of its engines runs here
    scm: str = ""  # storage class memory of all its engines: RAM or PMem; "": not to be seen
    engines: int = 0  # where all of them run here, as the next two
    cores: int | None = None
    memory: int | None = None  # bytes


def engines_seen(addresses: Iterable[str]) -> SeenEngine:
    """Of the system whose servers have these addresses.

    All of it runs here if an engine at each of them does; then its cores and memory are this
    machine's, which clients share.
    """
    every = frozenset(addresses)
    engines = [(pid, its) for pid, program, its in _found(every) if program == ENGINE]
    reached = frozenset[str]().union(*(its for _, its in engines))
    if not engines or reached != every:
        return SeenEngine(bool(engines))
    media = {_medium(Path("/proc", str(pid))) for pid, _ in engines}
    memory = psutil.virtual_memory().total
    scm = media.pop() if len(media) == 1 else ""
    return SeenEngine(True, scm, len(engines), os.cpu_count(), memory)


def _found(addresses: frozenset[str]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """Pid, program and addresses of each server and engine of this kernel that has any of them."""
    own = Path("/proc/self/ns/net").readlink()
    reached = frozenset(address for address in addresses if not address.startswith("127."))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, a thread of the kernel, or another user's
            program = (entry / "exe").readlink().name
            if program not in ENGINE_PROGRAMS:
                continue
            wanted = addresses if (entry / "ns/net").readlink() == own else reached
            its = wanted & set(_ADDRESS.findall((entry / "net/fib_trie").read_text()))
            if its:
                yield int(entry.name), program, its


def _medium(process: Path) -> str:
    """Of the engine of a folder of /proc: its argument --storage, or -s, is a mount point."""
    try:
        words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
        mounted = parse_mountinfo((process / "mountinfo").read_text())
    except OSError:
        return ""
    points = {after for word, after in pairwise(words) if word in ("-s", "--storage")}
    for mount in mounted:
        if mount.point in points:
            pmem = Path(mount.source).name.startswith("pmem")
            return RAM if mount.fstype == "tmpfs" else PMEM if pmem else ""
    return ""
