"""The workload fio and its steps, as tests ask for them."""

from __future__ import annotations

from typing import Any

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.workloads.fio import Fio
from fsmatrix.suite.workloads.fio_options import FioOptions
from fsmatrix.suite.workloads.workload import Argv, Step

MIB = 1 << 20


PATH = PathAccess("directory", "t", path="/mnt/scratch")


def workload(**options: Any) -> Fio:
    return Fio(FioOptions.model_validate({"size": MIB} | options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "fio", geometry=Geometry(**geometry), cache=cache)


def argv(step: Step) -> Argv:
    assert isinstance(step.what, Argv)
    return step.what
