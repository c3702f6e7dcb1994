"""Factors of a DAOS system: how many storage nodes and which object class a run meets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.clusters.levels import ClusterLevels
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import tools
from fsmatrix.backends.daos.tools import NAME, Client, Control, Member
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Json, JsonObject, Level
from fsmatrix.results.evidence.target import Placement
from fsmatrix.results.units import PositiveSize

# Levels of `storage_nodes` on a DAOS system that exists, each with a pool of its own.
#
# By dmg: N servers are drawn, and a pool is made on all their engines.  It is called
# `fsmatrix-<tag>-<target>-<8 random digits>`; nothing that exists is changed.  Or the user names a
# prepared pool for each level; then nothing is made.


# Object classes: what their names say, and what a pool must have for them.
#
# Of a group of n copies, or of k data and m parity cells, each lies in a failure domain of its
# own: a server, or an engine where the container's redundancy level is `rank`.  A class of g
# groups needs n (or k + m) targets for each of them; of X groups it takes as many as there are.
# RP_XSF, for scalable fetch, is the one with a copy in every failure domain, however many a pool
# has.


_NAME = re.compile(
    r"(?:S|RP_(?P<copies>[2-6])G|EC_(?P<k>2|4|8|16)P(?P<m>[1-3])G)(?P<groups>X|[1-9]\d{0,3})"
)
_EVERYWHERE = "RP_XSF"


@dataclass(frozen=True)
class ObjectClass:
    """One object class."""

    name: str
    copies: int = 1
    k: int = 0  # data cells of an erasure code; 0: none
    m: int = 0
    groups: int | None = None  # None: as many as there is room for
    everywhere: bool = False  # a copy in every failure domain; `copies` is the least

    @property
    def domains(self) -> int:
        """Failure domains that a group needs at least."""
        return self.k + self.m if self.k else self.copies

    @property
    def outlives(self) -> int:
        """Failure domains that may fail without a loss, at least."""
        return self.domains - (self.k or 1)

    @property
    def targets(self) -> int:
        """Targets that it needs."""
        return self.domains * (self.groups or 1)

    @property
    def redundancy(self) -> str:
        """In the words of the coordinate `redundancy`: size=2, ec=4+2, size=all."""
        if self.everywhere:
            return "size=all"
        return f"ec={self.k}+{self.m}" if self.k else f"size={self.copies}"


def parse_class(name: str) -> ObjectClass:
    """Of S1, SX, RP_2G1, RP_XSF, EC_4P2GX...; ValueError for anything else."""
    if name == _EVERYWHERE:
        return ObjectClass(name, groups=1, everywhere=True)
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"object class {name!r}: write S1, S2, SX, RP_2G1, RP_XSF, EC_2P1GX...")
    groups = None if match["groups"] == "X" else int(match["groups"])
    if match["k"]:
        return ObjectClass(name, k=int(match["k"]), m=int(match["m"]), groups=groups)
    return ObjectClass(name, copies=int(match["copies"] or 1), groups=groups)


@dataclass(frozen=True)
class Shape:
    """What a pool lies on.  `servers` may be too many, where nobody tells who shares one."""

    servers: int
    engines: int
    targets: int | None  # None: not known yet

    def domains(self, level: str) -> int:
        """Failure domains at a redundancy level."""
        return self.engines if level == "rank" else self.servers


def class_refusal(name: str, shape: Shape, level: str) -> str:
    """Why a pool of this shape cannot hold a class (empty: it can).

    `level`: the redundancy level, `rank` or `node`.
    """
    wanted, domains = parse_class(name), shape.domains(level)
    if wanted.domains > domains:
        of = "engines" if level == "rank" else "servers"
        cure = (
            "" if level == "rank" else "; engines of one server count as one, or set rd_lvl: rank"
        )
        return f"object class {name} needs {wanted.domains} {of}, and the pool has {domains}{cure}"
    if shape.targets is not None and wanted.targets > shape.targets:
        needed = wanted.targets
        return f"object class {name} needs {needed} targets, and the pool has {shape.targets}"
    return ""


def factor_refusal(rd_fac: int, shape: Shape, level: str) -> str:
    """Why a pool of this shape cannot outlive `rd_fac` failures (empty: it can)."""
    domains = shape.domains(level)
    if rd_fac < domains:
        return ""
    of = "engines" if level == "rank" else "servers"
    return f"rd_fac {rd_fac} needs {rd_fac + 1} {of}, and the pool has {domains}"


# Options of the cluster factor `storage_nodes` on a DAOS system that exists.


FILE = re.compile(r"|/[^\0\n,]*")
_OF_MAKING = ("size_per_node", "storage_nodes", "control", "consent")


class DaosPreparedPool(BaseModel):
    """A pool that the user made for a level."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: str = Field(pattern=NAME, description="its label or UUID")
    storage_nodes: int = Field(ge=1, description="servers that it lies on")


