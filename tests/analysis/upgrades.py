"""Made-up campaigns of one storage over time: campaign files whose truth a test knows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.results.record import RunRecord
from tests.analysis import campaigns

PATTERNS = ("rand-read", "seq-read", "rand-write", "seq-write")
CHUNKS = (4096, 1 << 20)
SPEED = {4096: 3e7, 1 << 20: 9e8}
Change = Callable[[RunRecord, str, int, int], RunRecord | None]  # record, pattern, chunk, block


def measured(
    path: Path,
    *,
    month: int,
    slower: Mapping[tuple[str, int], float] | None = None,
    blocks: int = 12,
    seed: int | None = None,
    spread: float = 0.01,
    target: str = "ceph",
    environment: Mapping[str, Any] | None = None,
    change: Change = lambda record, *_: record,
) -> Path:
    """A campaign of `month`: 4 patterns x 2 chunk sizes; `slower`: cell -> time / usual time."""
    rng = np.random.default_rng(month if seed is None else seed)
    records = []
    for block in range(blocks):
        session = rng.normal(0, spread)
        for pattern, chunk in itertools.product(PATTERNS, CHUNKS):
            speed = SPEED[chunk] * np.exp(session + rng.normal(0, spread))
            speed /= (slower or {}).get((pattern, chunk), 1.0)
            done = campaigns.phase(pattern.split("-")[1], float(speed), chunk, 1, rng)
            one = campaigns.record(
                target,
                phases=(done,),
                coordinates={"pattern": pattern, "chunk": chunk},
                block=block,
                attachment=f"{path.stem}-{block}",
                started=f"2026-{month:02d}-03T10:{block:02d}:00Z",
                environment={**campaigns.environment(target), **(environment or {})},
            )
            changed = change(one, pattern, chunk, block)
            if changed is not None:
                records.append(replace(changed, session=f"{path.stem}-{block}"))
    return campaigns.write(path, records)
