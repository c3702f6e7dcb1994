"""Campaigns of known truth that lessons are drawn from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.lessons.backend import TOGETHER
from fsmatrix.analysis.lessons.lessons_result import Lessons
from fsmatrix.analysis.lessons.lessons_words import Bound, Lesson
from tests.analysis import study_data as studies
from tests.analysis.study_data import KIB, MIB, Levels

CHUNKS = (64 * KIB, 256 * KIB, MIB, 4 * MIB)
FAST = {"a": {"seq-read": 4e8, "rand-read": 1e8}, "b": {"seq-read": 2e8, "rand-read": 2e8}}
TEN = Bound("latency_p99", 0.010)


def of(made: Lessons, question: str, **levels: Any) -> Lesson:
    """The only lesson of a question with these levels."""
    (found,) = [
        one
        for one in made.lessons
        if one.question == question
        and one.where != TOGETHER
        and all(dict(one.levels)[n] == v for n, v in levels.items())
    ]
    return found


def chunks(truth: Callable[[Levels], Mapping[str, float]], **options: Any) -> xr.Dataset:
    return studies.campaign(
        truth, {"pattern": ("seq-read",), "chunk": CHUNKS}, between=0.02, within=0.01, **options
    )


def curve(cell: Levels) -> dict[str, float]:
    """Latency 1, 3, 8, 30 ms; bandwidth grows with each chunk size."""
    i = CHUNKS.index(cell["chunk"])
    return {"bandwidth": (1e8, 2e8, 4e8, 4.4e8)[i], "latency_p99": (1e-3, 3e-3, 8e-3, 3e-2)[i]}


def targets(
    speed: Mapping[str, Mapping[str, float]],
    *,
    attachments: int = 8,
    seed: int = 1,
    sizes: Sequence[int] = (MIB,),
    spread: float = 0.02,
    **columns: Any,
) -> xr.Dataset:
    """target -> pattern -> bandwidth; each target has its own attachment in each block."""
    rng = np.random.default_rng(seed)
    rows = []
    for target, patterns in speed.items():
        shifts = rng.normal(0, spread, attachments)
        for (pattern, rate), chunk, block in itertools.product(
            patterns.items(), sizes, range(attachments)
        ):
            rows.append(
                {
                    "target": target,
                    "pattern": pattern,
                    "chunk": chunk,
                    "block": block,
                    "attachment": f"{target}-{block}",
                    "cache": "cold",
                    "work_id": f"{pattern}{chunk}",
                    "phase": "write" if "write" in pattern else "read",
                    "processes_per_node": 1,
                    "bandwidth": rate * math.exp(shifts[block] + rng.normal(0, spread)),
                    **{name: value(target, block) for name, value in columns.items()},
                }
            )
    return studies.dataset(rows, ["pattern", "chunk", "cache", "processes_per_node"])
