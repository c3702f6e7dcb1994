"""The workload `mdtest` on engines as real releases describe themselves, and its command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.mdtest import read
from fsmatrix.suite.workloads.mdtest import Mdtest, MdtestOptions
from fsmatrix.suite.workloads.workload import Argv, Step

DATA = Path(__file__).parents[1] / "data" / "mdtest"
PATH = PathAccess("directory", "t", path="/mnt/scratch")
SPLIT = {
    "items": 1_000_000,
    "files_only": True,
    "stonewall": 1,
    "write_bytes": 512,
    "read_bytes": 512,
    "stride": 1,
}


def engine(version: str = "4.1", *more: str) -> Engine:
    answers = [(DATA / f"{name}-{version}.txt").read_text() for name in ("help", "probe")]
    number, features = read(answers)
    return Engine("mdtest", number, "/opt/ior/bin/mdtest", features | set(more))


NEW, OLD = engine(), engine("3.2.1")


def workload(**options: Any) -> Mdtest:
    return Mdtest(MdtestOptions.model_validate(options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case(
        "t", "mdtest", geometry=Geometry(**({"processes_per_node": 2} | geometry)), cache=cache
    )


def steps(
    work: Mdtest, cache: str = "cold", access: Access = PATH, program: Engine = NEW
) -> list[Step]:
    return work.steps(case_of(cache), access, program)


def words(step: Step) -> str:
    assert isinstance(step.what, Argv)
    return " ".join(step.what.argv)
