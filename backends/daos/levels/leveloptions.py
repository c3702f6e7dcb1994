"""Options of the cluster factor `storage_nodes` on a DAOS system that exists."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.daos.tools.tool import NAME
from fsmatrix.results.evidence.values import Level
from fsmatrix.results.units import PositiveSize

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
