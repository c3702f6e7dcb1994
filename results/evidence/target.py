"""What `Backend.describe` tells of an attached target, as far as audits read it.

Backends write these parts, and they are stored in a run's environment (`target`).  A part that
could not be asked for is {"error": ...} there: then nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from fsmatrix.results.evidence.stored import (
    OWN,
    Json,
    JsonObject,
    Stored,
    StoredError,
    inside,
    read,
)

# How a target's storage is deployed: the facts that decide whether it is compared fairly.
#
# A backend tells them (`Backend.deployment`), a campaign may declare what nobody can be asked for
# (`targets.X.deployment`), and they are stored in a run's environment (`target.deployment`).
# results/fairness sets those of several targets side by side.  Standard library only: ranks import
# what stands beside it.


LARGEST = 2**63
_REPLICAS = re.compile(r"replica ([1-9]\d{0,2})")
_CODE = re.compile(r"EC ([1-9]\d{0,2})\+(\d{1,3})")
NONE = "none"  # there is no such thing: no copies, no checksums, no cache, no network
WRITE_BACK = "write-back"  # an operation returns earlier: only after fsync is it durable
DURABLE = "durable on return"  # an operation returns when it would survive a loss of power
CLIENT, SERVER = "client", "server"  # who encodes
TCP, RDMA = "TCP", "RDMA"
SHARED, POLLED = "shared", "shared, and the servers poll"  # the cores of clients
# FILE: on a file system of the server's, as on test beds
HDD, SSD, NVME, PMEM, RAM, FILE = "HDD", "SSD", "NVMe SSD", "PMem", "RAM", "file"
MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs")  # file systems without storage


@dataclass(frozen=True, kw_only=True)
class Deployment(Stored):
    """Facts about one installation of storage; None where a fact is not known.

    All of them hold for the data that a campaign writes, over all storage nodes together if
    nothing else is said.  Bytes are bytes, shares lie between 0 and 1.
    """

    redundancy: str | None = None  # none, replica 2, EC 2+1
    failure_domain: str | None = None  # what copies never share: osd, host, rank; none: one copy
    durability: str | None = None  # WRITE_BACK or DURABLE, of a write without O_DIRECT
    checksums: str | None = None  # of data: none, "crc32c at rest", "crc64 end to end"
    ec_encoder: str | None = (
        None  # who computes an erasure code: CLIENT, SERVER; none: there is none
    )
    chunk_size: int | None = None  # bytes of one piece that a file is cut into; 0: it is not cut
    transport: str | None = None  # between clients and servers: TCP, RDMA; none: no network
    encrypted: bool | None = None  # in flight
    data_cache: str | None = None  # what keeps data in a client: none, "page cache"
    metadata_cache: str | None = None  # what keeps names and attributes in a client
    storage_nodes: int | None = None  # that hold data
    devices_per_node: float | None = None
    media: str | None = None  # that data ends on: MEDIA, several joined by " + "; "A or B"
    metadata_media: str | None = None  # that metadata ends on
    fill: float | None = None  # share that is used, when attached
    usable_bytes: int | None = None  # that users can fill, redundancy deducted
    server_cores: int | None = None
    server_memory: int | None = None  # bytes; 0: no server stands between client and devices
    # whether servers work on the cores of clients: none (there is no such server), SHARED, POLLED
    shared_cores: str | None = None

    @property
    def facts(self) -> dict[str, Json]:
        """What is known, by name; a number that nothing can have is not."""
        values = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in values.items() if _possible(value)}

    def completed(self, other: Deployment) -> Deployment:
        """With the facts of `other` where this one knows none, or only which it may be."""
        known: dict[str, Any] = {
            name: value
            for name, value in self.facts.items()
            if not _one_of(other.facts.get(name), value)
        }
        return replace(self, **{**other.facts, **known})


def _one_of(value: Any, several: Any) -> bool:
    """Whether a text is one of those of another: "RAM" of "PMem or RAM"."""
    return isinstance(several, str) and value in several.split(" or ")


def _possible(value: Any) -> bool:
    return value is not None and (isinstance(value, str) or 0 <= value < LARGEST)


NAMES = tuple(each.name for each in fields(Deployment) if each.name not in OWN)


def deployment_of(environment: JsonObject) -> Deployment:
    """That of a run's target; all unknown in files of before.  StoredError if it is no such."""
    target = environment.get("target")
    stored = target.get("deployment", {}) if isinstance(target, Mapping) else {}
    return read(Deployment, stored, "environment.target.deployment")


# How copies are kept, as the coordinate `redundancy` and the options of clusters write it.


