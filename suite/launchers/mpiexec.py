"""`mpiexec`: MPICH's hydra (Intel MPI's takes the same options)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.launchers.launcher import (
    Launcher,
    Probe,
    find_program,
    under_slurm,
    why_missing,
    with_library,
)


class Mpiexec(Launcher):
    """MPICH's mpiexec (hydra), over ssh or in a job."""

    name = "mpiexec"
    mpi = "MPICH"

    @classmethod
    def probe(cls) -> Probe:
        program, version = find_program(
            ("mpiexec.hydra", "mpiexec.mpich", "mpiexec"), r"HYDRA[\s\S]*?Version:\s+(\d[\w.]*)"
        )
        if not program:
            return Probe(False, reason=why_missing(("mpiexec",), "MPICH mpiexec (hydra)"))
        return with_library(program, version, (mpirun.MPICH_NAME, "libmpich.so.12"))

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        words = [self.probe_result.program, "-n", str(geometry.processes), "-bind-to", self.binding]
        words += ["-ppn", str(geometry.processes_per_node)]
        hosts = self.place(geometry)
        if hosts:
            words += ["-hosts", ",".join(hosts)]
        if self.emulated:
            words += ["-launcher", "ssh", "-launcher-exec", self.agent]
        for name, value in env.items():
            words += ["-genv", name, value]
        return [*words, *self.options, *argv]

    def is_here(self, geometry: Geometry) -> bool:
        """Not in an allocation: there it has its daemons started by srun, on this node too."""
        return self.emulated or not self.place(geometry)

    def stays_here(self, geometry: Geometry) -> bool:
        """On one node.  Nodes that are emulated talk by TCP, also to link-local addresses."""
        return geometry.nodes == 1

    def environment(self) -> dict[str, str]:
        chosen = mpirun.environment(self.probe_result.library, self.scratch)
        # emulated nodes may be in user namespaces, which see neither each other's /proc/PID/fd
        # nor each other's memory (cma)
        apart = {"UCX_POSIX_USE_PROC_LINK": "n", "UCX_TLS": "^cma"}
        shared = apart if self.emulated else {}
        if self.memory and (self.emulated or not self.hosts):  # all ranks are on this machine
            shared = shared | {"UCX_POSIX_DIR": self.memory}  # without links its files stay there
        return {"MPI4PY_MPIABI": mpirun.MPICH} | chosen | shared | under_slurm()

    def prepare(self) -> None:
        super().prepare()
        mpirun.prepare(self.probe_result.library, self.scratch)
