"""Campaigns of known truth for comparisons: two targets, patterns and chunk sizes, some noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from tests.analysis.study_data import dataset

PATTERNS = ("rand-read", "seq-write")


CHUNKS = (4096, 1 << 20)


SPEED = {4096: 4e7, 1 << 20: 8e8}


Row = dict[str, Any]


def made(
    truth: Mapping[str, float],
    blocks: int = 12,
    seed: int = 1,
    change: Callable[[Row], Row | None] = lambda row: row,
    patterns: Sequence[str] = PATTERNS,
    chunks: Sequence[int] = CHUNKS,
    spread: float = 0.01,
    **attrs: Any,
) -> xr.Dataset:
    """Targets with these speeds; one attachment of each in a block; `change` edits a row."""
    rng = np.random.default_rng(seed)
    rows = []
    for target, block in itertools.product(truth, range(blocks)):
        session = rng.normal(0, spread)
        for pattern, chunk in itertools.product(patterns, chunks):
            noise = math.exp(session + rng.normal(0, spread))
            row: Row = {
                "target": target,
                "pattern": pattern,
                "chunk": chunk,
                "block": block,
                "attachment": f"{target}-{seed}-{block}",
                "cache": "cold",
                "device_state": "fresh",
                "bandwidth": truth[target] * SPEED.get(chunk, 1e8) * noise,
                "latency_p99": 1e-3 / (truth[target] * noise),
                "began": float(len(rows)),
                "phase": pattern.split("-")[1],
                "work_id": f"{pattern}-{chunk}",
                "engine_version": "1",
                "run_id": f"{seed}-{target}-{pattern}-{chunk}-{block}",
                "session": f"s{seed}",
                "started": f"2026-11-20T10:00:{len(rows) % 60:02d}Z",
            }
            rows.append(change(row))
    kept = [row for row in rows if row is not None]
    ds = dataset(kept, ["pattern", "chunk", "cache", "device_state"], **attrs)
    units = {"bandwidth": "B s-1", "latency_p99": "s"}
    return ds.assign({n: ds[n].assign_attrs(units=u) for n, u in units.items()})
