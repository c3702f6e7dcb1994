"""The score of IO500: its phases, their units, and how one number is made of them.

The score is the geometric mean of two values: the geometric mean of the four bandwidths in
GiB/s and that of the eight rates in thousands of operations per second (IO500's main.c,
calc_score).  IO500 leaves out of its means what is zero, and calls the run invalid; here
there is no score then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

GIB = 1 << 30
KILO = 1000.0
BANDWIDTHS = ("ior-easy-write", "ior-easy-read", "ior-hard-write", "ior-hard-read")
RATES = (
    "mdtest-easy-write",
    "mdtest-easy-stat",
    "mdtest-easy-delete",
    "mdtest-hard-write",
    "mdtest-hard-stat",
    "mdtest-hard-read",
    "mdtest-hard-delete",
    "find",
)
PHASES = (*BANDWIDTHS, *RATES)
RANDOM_READ = "ior-rnd4K-easy-read"  # since 2024; no part of the score
_KINDS = {"create": "write", "remove": "delete"}  # of the workload `io500` -> IO500's word


@dataclass(frozen=True)
class Score:
    """The three numbers of an IO500 run; None where a phase that they need is missing."""

    bandwidth: float | None  # GiB/s
    rate: float | None  # thousands of operations per second
    total: float | None


def phase_of(name: str) -> str:
    """IO500's name of a phase that it or the workload `io500` calls `name`; empty if none.

    The workload puts the kind first: create-mdtest-easy is mdtest-easy-write.
    """
    kind, _, home = name.partition("-")
    for spelling in (name, f"{home}-{_KINDS.get(kind, kind)}"):
        if spelling in PHASES or spelling == RANDOM_READ:
            return spelling
    return ""


def score(values: Mapping[str, float]) -> Score:
    """Of IO500's phases by name: GiB/s of BANDWIDTHS, thousands per second of RATES."""
    bandwidth, rate = (_mean(values, names) for names in (BANDWIDTHS, RATES))
    complete = bandwidth is not None and rate is not None
    return Score(bandwidth, rate, math.sqrt(bandwidth * rate) if complete else None)  # type: ignore[operator]


def _mean(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """Geometric mean; None if one of them is missing or not a positive number."""
    factors = [values.get(name, math.nan) for name in names]
    if not all(math.isfinite(value) and value > 0 for value in factors):
        return None
    return math.exp(math.fsum(map(math.log, factors)) / len(factors))
