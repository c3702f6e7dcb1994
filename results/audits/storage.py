"""Audits of where the bytes really came from and went to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fsmatrix.results.audits.audit import (
    ADVICE,
    REACHED_SHARE,
    Audit,
    Remark,
    data_bytes,
    in_memory,
    incompressible,
    moved,
    passes_network,
    reached,
    size,
    synced,
    transferred,
    uncached,
    window,
)
from fsmatrix.results.audits.engines import notes
from fsmatrix.results.evidence.evidence import Limits
from fsmatrix.results.evidence.stored import JsonObject, inside
from fsmatrix.results.evidence.target import DURABLE, MEMORY_TYPES
from fsmatrix.results.record import Phase, RunRecord, bandwidth

UNCACHED = frozenset({"cold", "bypass"})
AGAIN = "give each job more data, or a shorter time, so that it goes over its files once"
WRITTEN_SHARE = REACHED_SHARE
# limits come from data sheets or from other measurements; more than a twentieth above is
# no error of either
LIMIT_TOLERANCE = 1.05


def _declared(record: RunRecord, phase: Phase) -> str:
    cache = record.evidence.cache.get(phase.name)
    return (cache.declared if cache else None) or ""


def read_served_by_cache(record: RunRecord) -> Iterator[Remark]:
    """Uncached reads that moved fewer bytes than they delivered."""
    for phase in record.phases:
        wanted = data_bytes(phase)[0]
        if not wanted or _declared(record, phase) not in UNCACHED or in_memory(record, phase):
            continue
        counters = transferred(record, phase, "read")
        if counters is None or reached(counters, wanted * incompressible(record)) is not False:
            continue
        came = sum(counters.values())
        message = (
            f"declared {_declared(record, phase)}, but of {size(wanted)} read only {size(came)} "
            f"({came / wanted:.0%}) came from the device or the network"
        )
        again = [note.message for note in notes(record, "reread") if note.phase == phase.name]
        message = "; ".join([message, *again])
        cure = AGAIN if again else _buffered_loops(record)
        evidence = counters | {"bytes_read": wanted}
        yield "invalid", phase.name, message, {**evidence, **({ADVICE: cure} if cure else {})}


def _buffered_loops(record: RunRecord) -> str:
    """The command that takes the page cache of images out of the way; "" if none is in it."""
    buffered = [
        f"/dev/{device.get('name')}"
        for device in _devices(record)
        if inside(device, "loop").get("direct_io") is False
    ]
    each = "; ".join(f"losetup --direct-io=on {name}" for name in buffered)
    return f"it came from the page cache of the image: {each}" if each else ""


def read_served_by_servers(record: RunRecord) -> Iterator[Remark]:
    """Cold reads that the servers' devices did not read: their caches had the data."""
    for phase in record.phases:
        wanted = data_bytes(phase)[0]
        counters = moved(record, phase, "server_device_read_bytes")
        if not wanted or not counters or _declared(record, phase) != "cold":
            continue
        came = counters["server_device_read_bytes"]
        if came < REACHED_SHARE * wanted * incompressible(record):
            message = (
                f"of {size(wanted)} read, the servers' devices read only {size(came)} "
                f"({came / wanted:.0%}): the rest came from the servers' caches"
            )
            yield "warning", phase.name, message, counters | {"bytes_read": wanted}


def cache_state_not_reached(record: RunRecord) -> Iterator[Remark]:
    """The state that the system showed is not the declared one."""
    caches = record.evidence.cache
    for name, cache in caches.items():
        if cache.declared and cache.state not in (cache.declared, "memory"):
            state = cache.state or "nothing"
            message = f"{name}: declared {cache.declared}, the system showed {state}"
            yield "warning", name, message, {"method": cache.method, "facts": cache.facts}
    for phase in record.phases:
        if _declared(record, phase) != "cold":
            continue
        cache = caches[phase.name]
        kept = (cache.facts or {}).get("metadata_caches") == "kept"
        if kept and _mostly_metadata(phase):
            message = "declared cold, but inodes and directory entries were still in memory"
            yield "warning", phase.name, message, {"method": cache.method}


def _mostly_metadata(phase: Phase) -> bool:
    """Whether reads and writes are at most half of the operations."""
    counts = {kind: int(latency.counts.sum()) for kind, latency in phase.latency.items()}
    data = counts.get("read", 0) + counts.get("write", 0)
    return 0 < sum(counts.values()) >= 2 * data