class DaosLevelOptions(BaseModel):
    """How a level of storage_nodes is made: a pool on drawn servers, or one that is there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size_per_node: PositiveSize | None = Field(
        None, description="of the pools, for each server: the same at all levels"
    )
    storage_nodes: int | None = Field(
        None, ge=1, description="servers, where that is no factor; default: all"
    )
    control: str = Field(
        "", description="configuration of dmg (its --config-path); default: dmg's own"
    )
    consent: bool = Field(
        False, description="yes, make and destroy pools in this system (run --dry-run)"
    )
    pools: tuple[DaosPreparedPool, ...] = Field(
        (), description="take these pools instead of making any: one for each level"
    )

    @field_validator("control")
    @classmethod
    def _file(cls, value: str) -> str:
        if not FILE.fullmatch(value):
            raise ValueError(f"must be an absolute path without commas, not {value!r}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> DaosLevelOptions:
        if not self.pools:
            if self.size_per_node is None:
                raise ValueError("give size_per_node, or name pools")
            return self
        beside = [name for name in _OF_MAKING if name in self.model_fields_set]
        if beside:
            raise ValueError(f"{', '.join(beside)}: the named pools exist already")
        return self

    def prepared(self, level: Level) -> DaosPreparedPool | None:
        """The pool that was named for a level; None if none was, or several were."""
        wanted = level.get("storage_nodes")
        fitting = [pool for pool in self.pools if pool.storage_nodes == wanted]
        return fitting[0] if len(fitting) == 1 else None


Servers = Mapping[str, list[int]]  # failure domain of a server -> ranks of its engines


def servers_of(members: Iterable[Member]) -> Servers:
    """Of the engines that have joined, in order."""
    servers: dict[str, list[int]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        if member.state.lower() == "joined":
            servers.setdefault(member.fault_domain, []).append(member.rank)
    return servers


@dataclass(frozen=True)
class Levels(ClusterLevels):
    """How a target's levels are made, and in which system."""

    entry = "daos-pool"
    hosts = "servers"

    options: DaosLevelOptions
    client: Client

    @property
    def control(self) -> Control:
        """Who makes pools."""
        return Control(self.options.control, self.client.deadline)

    # -- before anything is made ------------------------------------------------------------
    def _making_refusal(self, level: Level) -> str:
        servers = servers_of(self.control.members())
        number = self._number(level, servers)
        if number <= len(servers) and servers:
            return ""
        return f"{number} servers are needed, and {len(servers)} have engines that joined"

    def _prepared_refusal(self, level: Level) -> str:
        prepared = self.options.prepared(level)
        if prepared is None:
            if "storage_nodes" not in level:
                return "levels.pools needs the factor storage_nodes, which chooses the pool"
            wanted = level["storage_nodes"]
            return f"levels.pools must name exactly one pool for storage_nodes={wanted}"
        engines, nodes = self.client.pool_query(prepared.pool).total_engines, prepared.storage_nodes
        if engines % nodes:
            return f"pool {prepared.pool} has {engines} engines: it does not lie on {nodes} servers"
        return ""

    def _agreed_to(self) -> str:
        return (
            "a pool on drawn servers is made by dmg and destroyed again; nothing that exists is "
            "changed, but the pool takes space and its load meets other pools on these servers"
        )

    def _commands(self, level: Level, block_seed: str, name: str) -> list[str]:
        servers = self._of_level(level, block_seed)
        words = (
            tools.creation(name, _ranks(servers), self._size(servers)),
            tools.destruction(name),
        )
        return [" ".join((tools.DMG, *line)) for line in words]

    def shape(self, level: Level) -> Shape:
        """What the pool of a level lies on, whichever servers are drawn for it."""
        prepared = self.options.prepared(level)
        if prepared is not None:
            pool = self.client.pool_query(prepared.pool)
            return Shape(prepared.storage_nodes, pool.total_engines, pool.total_targets)
        servers = servers_of(self.control.members())
        number = self._number(level, servers)
        fewest = sorted(len(ranks) for ranks in servers.values())[:number]
        return Shape(number, sum(fewest), None)

    def _of_level(self, level: Level, block_seed: str) -> Servers:
        servers = servers_of(self.control.members())
        return {name: servers[name] for name in self._drawn(level, servers, block_seed)}

    def _size(self, servers: Servers) -> int:
        assert self.options.size_per_node is not None  # LevelOptions: no pools are named
        return int(self.options.size_per_node * len(servers))

    # -- made and removed -------------------------------------------------------------------
    def _make(self, level: Level, name: str, context: ProvisionContext) -> dict[str, Json]:
        """After a failure the entry stays, since the servers may have made it all the same."""
        servers = self._of_level(level, context.block_seed)
        ranks, size = _ranks(servers), self._size(servers)
        facts: dict[str, Json] = {"name": name, "path": name, "control": self.options.control}
        facts["deadline"] = self.client.deadline
        entry = context.journal.begin(self.entry, target=context.target, **facts)
        context.progress(" ".join(tools.creation(name, ranks, size)))
        try:
            pool = self.control.create(name, ranks, size)
        except tools.DaosError as error:
            if tools.fault_of(error) == tools.TAKEN:
                context.journal.end(entry)
            raise
        context.journal.confirm(entry, uuid=pool.uuid)
        placement = Placement(hosts=tuple(sorted(servers)), ranks=tuple(pool.tgt_ranks))
        return {
            **facts,
            "uuid": pool.uuid,
            "placement": placement.document(),
            "tier_bytes_per_rank": pool.tier_bytes,
        }

    @classmethod
    def remove(cls, facts: JsonObject) -> bool:
        """Destroy the pool that a journal entry tells of; False if there is none.

        BackendError, with nothing done, if another pool is called so than the one with the
        recorded UUID.  Without one (a crash while it was made) the label, which holds random
        digits, is proof.
        """
        label, control = str(facts["name"]), str(facts["control"])
        if not tools.is_own(label) or not FILE.fullmatch(control):
            raise BackendError(
                f"{label!r}, {control!r}: not a record that the suite writes: nothing was destroyed"
            )
        by = Control(control, tools.recorded_deadline(facts))
        pool, uuid = by.pool(label), str(facts.get("uuid", ""))
        if pool is None:
            return False
        if uuid and pool.uuid != uuid:
            raise BackendError(
                f"pool {label} is another one ({pool.uuid}) than the suite's ({uuid}): "
                "not destroyed"
            )
        by.destroy(pool.uuid)
        return True


def _ranks(servers: Servers) -> list[int]:
    return sorted(rank for of_server in servers.values() for rank in of_server)
