"""The workload `io500` in a small size, its engines, its phases in their order."""

from __future__ import annotations

from typing import Any

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.io500 import Io500, Io500Options

ACCESS = PathAccess("directory", "t")
PLAYER = Engine("player-c", "1")
IOR_FEATURES = {"option:stonewall-status-file", "option:ranks-csv", "option:random-offsets"}
MDTEST_OPTIONS = ("x", "W", "Y", "X", "P", "saveRankPerformanceDetails")
PAIR = Engine(
    "ior+mdtest",
    "4.1.0",
    "/opt/ior/bin/ior",
    frozenset(
        {*IOR_FEATURES, "mdtest:/opt/ior/bin/mdtest"}
        | {f"mdtest-option:{name}" for name in MDTEST_OPTIONS}
    ),
)
IN_ORDER = [
    "write-ior-easy",
    "create-mdtest-easy",
    "write-ior-hard",
    "create-mdtest-hard",
    "find",
    "read-ior-easy",
    "stat-mdtest-easy",
    "read-ior-hard",
    "stat-mdtest-hard",
    "remove-mdtest-easy",
    "read-mdtest-hard",
    "remove-mdtest-hard",
    "read-ior-rnd4K-easy",
]
RANDOM = IN_ORDER[-1]
SMALL = {
    "ior_easy_transfer_size": "64KiB",
    "ior_easy_block_size": "512KiB",
    "ior_hard_segments": 7,
    "mdtest_easy_n": 11,
    "mdtest_hard_n": 102,
}


def workload(**options: Any) -> Io500:
    return Io500(Io500Options.model_validate({**SMALL, **options}))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "io500", geometry=Geometry(**geometry), cache=cache)
