"""Registries of workloads, engines, launchers and storage nodes' watchers; all, for planning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fsmatrix.backends.player.ops import DRIVERS, Driver
from fsmatrix.results.registry import Registry
from fsmatrix.suite.launchers.launcher import Launcher
from fsmatrix.suite.nodes.node_watch import Source
from fsmatrix.suite.workloads.workload import Workload

WORKLOADS: Registry[Workload] = Registry(
    "fsmatrix.workloads",
    {
        "pattern": "fsmatrix.suite.workloads.pattern:Pattern",
        "metadata": "fsmatrix.suite.workloads.metadata:Metadata",
        "ior": "fsmatrix.suite.workloads.ior:Ior",
        "mdtest": "fsmatrix.suite.workloads.mdtest:Mdtest",
        "fio": "fsmatrix.suite.workloads.fio:Fio",
        "dbench": "fsmatrix.suite.workloads.dbench:Dbench",
        "io500": "fsmatrix.suite.workloads.io500:Io500",
        "replay": "fsmatrix.suite.workloads.replay:Replay",
        "tpcc": "fsmatrix.suite.workloads.tpcc:Tpcc",
        "rntuple": "fsmatrix.suite.workloads.rntuple:Rntuple",
    },
    "workload",
)
# values are instances of EngineKind
ENGINES: Registry[Any] = Registry(
    "fsmatrix.engines",
    {
        "ior": "fsmatrix.suite.engines.ior:KIND",
        "mdtest": "fsmatrix.suite.engines.mdtest:KIND",
        "fio": "fsmatrix.suite.engines.fio:KIND",
        "dbench": "fsmatrix.suite.engines.dbench:KIND",
        "ior+mdtest": "fsmatrix.suite.engines.ior_mdtest:KIND",
        "postgresql": "fsmatrix.suite.engines.postgresql:KIND",
        "sqlite": "fsmatrix.suite.engines.sqlite:KIND",
        "root": "fsmatrix.suite.engines.python:ROOT",
        "uproot": "fsmatrix.suite.engines.python:UPROOT",
    },
    "engine",
)
LAUNCHERS: Registry[Launcher] = Registry(
    "fsmatrix.launchers",
    {
        "local": "fsmatrix.suite.launchers.local:Local",
        "mpirun": "fsmatrix.suite.launchers.mpirun:Mpirun",
        "mpiexec": "fsmatrix.suite.launchers.mpiexec:Mpiexec",
        "srun": "fsmatrix.suite.launchers.srun:Srun",
    },
    "launcher",
)
SOURCES: Registry[Source] = Registry(
    "fsmatrix.sources",
    {
        "testbed": "fsmatrix.suite.nodes.testbed:TestbedSource",
        "ssh": "fsmatrix.suite.nodes.ssh:SshSource",
        "prometheus": "fsmatrix.suite.nodes.prometheus:PrometheusSource",
    },
    "source of storage nodes' series",
)


class Lookup(Protocol):
    """What planning needs of a registry."""

    def names(self) -> Any:
        """The names of everything that it can load."""

    def load(self, name: str) -> type[Any]:
        """The class called `name`; UnknownName if there is none."""


@dataclass(frozen=True)
class Registries:
    """Everything that a campaign names."""

    backends: Lookup
    workloads: Lookup = WORKLOADS
    launchers: Lookup = LAUNCHERS
    engines: Lookup = ENGINES
    sources: Lookup = SOURCES
    drivers: Mapping[str, Driver] = field(default_factory=lambda: DRIVERS)


def registries() -> Registries:
    """The registries of this installation, which a plan looks names up in."""
    from fsmatrix.backends.contract import BACKENDS

    return Registries(BACKENDS)
