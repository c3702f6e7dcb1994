"""What a DAOS system is and does: facts, health, settling, counters of engines.

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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

import psutil

from fsmatrix.backends.base import Settled, Space
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.levels import Shape
from fsmatrix.backends.daos.tools import Client, Container, Pool, System
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import parse_mountinfo
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, read
from fsmatrix.results.evidence.target import PMEM, RAM

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
