"""Backends and workloads that do nothing, for tests of planning; no test in here."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from fsmatrix.backends.access import Access, DeviceAccess, PathAccess
from fsmatrix.backends.contract import (
    NO_LEVEL,
    Availability,
    Backend,
    BackendOptions,
    Evidence,
    Foreseen,
    Space,
)
from fsmatrix.backends.player.ops import DRIVERS, Driver
from fsmatrix.results.evidence.stored import Json, Level
from fsmatrix.results.record import Case
from fsmatrix.results.registry import UnknownName
from fsmatrix.results.units import PositiveSize
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.registry import Registries
from fsmatrix.suite.workloads.workload import Footprint, Workload, WorkloadOptions

MIB = 1 << 20


class DiskOptions(BackendOptions):
    size: PositiveSize = 1 << 30
    path: str | None = None
    works: bool = True


class Disk(Backend):
    name = "disk"
    Options = DiskOptions
    access_type: ClassVar[type[Access]] = PathAccess

    @classmethod
    def check(cls) -> Availability:
        return Availability(True)

    def refusal(self) -> str:
        return "" if self.options.works else "the disk does not work"

    def space(self, access: Access | None = None) -> Space:
        return Space(self.options.size, 1000, "its option size")

    def provision(self, level: Any, context: Any) -> Access:
        raise NotImplementedError

    def describe(self, access: Access) -> dict[str, Json]:
        return {}

    @classmethod
    def cache(cls, access: Access, state: str, files: Any, method: str = "auto") -> Evidence:
        return Evidence(state, "none")

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        return {}


class Memory(Disk):
    name = "memory"
    cache_states = frozenset({"memory"})
    reference = True


class Cluster(Disk):
    name = "cluster"
    cache_states = frozenset({"cold", "warm"})
    device_states = frozenset({"as_found", "fresh"})

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        factors = frozenset({"storage_nodes", "interface"})
        return replace(super().foreseen(level), level_factors=factors)


class Raw(Disk):
    name = "raw"
    access_type: ClassVar[type[Access]] = DeviceAccess


class Slow(Disk):
    name = "slow"
    driver = "poor"


class IoOptions(WorkloadOptions):
    pattern: Literal["seq-read", "rand-read", "seq-write", "rand-write"] = "seq-read"
    chunk: PositiveSize = MIB
    bytes_per_process: PositiveSize = 16 * MIB
    direct: bool = False
    depth: int = 1

    @model_validator(mode="after")
    def _fits(self) -> IoOptions:
        if self.chunk > self.bytes_per_process:
            raise ValueError(f"chunk {self.chunk} is larger than the file")
        return self


class Io(Workload):
    name = "io"
    Options = IoOptions
    accesses = frozenset({"path"})
    engines = ("player", "fio")

    def steps(self, case: Case, access: Any, engine: Any) -> list[Any]:
        return []

    def refusal(self, case: Case) -> str:
        return "direct needs cache bypass" if self.options.direct and case.cache == "warm" else ""

    def footprint(self, case: Case) -> Footprint:
        size = self.options.bytes_per_process * case.geometry.processes
        kinds = frozenset({"create", "write", "read", "close"})
        return Footprint(size, size, 1, kinds=kinds, depth=self.options.depth)


class GrownOptions(IoOptions):
    added_later: int = 7


class Grown(Io):
    Options = GrownOptions


class MetaOptions(WorkloadOptions):
    files: int = 100
    operations: tuple[str, ...] = ("create", "stat")


class Meta(Workload):
    name = "meta"
    Options = MetaOptions
    accesses = frozenset({"path"})

    def steps(self, case: Case, access: Any, engine: Any) -> list[Any]:
        return []

    def footprint(self, case: Case) -> Footprint:
        return Footprint(0, 0, self.options.files, seconds=1.0, kinds=frozenset({"create"}))


class Lone:
    needs_mpi = False


class Many:
    needs_mpi = True


class Names(dict[str, Any]):
    """A registry in a dict."""

    def names(self) -> list[str]:
        return sorted(self)

    def load(self, name: str) -> Any:
        if name not in self:
            raise UnknownName("thing", name, self)
        return self[name]


LOOKUP = Registries(
    backends=Names(disk=Disk, other=Disk, memory=Memory, cluster=Cluster, raw=Raw, slow=Slow),
    workloads=Names(io=Io, meta=Meta),
    launchers=Names(local=Lone, mpirun=Many, srun=Many),
    drivers=DRIVERS | {"poor": Driver("poor", frozenset({"create", "read", "close"}))},
)

HEAD = """campaign: test
seed: 1
targets:
  a: {backend: disk}
  b: {backend: other}
workloads:
  io: {workload: io}
"""


def text(body: str = "", head: str = HEAD) -> Source:
    """A campaign of two targets and one workload, with more lines."""
    return Source(head + body, "c.yaml")


def planned(body: str = "", head: str = HEAD, **more: Any) -> Any:
    """The plan of `text`, on a machine without site and user files."""
    from fsmatrix.suite.plan.plan import Installation, Request, build_plan

    asked = {field.name for field in fields(Request)}
    request = Request(**{name: more.pop(name) for name in asked & more.keys()})
    more = {"environ": {}, "lookup": LOOKUP, "root": False} | more
    source = more.pop("source", None) or text(body, head)
    more["environ"] = {"FSMATRIX_SITE": "", **more["environ"]}
    place = {
        field.name: more.pop(field.name) for field in fields(Installation) if field.name in more
    }
    return build_plan(source, request, installation=Installation(**place), **more)


def problems(body: str = "", head: str = HEAD, **more: Any) -> list[str]:
    """Texts of the problems with which a campaign is refused."""
    from fsmatrix.suite.campaign.yamlio import CampaignError

    try:
        planned(body, head, **more)
    except CampaignError as error:
        return [str(problem) for problem in error.problems]
    raise AssertionError("the campaign was not refused")