def evidence_missing(record: RunRecord) -> Iterator[Remark]:
    """Uncached reads or synced writes of which no counter tells where the bytes were."""
    for phase in record.phases:
        if in_memory(record, phase):
            continue
        declared = _declared(record, phase)
        read, written = data_bytes(phase)
        if read and declared in UNCACHED:
            yield from _unproven(phase, declared, read, transferred(record, phase, "read"))
        looked = record.evidence.counters.get(phase.name)
        if written and synced(phase) and looked and not transferred(record, phase, "written"):
            message = "synced, but no counter shows whether the bytes reached any storage"
            yield "warning", phase.name, message, {}


def _unproven(
    phase: Phase, declared: str, read: float, counters: Mapping[str, float] | None
) -> Iterator[Remark]:
    if counters is None:
        message = f"declared {declared}, but no counter shows where the bytes came from"
        yield "warning", phase.name, message, {}
    elif reached(counters, read) is None:
        came = size(sum(counters.values()))
        message = (
            f"declared {declared}; for {size(read)} read, the device or the network moved {came}: "
            "others use it too, so its counters prove nothing"
        )
        yield "warning", phase.name, message, {**counters, "bytes_read": read}


def memory_reference(record: RunRecord) -> Iterator[Remark]:
    """The files lie in memory: a declared reference, or no storage at all."""
    caches = record.evidence.cache.items()
    names = sorted(name for name, cache in caches if cache.state == "memory")
    if names and record.coordinates.get("reference"):
        message = "the files lie in memory: a reference, not a storage system"
        yield "info", "", message, {"phases": names}
    elif names:
        message = "the files lie in memory, and the target is not declared as a reference"
        yield "invalid", "", message, {"phases": names}
    elif images := _images_in_memory(record):
        message = f"the file system lies on an image in memory ({', '.join(images)})"
        yield "warning", "", f"{message}: what it costs beside storage was measured", {}


def _images_in_memory(record: RunRecord) -> list[str]:
    """Types of the file systems in memory that hold images below the target."""
    types = {str(inside(device, "loop").get("filesystem")) for device in _devices(record)}
    return sorted(types.intersection(MEMORY_TYPES))


def _devices(record: RunRecord) -> list[JsonObject]:
    """What is known of the block devices below the target."""
    devices = inside(record.environment, "target").get("devices")
    return [inside(device) for device in devices] if isinstance(devices, list | tuple) else []


def write_not_flushed(record: RunRecord) -> Iterator[Remark]:
    """Writes that the window's end found in memory still, as far as counters tell.

    Where a write that returned is durable there is nothing to flush: only counters can object.
    """
    durable = inside(record.environment, "target", "deployment").get("durability") == DURABLE
    for phase in record.phases:
        wanted = data_bytes(phase)[1]
        if not wanted or in_memory(record, phase):
            continue
        counters = transferred(record, phase, "written")
        if durable and counters is None:
            continue
        went = sum(counters.values()) if counters else 0.0
        if counters and went >= WRITTEN_SHARE * wanted * incompressible(record):
            continue
        in_window, direct = synced(phase), uncached(record, phase)
        if (in_window or direct) and counters is None:
            continue  # evidence-missing
        reason = "and no fsync was requested: write-back not flushed"
        if in_window or direct:
            reason = "although it was synced" if in_window else "although it was O_DIRECT"
        elif asked := phase.facts.get("sync_requested"):
            reason = f"and {asked} syncs only a part of it, or after the window"
        elif record.evidence.engine is not None and "synced" not in phase.facts:
            reason = "and the output does not say whether it was synced"
        shown = f"{size(went)} ({went / wanted:.0%})" if counters else "an unknown part"
        about = "about " * bool(phase.facts.get("shares_estimated"))
        message = (
            f"of {about}{size(wanted)} written, {shown} left memory inside the window, {reason}"
        )
        evidence = {**(counters or {}), "bytes_written": wanted, "fsync": in_window}
        yield "warning", phase.name, message, evidence


def _limits(record: RunRecord) -> Limits:
    return record.evidence.limits or Limits(sources={})


