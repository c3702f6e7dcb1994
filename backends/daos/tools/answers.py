"""What the suite reads of the JSON that DAOS's tools answer: typed, other fields left out."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt


class Answer(BaseModel):
    """What the suite needs of an answer; other fields come and go with releases."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Tier(Answer):
    """Bytes of one storage tier of a pool, over all its targets."""

    media_type: str  # scm or nvme
    total: NonNegativeInt
    free: NonNegativeInt

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the tier by name: `total` and `free`."""
        return {"total": self.total, "free": self.free}


class Rebuild(Answer):
    """Rebuild of a pool; a status other than 0 is a failure's number."""

    state: str  # idle, busy, done
    status: int


class Pool(Answer):
    """Answer of `pool query`."""

    uuid: str = Field(min_length=1)
    state: str
    total_targets: NonNegativeInt
    active_targets: NonNegativeInt
    disabled_targets: NonNegativeInt
    total_engines: NonNegativeInt
    version: NonNegativeInt
    rebuild: Rebuild | None = None
    tier_stats: list[Tier] | None = None
    disabled_ranks: list[NonNegativeInt] | None = None
    dead_ranks: list[NonNegativeInt] | None = None

    @property
    def tiers(self) -> list[Tier]:
        """All tiers; none where the tool gives none."""
        return self.tier_stats or []


class Container(Answer):
    """Answer of `daos container query` and of `daos container create`."""

    container_uuid: str = Field(min_length=1)
    container_type: str
    container_label: str = ""
    redundancy_factor: NonNegativeInt = 0
    object_class: str = ""
    dir_object_class: str = ""
    file_object_class: str = ""
    chunk_size: NonNegativeInt = 0  # bytes; 0: the tool does not say


class Listed(Answer):
    """One container of `daos container list`; one may have no label."""

    uuid: str = Field(min_length=1)
    label: str = ""


class RankUri(Answer):
    """Where an engine listens: ofi+tcp://10.0.0.1:31416."""

    rank: NonNegativeInt
    uri: str


class System(Answer):
    """Answer of `daos system query`, which the agent gives."""

    system_name: str
    fabric_provider: str
    agent_path: str = ""
    rank_uris: list[RankUri] | None = None


class Version(Answer):
    """Answer of `daos server-version`."""

    name: str
    version: str


class Property(Answer):
    """One line of `daos container get-prop`."""

    name: str
    value: Any


class Member(Answer):
    """An engine as `dmg system query` tells of it."""

    rank: NonNegativeInt
    state: str  # joined, excluded, stopped...
    fault_domain: str  # /server, or /rack/server
    addr: str = ""


class Members(Answer):
    """Answer of `dmg system query`."""

    members: list[Member]


class NewPool(Answer):
    """Answer of `dmg pool create`."""

    uuid: str = Field(min_length=1)
    tgt_ranks: list[NonNegativeInt]
    tier_bytes: list[NonNegativeInt]  # for each rank