@dataclass(frozen=True)
class Redundancy:
    """Copies (`k` = 0: replicated, `size` of them) or an erasure code k+m."""

    size: int  # failure domains that a piece of data needs
    k: int = 0
    m: int = 0

    @property
    def erasure_coded(self) -> bool:
        """Whether data is coded rather than copied."""
        return self.k > 0

    @property
    def copies(self) -> int:
        """Copies of what must be replicated anyway (metadata): bears as many losses as data."""
        return self.m + 1 if self.k else self.size


def parse_redundancy(text: str) -> Redundancy:
    """Of "size=3" or "ec=2+1"; ValueError for anything else."""
    if match := re.fullmatch(r"size=([1-9][0-9]?)", text):
        return Redundancy(int(match[1]))
    if match := re.fullmatch(r"ec=([1-9][0-9]?)\+([1-9][0-9]?)", text):
        k, m = int(match[1]), int(match[2])
        if k < 2:
            raise ValueError(f"redundancy {text!r}: an erasure code needs k >= 2")
        return Redundancy(k + m, k, m)
    raise ValueError(f"redundancy {text!r}: write size=1, size=3 or ec=2+1")


def redundancy_of(redundancy: Redundancy) -> Deployment:
    """As facts, of a system whose servers compute an erasure code."""
    if redundancy.erasure_coded:
        return Deployment(redundancy=f"EC {redundancy.k}+{redundancy.m}", ec_encoder=SERVER)
    if redundancy.size == 1:
        return Deployment(redundancy=NONE, failure_domain=NONE, ec_encoder=NONE)
    return Deployment(redundancy=f"replica {redundancy.size}", ec_encoder=NONE)


def stored_bytes(redundancy: str) -> float | None:
    """Bytes stored for each byte of a client; None for a text that is no known redundancy."""
    if redundancy == NONE:
        return 1.0
    if match := _REPLICAS.fullmatch(redundancy):
        return float(match[1])
    if match := _CODE.fullmatch(redundancy):
        return (int(match[1]) + int(match[2])) / int(match[1])
    return None


@dataclass(frozen=True, kw_only=True)
class Placement(Stored):
    """Where a pool lies."""

    hosts: tuple[str, ...] | None = None  # storage nodes, by name
    osds: tuple[int, ...] | None = None  # of Ceph
    ranks: tuple[int, ...] | None = None  # of DAOS
    machines: tuple[str, ...] | None = None  # that the hosts are, by name
    pgs_per_osd: tuple[int, ...] | None = None  # placement groups of each of `osds`
    max_over_mean: float | None = None  # of the placement groups of an OSD


@dataclass(frozen=True, kw_only=True)
class LevelPool(Stored):
    """The pool of a level of the cluster factors.  `more`: what taking it down needs."""

    pool: str
    placement: Placement


@dataclass(frozen=True, kw_only=True)
class PoolFacts(Stored):
    """A pool of a Ceph cluster.  `more`: what the monitors tell of it."""

    metadata: bool | None = None  # a file system's metadata is in it
    placement: Placement | None = None


@dataclass(frozen=True, kw_only=True)
class EmulatedDevices(Stored):
    """What the kernel lets through, by name: {read,written}_bytes, {read,write}_operations, per
    second; of each device, and of their adapter for all of them together."""

    adapter_limits: Mapping[str, float]
    device_limits: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class AttachedTarget(Stored):
    """A target as it was described."""

    level: LevelPool | None = None
    emulated: EmulatedDevices | None = None
    device_numbers: tuple[int, ...] | None = None  # of the devices that take part


def of_environment(environment: JsonObject) -> AttachedTarget:
    """That of a run; nothing known where its environment tells of none."""
    return _known(AttachedTarget, environment.get("target")) or AttachedTarget()


def pools(environment: JsonObject) -> Iterator[tuple[str, PoolFacts]]:
    """The pools of a run's Ceph cluster by name."""
    for name, pool in inside(environment, "target", "ceph", "pools").items():
        if (facts := _known(PoolFacts, pool)) is not None:
            yield name, facts


def storage_hosts(environment: JsonObject) -> tuple[str, ...]:
    """Hosts that a run's data lies on, as the storage names them; empty where it names none.

    Of Ceph the machines of its OSDs, of DAOS the addresses of its engines.
    """
    level = of_environment(environment).level
    places = [level.placement] if level is not None else []
    places += [facts.placement for _, facts in pools(environment) if facts.placement]
    named = [host for place in places for host in place.machines or place.hosts or ()]
    told = environment.get("target")
    hosts = told.get("hosts") if isinstance(told, Mapping) else None
    named += [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []
    return tuple(sorted(set(named)))


S = TypeVar("S", bound=Stored)


def _known(kind: type[S], value: Json) -> S | None:
    try:
        return read(kind, value, "environment.target")
    except StoredError:
        return None
