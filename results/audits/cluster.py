"""Audits of a storage cluster: where the data lies, and who else used it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fsmatrix.results.audits.base import Audit, Remark, data_bytes, in_memory, moved, size
from fsmatrix.results.metrics import window
from fsmatrix.results.record import RunRecord

EMPTIED = frozenset({"dropped", "unused", "none"})  # what caches on servers can be said to be
UNCACHED = frozenset({"cold", "bypass"})
THROTTLE_TOLERANCE = 1.05
THROTTLE_SLICE = 0.2  # seconds: blk-throttle lets a slice (0.1 s) pass at once, at either end
AGGREGATED = "server_aggregated_records"
UNEVEN = 1.10  # placement groups of the fullest OSD over the mean


def placement_imbalance(record: RunRecord) -> Iterator[Remark]:
    """Some devices have more to do than others, by chance.

    A file system's pool of metadata says so only for runs that move no data.
    """
    moves_data = any(int(phase.bytes.sum()) for phase in record.phases)
    pools = record.environment.get("target", {}).get("ceph", {}).get("pools", {})
    for pool, place in _places(record):
        facts = pools.get(pool)
        if moves_data and isinstance(facts, Mapping) and facts.get("metadata"):
            continue
        ratio = place.get("max_over_mean", 0)
        if ratio > UNEVEN:
            message = (
                f"the fullest OSD of pool {pool} has {ratio:.2f} times the mean number of "
                "placement groups: it limits the others, and not in the same way at all levels"
            )
            yield "warning", "", message, {"pool": pool, **place}


def shared_machine(record: RunRecord) -> Iterator[Remark]:
    """Storage nodes that are one machine."""
    if record.environment.get("realised", {}).get("storage_nodes") == "emulated":
        return
    for pool, place in _places(record):
        hosts, machines = place.get("hosts", ()), place.get("machines", ())
        if 0 < len(machines) < len(hosts):
            message = (
                f"the {len(hosts)} storage hosts of pool {pool} are {len(machines)} machine"
                f"{'s' if len(machines) > 1 else ''} ({', '.join(machines)}): they are emulated"
            )
            yield "warning", "", message, {"pool": pool, "hosts": hosts, "machines": machines}


def fits_server_memory(record: RunRecord) -> Iterator[Remark]:
    """Uncached reads of no more bytes than the servers have memory.

    Silent where the servers' caches were emptied or keep no data, and where the servers' devices
    tell what they read (`read-served-by-servers`).
    """
    memory = record.environment.get("target", {}).get("deployment", {}).get("server_memory")
    if not isinstance(memory, int) or not memory:
        return
    for phase in record.phases:
        wanted, cache = data_bytes(phase)[0], record.evidence.cache.get(phase.name)
        if not wanted or wanted > memory or cache is None or in_memory(record, phase):
            continue
        cache_facts = cache.facts or {}
        emptied = cache_facts.get("server_data_caches", cache_facts.get("server_caches")) in EMPTIED
        if cache.declared not in UNCACHED or emptied:
            continue
        if moved(record, phase, "server_device_read_bytes"):
            continue
        message = (
            f"{size(wanted)} were read, and the servers have {size(memory)} of memory: the reads "
            "may have come from there"
        )
        yield "warning", phase.name, message, {"bytes_read": wanted, "server_memory": memory}


def faster_than_emulated(record: RunRecord) -> Iterator[Remark]:
    """More operations per second than throttled devices and their adapter let through.

    Then the limits were not those of the ranks.  Of phases with O_DIRECT, where each operation is
    one of a device, or more.
    """
    target = record.environment.get("target", {})
    emulated, numbers = target.get("emulated"), target.get("device_numbers")
    if not isinstance(emulated, Mapping) or not numbers:
        return
    for phase in record.phases:
        cache, seconds = record.evidence.cache.get(phase.name), window(phase)
        if cache is None or cache.declared != "bypass" or seconds <= 0:
            continue
        for kind in ("read", "write"):
            done = int(phase.latency[kind].counts.sum()) if kind in phase.latency else 0
            name = f"{kind}_operations"
            limit = min(
                emulated["adapter_limits"][name], len(numbers) * emulated["device_limits"][name]
            )
            if done <= THROTTLE_TOLERANCE * limit * (seconds + THROTTLE_SLICE):
                continue
            message = (
                f"{done / seconds:.0f} {kind}s per second, and {limit} are what the emulated "
                "devices let through: the limits were not in force for these processes"
            )
            yield "invalid", phase.name, message, {"operations": done, "limit_per_second": limit}


def parallel_jobs(record: RunRecord) -> Iterator[Remark]:
    """Jobs of one submission were allowed to use the storage system at the same time."""
    variables = record.environment.get("machine", {}).get("variables", {})
    allowed = str(variables.get("FSMATRIX_PARALLEL_JOBS", "1"))
    if allowed.isdecimal() and int(allowed) > 1:
        message = (
            f"up to {allowed} jobs of this campaign were allowed to use the storage system at "
            "once: they may have measured each other"
        )
        yield "warning", "", message, {"parallel_jobs": int(allowed)}


def server_aggregation(record: RunRecord) -> Iterator[Remark]:
    """Servers tidied up while they were measured: space of removed or overwritten data."""
    for phase in record.phases:
        count = (moved(record, phase, AGGREGATED) or {}).get(AGGREGATED, 0.0)
        if count > 0:
            message = (
                f"the servers merged or removed {count:.0f} records of the pool meanwhile: they "
                "reclaimed the space of what was removed or overwritten"
            )
            yield "info", phase.name, message, {AGGREGATED: count}


def _places(record: RunRecord) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where the pool of the level lies, or else those of the target."""
    target = record.environment.get("target", {})
    if "level" in target:
        yield target["level"]["pool"], target["level"]["placement"]
        return
    pools = target.get("ceph", {}).get("pools", {})
    for name, pool in pools.items():
        if isinstance(pool, Mapping) and "placement" in pool:
            yield name, pool["placement"]


AUDITS = (
    Audit(
        "placement-imbalance",
        1,
        "run",
        placement_imbalance,
        "more placement groups (pg_num), or the balancer in its upmap mode",
    ),
    Audit(
        "shared-machine",
        1,
        "run",
        shared_machine,
        "declare storage_nodes as emulated: such levels show function, not scaling",
    ),
    Audit(
        "fits-server-memory",
        1,
        "phase",
        fits_server_memory,
        "read more than the servers have memory, or empty their caches (drop_server_caches)",
    ),
    Audit(
        "faster-than-emulated",
        1,
        "phase",
        faster_than_emulated,
        "start all ranks in one cgroup, as mpirun does; a batch system may give each its own",
    ),
    Audit(
        "parallel-jobs",
        1,
        "run",
        parallel_jobs,
        "submit without --parallel, or give targets that share nothing a `system` of their own",
    ),
    Audit(
        "server-aggregation",
        1,
        "phase",
        server_aggregation,
        "a longer settle.timeout, or fewer overwrites before; it belongs to steady overwriting",
    ),
)
