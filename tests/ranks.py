"""Ranks of sessions that were never there."""

from __future__ import annotations

from typing import Any

from fsmatrix.results.evidence.evidence import Rank


def rank(host: str = "a", **fields: Any) -> Rank:
    """A rank on that host; `fields` as those of Rank."""
    place: dict[str, Any] = {
        "rank": 0, "node": 0, "node_rank": 0, "boot_id": "", "mounts": "", "pid": 1, "cpus": (0,),
    }  # fmt: skip
    return Rank(**place | {"host": host} | fields)
