"""The workload `ior` on engines as real releases describe themselves, and its command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.ior import read
from fsmatrix.suite.workloads.ior import Ior, IorOptions
from fsmatrix.suite.workloads.workload import Argv, Step

DATA = Path(__file__).parents[1] / "data" / "ior"
MIB = 1 << 20
PATH = PathAccess("directory", "t", path="/mnt/x")


def text_of(name: str) -> str:
    return (DATA / name).read_text(errors="replace")


def engine_of(release: str = "4.1", *more: str) -> Engine:
    """The engine as the real release's own words describe it."""
    version, features = read([text_of(f"help-{release}.txt"), text_of(f"banner-{release}.txt")])
    return Engine("ior", version, "/opt/ior/bin/ior", features | set(more))


def workload(**options: Any) -> Ior:
    return Ior(IorOptions.model_validate(options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "ior", geometry=Geometry(**geometry), cache=cache)


def steps(work: Ior, case: Case, access: Access = PATH, engine: Engine | None = None) -> list[Step]:
    return work.steps(case, access, engine or engine_of())


def argv(step: Step) -> tuple[str, ...]:
    assert isinstance(step.what, Argv)
    return step.what.argv


def words(step: Step) -> str:
    return " ".join(argv(step))
