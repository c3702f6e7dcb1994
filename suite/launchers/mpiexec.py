"""`mpiexec`: MPICH's hydra (Intel MPI's takes the same options)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsmatrix.results.case import Geometry
from fsmatrix.suite.launchers.base import Launcher, Probe, find_library, find_program

ABI_NAME = "libmpi.so.12"  # what mpi4py asks for; Debian calls it libmpich.so.12


class Mpiexec(Launcher):
    """MPICH's mpiexec."""

    name = "mpiexec"

    @classmethod
    def probe(cls) -> Probe:
        program, version = find_program(
            ("mpiexec.hydra", "mpiexec.mpich", "mpiexec"), r"HYDRA[\s\S]*?Version:\s+(\d[\w.]*)"
        )
        if not program:
            return Probe(False, reason="no MPICH mpiexec (hydra) on PATH")
        library = find_library(program, (ABI_NAME, "libmpich.so.12"))
        return Probe(True, program, version, library=library)

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        words = [self.found.program, "-n", str(geometry.processes), "-bind-to", self.binding]
        words += ["-ppn", str(geometry.processes_per_node)]
        hosts = self.place(geometry)
        if hosts:
            words += ["-hosts", ",".join(hosts)]
        if self.emulated:
            words += ["-launcher", "ssh", "-launcher-exec", self.agent]
        for name, value in env.items():
            words += ["-genv", name, value]
        return [*words, *self.options, *argv]

    def environment(self) -> dict[str, str]:
        env = {"MPI4PY_MPIABI": "mpich"}
        if self.found.library:
            before = os.environ.get("LD_LIBRARY_PATH", "")
            env["LD_LIBRARY_PATH"] = f"{self.scratch}:{before}" if before else self.scratch
        return env

    def prepare(self) -> None:
        super().prepare()
        if self.found.library:
            (Path(self.scratch) / ABI_NAME).symlink_to(self.found.library)
