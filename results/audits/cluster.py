"""Audits of the storage system: its health, where the data lies, and who else used it.

Health is that of the time of the measurement; I/O that stood still is told as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fsmatrix.results.audits.audit import Audit, Remark, data_bytes, in_memory, moved, size
from fsmatrix.results.evidence import target
from fsmatrix.results.evidence.stored import Json, inside, positive
from fsmatrix.results.evidence.target import Placement
from fsmatrix.results.record import Phase, RunRecord, window

# checks of Ceph by which it says that operations wait or cannot be done: slow operations have
# waited for 30 s and more (osd_op_complaint_time, mds_op_complaint_time)
BLOCKED = re.compile(
    r"\b(SLOW_OPS|REQUEST_SLOW|REQUEST_STUCK|MDS_SLOW_REQUEST|MDS_SLOW_METADATA_IO"
    r"|PG_AVAILABILITY|OSD_FULL|POOL_FULL|FS_DEGRADED|MDS_ALL_DOWN|FS_WITH_FAILED_MDS)\b"
)
STUDIED = frozenset({"degraded", "recovering"})  # of the attribute `health` of a target
STALL = 1.0  # seconds: far above an operation of a system that works, below any failover
STALL_SHARE = 0.1  # of the window: below, the rate is wrong by less than other audits allow
STALL_TIMES = 100  # the mean latency: a long operation among as long ones is no stall
WAITING = frozenset({"fsync", "close"})  # kinds that wait for what others left in memory

EMPTIED = frozenset({"dropped", "unused", "none"})  # what caches on servers can be said to be
UNCACHED = frozenset({"cold", "bypass"})
THROTTLE_TOLERANCE = 1.05
THROTTLE_SLICE = 0.2  # seconds: blk-throttle lets a slice (0.1 s) pass at once, at either end
AGGREGATED = "server_aggregated_records"
UNEVEN = 1.10  # placement groups of the fullest OSD over the mean


def longest(phase: Phase, *, waiting: bool) -> float | None:
    """Seconds of the longest operation, with those of WAITING if asked; None if not recorded.

    Service times of an open loop count, times from the intended issue do not.
    """
    chosen = [
        kind
        for kind in phase.latency
        if f"{kind}/service" not in phase.latency
        and (waiting or kind.partition("/")[0] not in WAITING)
    ]
    maxima = [phase.latency[kind].maximum for kind in chosen if phase.latency[kind].counts.any()]
    return max(maxima, default=None)


def stalled(phase: Phase, *, waiting: bool) -> bool | None:
    """Whether one operation took a second, and a tenth of the window; None if not recorded."""
    worst = longest(phase, waiting=waiting)
    return None if worst is None else worst >= max(STALL, STALL_SHARE * window(phase))


def storage_unhealthy(record: RunRecord) -> Iterator[Remark]:
    """The storage system said that something was wrong with it."""
    studied = record.coordinates.get("health") in STUDIED
    phases = {phase.name: phase for phase in record.phases}
    for name, sentences in record.evidence.health.items():
        if not sentences:
            continue
        why = _why_invalid(phases.get(name), sentences)
        message = "; ".join(sentences) + (f": {why}" if why else "")
        evidence: dict[str, Json] = {"health": list(sentences), "blocked": bool(why)}
        if studied:
            yield "info", name, f"{message} (declared: it is what is studied)", evidence
        else:
            yield "invalid" if why else "warning", name, message, evidence


def _why_invalid(phase: Phase | None, sentences: Sequence[str]) -> str:
    if any("HEALTH_ERR" in sentence for sentence in sentences):
        return "the system reports an error state"
    blocked = any(BLOCKED.search(sentence) for sentence in sentences)
    if phase is None:  # the run has no number of it
        return "operations were blocked" if blocked else ""
    waited = stalled(phase, waiting=blocked)
    if waited:
        took, seconds = longest(phase, waiting=blocked), window(phase)
        return f"an operation of this run took {took:.3g} s of a window of {seconds:.3g} s"
    if blocked and waited is None:
        return "operations were blocked, and it is not known whether this run's were among them"
    return ""


def io_stalled(record: RunRecord) -> Iterator[Remark]:
    """One operation took a large part of the window, whatever the storage says of itself."""
    for phase in record.phases:
        worst = longest(phase, waiting=False)
        if worst is None or not stalled(phase, waiting=False):
            continue
        kinds = [latency for kind, latency in phase.latency.items() if kind not in WAITING]
        count = sum(int(latency.counts.sum()) for latency in kinds)
        rest = (sum(latency.total for latency in kinds) - worst) / max(count - 1, 1)
        if count > 1 and worst >= STALL_TIMES * rest:
            seconds = window(phase)
            message = (
                f"one operation took {worst:.3g} s, {worst / seconds:.0%} of the window of "
                f"{seconds:.3g} s; the others took {rest:.2g} s on average: I/O stood still"
            )
            yield "warning", phase.name, message, {"longest": worst, "mean_of_others": rest}


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
        "storage-unhealthy",
        2,
        "run",
        storage_unhealthy,
        "wait until the system has recovered and is healthy, then run again; if you study a "
        "degraded system, declare attributes: {health: degraded} (or recovering)",
    ),
    Audit(
        "io-stalled",
        1,
        "phase",
        io_stalled,
        "look for a daemon, path or device that hung then; the rate mostly shows the hang",
    ),
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
