"""What `Backend.describe` tells of an attached target, as far as audits read it.

Backends write these parts, and they are stored in a run's environment (`target`).  A part that
could not be asked for is {"error": ...} there: then nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fsmatrix.results.evidence.stored import Stored, StoredError, read
from fsmatrix.results.evidence.values import Json, JsonObject, inside


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


S = TypeVar("S", bound=Stored)


def _known(kind: type[S], value: Json) -> S | None:
    try:
        return read(kind, value, "environment.target")
    except StoredError:
        return None
