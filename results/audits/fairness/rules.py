"""What each fact of a deployment means for speed: whom a difference favours, and why.

A rule has an order only where more of a fact is always cheaper or faster by itself.  Where a
difference helps one kind of work and harms another (the size of chunks, who encodes), it says so
and favours nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsmatrix.results.evidence import deployment as d
from fsmatrix.results.units import format_size

Order = Callable[[Any], float | None]  # the larger, the more favoured; None: no order
DOORS = ("caching", "interception")  # factors of DFUSE
MEDIA = (d.HDD, d.SSD, d.NVME, d.PMEM, d.RAM)  # the slowest first


def _fewest_bytes(redundancy: str) -> float | None:
    stored = d.stored_bytes(redundancy)
    return None if stored is None else -stored


def _medium(media: str) -> float | None:
    return float(MEDIA.index(media)) if media in MEDIA else None


def _checksum(kind: str) -> float | None:
    if kind == d.NONE:
        return 0.0
    return next(
        (-cost for end, cost in ((" at rest", 1.0), (" end to end", 2.0)) if kind.endswith(end)),
        None,
    )


def _least(value: float) -> float:
    return -float(value)


def _is(best: Any) -> Order:
    return lambda value: float(value == best)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _bytes(value: float) -> str:
    return format_size(int(value), 1)


def _number(value: float) -> str:
    return f"{value:g}"


@dataclass(frozen=True)
class Rule:
    """One fact: its words, its order, and how far values may lie apart and still be equal."""

    name: str
    title: str
    why: str  # why it favours, or why it matters although it favours nobody
    order: Order | None = None
    ratio: float = 1.0  # largest value / smallest
    apart: float = 0.0  # largest value - smallest
    shown: Callable[[Any], str] = str
    factors: tuple[str, ...] = ()  # of a campaign that varies it on purpose, beside its own name
    best: Any = None  # a value that none is better than, also one without an order


RULES: tuple[Rule, ...] = (
    Rule(
        "redundancy", "Redundancy",
        "a write stores fewer bytes for each byte of a client", _fewest_bytes,
        factors=("object_class",),
    ),
    Rule(
        "failure_domain", "Failure domain",
        "they do not survive the same losses; what that costs depends on where the copies lie",
        factors=("redundancy_level",),
    ),
    Rule(
        "durability", "Durability of a write",
        "operations return before they would survive a loss of power; compare phases that end "
        "with fsync, and never small writes or creates without it", _is(d.WRITE_BACK),
        factors=DOORS,
    ),
    Rule("checksums", "Checksums of data", "less is computed and checked", _checksum),
    Rule(
        "ec_encoder", "Who encodes erasure code",
        "a client that encodes spends its own CPU and sends the parity too, a server that does "
        "spends its CPU and its network: it depends on which of them is short",
    ),
    Rule(
        "chunk_size", "Chunk or object size",
        "larger pieces help large sequential transfers, smaller ones spread a file over more "
        "devices", shown=lambda size: _bytes(size) if size else "not cut",
        factors=("object_size", "stripe_unit"),
    ),
    Rule(
        "transport", "Transport", "a message takes less CPU and time, or there is none",
        lambda kind: {d.NONE: 2.0, d.RDMA: 1.0, d.TCP: 0.0}.get(kind), factors=("network",),
    ),
    Rule(
        "encrypted", "Encryption in flight", "nothing is encrypted", _is(False),
        shown=_yes_no,
    ),
    Rule(
        "data_cache", "Data cache in the client",
        "reads may come from the client's memory and writes be combined there, unless the "
        "cache state is bypass", lambda kind: float(kind != d.NONE), factors=DOORS,
    ),
    Rule(
        "metadata_cache", "Metadata cache in the client",
        "names and attributes may come from the client's memory",
        lambda kind: float(kind != d.NONE), factors=DOORS,
    ),
    Rule(
        "clients", "Client nodes", "more clients ask", float, shown=_number, factors=("nodes",)
    ),
    Rule("storage_nodes", "Storage nodes", "more servers do the work", float, shown=_number),
    Rule(
        "devices_per_node", "Devices per storage node", "more devices do the work", float,
        shown=_number, factors=("interface", "osds_per_node"),
    ),
    Rule(
        "media", "Media of data", "the media are faster", _medium, factors=("interface",),
        best=d.RAM,
    ),
    Rule(
        "metadata_media", "Media of metadata", "the media are faster", _medium,
        factors=("interface",), best=d.RAM,
    ),
    Rule(
        "fill", "Share of space in use", "there is more free space to place data in", _least,
        apart=0.1, shown=lambda share: f"{100 * share:.0f} %",
    ),
    Rule(
        "usable_bytes", "Usable bytes", "the same data fill less of it", float, ratio=1.1,
        shown=_bytes,
    ),
    Rule("server_cores", "Cores of the servers", "the servers have more CPU", float, shown=_number),
    Rule(
        "shared_cores", "Servers on the clients' cores",
        "no server takes processor time from the clients; one that polls takes its cores whole",
        lambda kind: {d.NONE: 2.0, d.SHARED: 1.0, d.POLLED: 0.0}.get(kind),
    ),
    Rule(
        "server_memory", "Memory of the servers", "the servers can keep more data in memory",
        float, ratio=1.1, shown=lambda size: _bytes(size) if size else "no server",
    ),
    Rule(
        "reads_from_server_memory", "Reads fit into server memory",
        "reads may come from the servers' memory", _is(True), shown=_yes_no,
    ),
    Rule(
        "realised", "Realised",
        "an emulated cluster shows how levels behave against each other, never how fast "
        "hardware is: nothing follows from this comparison about hardware",
    ),
)  # fmt: skip
