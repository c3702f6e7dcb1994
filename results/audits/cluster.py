"""Audits of a storage cluster: where the data lies, and who else used it."""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.base import Audit, Remark, data_bytes, in_memory, moved, size
from fsmatrix.results.evidence import target
from fsmatrix.results.evidence.target import Placement
from fsmatrix.results.evidence.values import inside, positive
from fsmatrix.results.record import RunRecord, window

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
    of_metadata = {name for name, pool in target.pools(record.environment) if pool.metadata}
    for pool, place in _places(record):
        if moves_data and pool in of_metadata:
            continue
        ratio = place.max_over_mean or 0.0
        if ratio > UNEVEN:
            message = (
                f"the fullest OSD of pool {pool} has {ratio:.2f} times the mean number of "
                "placement groups: it slows the others down, not equally at all levels"
            )
            yield "warning", "", message, {"pool": pool, **place.document()}


def shared_machine(record: RunRecord) -> Iterator[Remark]:
    """Storage nodes that are one machine."""
    if inside(record.environment, "realised").get("storage_nodes") == "emulated":
        return
    for pool, place in _places(record):
        hosts, machines = list(place.hosts or ()), list(place.machines or ())
        if 0 < len(machines) < len(hosts):
            message = (
                f"the {len(hosts)} storage hosts of pool {pool} share {len(machines)} machine"
                f"{'s' if len(machines) > 1 else ''} ({', '.join(machines)}): they are emulated"
            )
            yield "warning", "", message, {"pool": pool, "hosts": hosts, "machines": machines}


def fits_server_memory(record: RunRecord) -> Iterator[Remark]:
    """Uncached reads of no more bytes than the servers have memory.

    Silent where the servers' caches were emptied or keep no data, and where the servers' devices
    tell what they read (`read-served-by-servers`).
    """
    memory = positive(inside(record.environment, "target", "deployment").get("server_memory"))
    if memory is None:
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
            f"{size(wanted)} were read, but the servers have {size(memory)} of memory: the data "
            "may have come from it"
        )
        yield "warning", phase.name, message, {"bytes_read": wanted, "server_memory": memory}


def faster_than_emulated(record: RunRecord) -> Iterator[Remark]:
    """More operations per second than throttled devices and their adapter let through.

    Then the limits were not those of the ranks.  Of phases with O_DIRECT, where each operation is
    one of a device, or more.
    """
    attached = target.of_environment(record.environment)
    emulated, numbers = attached.emulated, attached.device_numbers
    if emulated is None or not numbers:
        return
    for phase in record.phases:
        cache, seconds = record.evidence.cache.get(phase.name), window(phase)
        if cache is None or cache.declared != "bypass" or seconds <= 0:
            continue
        for kind in ("read", "write"):
            done = int(phase.latency[kind].counts.sum()) if kind in phase.latency else 0
            name = f"{kind}_operations"
            limit = min(emulated.adapter_limits[name], len(numbers) * emulated.device_limits[name])
            if done <= THROTTLE_TOLERANCE * limit * (seconds + THROTTLE_SLICE):
                continue
            message = (
                f"{done / seconds:.0f} {kind}s per second, but the emulated devices allow {limit}: "
                "the limits did not apply to these processes"
            )
            yield "invalid", phase.name, message, {"operations": done, "limit_per_second": limit}


def parallel_jobs(record: RunRecord) -> Iterator[Remark]:
    """Jobs of one submission were allowed to use the storage system at the same time."""
    variables = inside(record.environment, "machine", "variables")
    allowed = str(variables.get("FSMATRIX_PARALLEL_JOBS", "1"))
    if allowed.isdecimal() and int(allowed) > 1:
        message = (
            f"up to {allowed} jobs of this campaign were allowed to use the storage system at "
            "once: they may have slowed each other down"
        )
        yield "warning", "", message, {"parallel_jobs": int(allowed)}


def server_aggregation(record: RunRecord) -> Iterator[Remark]:
    """Servers tidied up while they were measured: space of removed or overwritten data."""
    for phase in record.phases:
        count = (moved(record, phase, AGGREGATED) or {}).get(AGGREGATED, 0.0)
        if count > 0:
            message = (
                f"meanwhile the servers merged or removed {count:.0f} records of the pool, to "
                "reclaim the space of removed or overwritten data"
            )
            yield "info", phase.name, message, {AGGREGATED: count}


def _places(record: RunRecord) -> Iterator[tuple[str, Placement]]:
    """Where the pool of the level lies, or else those of the target."""
    if (level := target.of_environment(record.environment).level) is not None:
        yield level.pool, level.placement
        return
    for name, pool in target.pools(record.environment):
        if pool.placement is not None:
            yield name, pool.placement


AUDITS = (
    Audit(
        "placement-imbalance",
        1,
        "run",
        placement_imbalance,
        "use more placement groups (pg_num), or the balancer in upmap mode",
    ),
    Audit(
        "shared-machine",
        1,
        "run",
        shared_machine,
        "declare storage_nodes as emulated: such levels show that it works, not how it scales",
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
        "use a longer settle.timeout, or overwrite less beforehand; under steady overwriting it is "
        "part of the work",
    ),
)