def _faster(
    record: RunRecord,
    limit: float | None,
    limit_name: str,
    what: str,
    rate: Callable[[float, float], float],
) -> Iterator[Remark]:
    """`rate` makes of bytes read and bytes written those that the limit holds for."""
    if not limit:
        return
    for phase in record.phases:
        read, written = data_bytes(phase)
        if in_memory(record, phase):
            continue
        if _declared(record, phase) == "warm":
            read = 0.0  # meant to come from memory
        seconds, through = window(phase), rate(read, written)
        if seconds <= 0 or through <= LIMIT_TOLERANCE * limit * seconds:
            continue
        message = f"{size(through / seconds)}/s, but the {what} cannot move more than "
        evidence = {"bandwidth": through / seconds, limit_name: limit}
        yield "invalid", phase.name, f"{message}{size(limit)}/s", evidence


def faster_than_device(record: RunRecord) -> Iterator[Remark]:
    """More bytes per second than the devices can move together."""
    limit = _limits(record).device_bytes_per_second
    name, what = "device_bytes_per_second", "devices together"
    yield from _faster(record, limit, name, what, lambda read, written: read + written)


def faster_than_network(record: RunRecord) -> Iterator[Remark]:
    """More bytes per second, one way, than the clients' network can move.

    Only of phases whose bytes pass the network: as link speeds tell nothing of a local disk.
    """
    passing = replace(
        record,
        phases=tuple(phase for phase in record.phases if passes_network(record, phase)),
    )
    limit = _limits(record).network_bytes_per_second
    yield from _faster(passing, limit, "network_bytes_per_second", "clients' network", max)


# What the same files gave twice in one run.


# random reads -> sequential reads of the same files, in the same run
RANDOM_READS: Mapping[str, str] = {
    "ior-rnd4K-easy-read": "ior-easy-read",  # IO500's own names, of an import
    "read-ior-rnd4K-easy": "read-ior-easy",  # of the workload io500
}
# A device, a network and a client do no better with small random blocks than with large
# sequential ones; two measurements of one rate differ, a tenth is the noise of a good system.
FASTER = 1.1


def random_faster_than_sequential(record: RunRecord) -> Iterator[Remark]:
    """Random reads that beat sequential reads of the same files."""
    rates = {phase.name: bandwidth(phase) for phase in record.phases}
    for name, other in RANDOM_READS.items():
        random, sequential = rates.get(name, 0.0), rates.get(other, 0.0)
        if not (sequential > 0 and random > FASTER * sequential):
            continue
        message = (
            f"{name} is {random / sequential:.3g} times as fast as {other} of the same files: "
            "the data probably came from a cache, or fits into one"
        )
        yield "warning", name, message, {"random": random, "sequential": sequential}


AUDITS = (
    Audit(
        "read-served-by-cache",
        2,
        "phase",
        read_served_by_cache,
        "find the cache (page cache of an image file, client, server, a compressing or "
        "deduplicating store) and empty it, give a job that reads its data twice more of it, or "
        "declare the state warm",
    ),
    Audit(
        "read-served-by-servers",
        1,
        "phase",
        read_served_by_servers,
        "empty the servers' caches too (drop_server_caches), or read more than they hold",
    ),
    Audit(
        "cache-state-not-reached",
        2,
        "run",
        cache_state_not_reached,
        "see the method and its facts; as root, set the method of cold to drop_caches",
    ),
    Audit(
        "evidence-missing",
        2,
        "phase",
        evidence_missing,
        "compare with a working set larger than the memory of clients and servers together",
    ),
    Audit(
        "memory-reference",
        2,
        "run",
        memory_reference,
        "do not rank it among storage systems",
    ),
    Audit(
        "write-not-flushed",
        2,
        "phase",
        write_not_flushed,
        "sync at the end (pattern: fsync: end; fio: end_fsync: true; IOR: fsync: true), or write "
        "more than memory; blocks that were written several times reach the device once",
    ),
    Audit(
        "faster-than-device",
        1,
        "phase",
        faster_than_device,
        "a cache or a wrong limit: check both before using the number",
    ),
    Audit(
        "faster-than-network",
        2,
        "phase",
        faster_than_network,
        "a client's cache or a wrong limit: check both before using the number",
    ),
    Audit(
        "random-faster-than-sequential",
        1,
        "phase",
        random_faster_than_sequential,
        "treat it as the speed of a cache (clients' or servers') unless the devices' counters show "
        "otherwise; read more of the files than the caches hold",
    ),
)
