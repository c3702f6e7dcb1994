"""What answers of the `daos` tool mean: facts for the record, and where bytes are counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from fsmatrix.backends.base import Space
from fsmatrix.backends.daos.levels import Shape
from fsmatrix.backends.daos.tools.answers import Container, Pool, System
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import Stored, read
from fsmatrix.results.evidence.values import Json, JsonObject

# of a container; owner, group and access list stay private
PROPERTIES = frozenset(
    {
        *("cksum", "cksum_size", "srv_cksum", "compression", "encryption"),
        *("dedup", "dedup_threshold", "ec_cell_sz", "ec_pda", "rp_pda", "rd_fac", "rd_lvl"),
        *("perf_domain", "layout_type", "layout_version", "obj_version", "global_version"),
        "status",
    }
)
_HOST = re.compile(r"://(?:\[([^\]]+)\]|([^:/\[\]]+))")


@dataclass(frozen=True, kw_only=True)
class AtAttachment(Stored):
    """A pool when it was attached: in the details of accesses."""

    pool_uuid: str
    pool_version: int  # of its map: changes with its targets
    engines: int
    free: int | None  # bytes

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """As it was told then; StoredError if the details do not hold it."""
        return read(cls, details, "details")


def at_attachment(pool: Pool) -> AtAttachment:
    """A pool that is attached now."""
    return AtAttachment(
        pool_uuid=pool.uuid,
        pool_version=pool.version,
        engines=pool.total_engines,
        free=free(pool).bytes,
    )


def pool_facts(pool: Pool) -> dict[str, Json]:
    """State, size and space of a pool, bytes by tier."""
    facts = pool.model_dump(exclude={"tier_stats"}, exclude_none=True)
    return facts | {"tiers": {tier.media_type: tier.sizes for tier in pool.tiers}}


def container_facts(container: Container | None) -> dict[str, Json]:
    """Layout and object classes of a container; BackendError if it is not there."""
    if container is None:
        raise BackendError("the container does not exist")
    return container.model_dump()


def known_properties(properties: JsonObject) -> dict[str, Json]:
    """Those of a container's properties that are recorded."""
    return {name: value for name, value in properties.items() if name in PROPERTIES}


def free(pool: Pool) -> Space:
    """Free bytes of the tier that takes bulk data: NVMe, or SCM where there is none."""
    sizes = {tier.media_type: tier.free for tier in pool.tiers if tier.total}
    return Space(
        sizes.get("nvme", sizes.get("scm")), None, "daos pool query, redundancy not deducted"
    )


def servers(system: System) -> list[str]:
    """Addresses of the engines, each once; "" stands for those that cannot be read."""
    matches = (_HOST.search(engine.uri) for engine in system.rank_uris or ())
    return sorted({match[1] or match[2] if match else "" for match in matches})


def shape(pool: Pool, system: System) -> Shape:
    """What a pool lies on.  Engines at one address share a server; others may, and nobody tells."""
    places = servers(system)
    engines = len(places) if places and "" not in places else pool.total_engines
    return Shape(min(engines, pool.total_engines), pool.total_engines, pool.total_targets)


def over_tcp(provider: str) -> bool:
    """Whether clients use this kernel's network, which RDMA (verbs, cxi) passes by."""
    return re.search(r"\btcp|\bsockets", provider) is not None
