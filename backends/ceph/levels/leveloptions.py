"""Options of the cluster factors `storage_nodes` and `interface` on a Ceph that exists."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.ceph.levels.levelstate import Redundancy, parse_redundancy
from fsmatrix.results.evidence.values import Level

FACTORS = frozenset({"storage_nodes", "interface"})
NAME = r"^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"
_OF_MAKING = ("redundancy", "root", "device_class", "classes", "pg_num", "consent")


class PreparedPool(BaseModel):
    """A pool that the user made for a level."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: str = Field(pattern=NAME, description="its name")
    storage_nodes: int | None = Field(None, ge=1, description="hosts that it lies on")
    interface: str | None = Field(None, description="level of interface that it is for")

    def fits(self, level: Level) -> bool:
        """Whether it is the pool of this level."""
        return all(
            str(getattr(self, name)).lower() == str(value).lower() for name, value in level.items()
        )


class LevelOptions(BaseModel):
    """How a level of the cluster factors is made: by CRUSH, or by pools that are there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redundancy: str = Field(
        "", description="of the pools: size=3 or ec=4+2; the same at all levels"
    )
    failure_domain: Literal["osd", "host"] = Field(
        "host", description="what two copies of the same data never share"
    )
    root: str = Field("default", pattern=NAME, description="CRUSH bucket to draw hosts from")
    storage_nodes: int | None = Field(
        None, ge=1, description="hosts, where that is no factor; default: all"
    )
    device_class: str = Field(
        "", pattern=NAME.replace("^", "^$|^", 1), description="class, where interface is no factor"
    )
    classes: dict[str, str] = Field(
        {}, description="level of interface -> device class; default: the level in small letters"
    )
    pg_num: int | None = Field(
        None, ge=1, le=65536, description="default: 100 per OSD and copy, rounded up to 2^n"
    )
    consent: bool = Field(
        False, description="yes, make CRUSH roots, rules and pools in this cluster (run --dry-run)"
    )
    pools: tuple[PreparedPool, ...] = Field(
        (), description="take these pools instead of making any: one for each level"
    )

    @field_validator("redundancy")
    @classmethod
    def _known_redundancy(cls, value: str) -> str:
        if value:
            parse_redundancy(value)
        return value

    @model_validator(mode="after")
    def _one_way(self) -> LevelOptions:
        if not self.pools:
            if not self.redundancy:
                raise ValueError("give redundancy (size=3, ec=4+2), or name pools")
            return self
        beside = [name for name in _OF_MAKING if name in self.model_fields_set]
        if beside:
            raise ValueError(f"leave out {', '.join(beside)}: the named pools have their own")
        return self

    @property
    def copies(self) -> Redundancy:
        """The redundancy as numbers of copies or chunks."""
        return parse_redundancy(self.redundancy)

    @property
    def named(self) -> list[str]:
        """Names of the prepared pools."""
        return [prepared.pool for prepared in self.pools]

    def class_of(self, level: Level) -> str:
        """Device class of a level; empty: all OSDs."""
        if "interface" not in level:
            return self.device_class
        wanted = str(level["interface"])
        return self.classes.get(wanted, wanted.lower())

    def prepared(self, level: Level) -> PreparedPool | None:
        """The pool that was named for a level."""
        fitting = [pool for pool in self.pools if pool.fits(level)]
        return fitting[0] if len(fitting) == 1 else None
