"""`srun`: Slurm starts the ranks itself, inside an allocation."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.launchers.launcher import (
    Launcher,
    LauncherError,
    Probe,
    answer,
    find_program,
    why_missing,
)
from fsmatrix.suite.launchers.mpiexec import Mpiexec
from fsmatrix.suite.launchers.mpirun import Mpirun

OUTSIDE = "not inside a Slurm allocation: use fsmatrix submit, or sbatch or salloc"
_BINDINGS = {"none": "none", "core": "cores", "socket": "sockets", "numa": "ldoms"}
# PMI plugins that an MPI library may speak, best first
_SPEAKS = {
    mpirun.OPEN_MPI: ("pmix",),
    mpirun.MPICH: ("pmi2", "pmix", "cray_shasta"),
    "": ("pmix", "pmi2"),
}


class Srun(Launcher):
    """Slurm's srun; the MPI library is the one that mpirun or mpiexec on PATH belongs to."""

    name = "srun"

    @classmethod
    def probe(cls) -> Probe:
        program, version = find_program(("srun",), r"slurm\S* (\d[\w.]*)")
        if not program:
            return Probe(False, reason=why_missing(("srun",), "srun"))
        if not os.environ.get("SLURM_JOB_ID") or not os.environ.get("SLURM_JOB_NODELIST"):
            return Probe(False, program, version, reason=OUTSIDE)
        of_mpi = next(filter(None, (kind.probe().library for kind in (Mpirun, Mpiexec))), "")
        offers = plugins(answer(program, "--mpi=list"))
        return Probe(True, program, version, library=of_mpi, offers=offers)

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        if self.emulated:
            raise LauncherError("srun takes nodes of its allocation: emulated_nodes needs mpirun")
        per_node, threads = geometry.processes_per_node, geometry.threads
        fewest = min(self.cpus[: geometry.nodes], default=0)
        words = [self.probe_result.program, "--overlap", "--export=ALL", "--kill-on-bad-exit=1"]
        words += [f"--nodes={geometry.nodes}", f"--ntasks={geometry.processes}"]
        words += [f"--ntasks-per-node={per_node}", f"--cpus-per-task={self._share(geometry)}"]
        words += ["--distribution=block:block", f"--cpu-bind={_BINDINGS[self.binding]}"]
        hosts = self.place(geometry)
        if hosts:
            words.append(f"--nodelist={','.join(hosts)}")
        if 0 < fewest < per_node * threads:
            words.append("--overcommit")
        if self.pmi and not self._is_told:
            words.append(f"--mpi={self.pmi}")
        given = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        return [*words, *self.options, *given, *argv]

    def _share(self, geometry: Geometry) -> int:
        """CPUs of a task: its part of the node, so that a step is not held to fewer than those.

        srun no longer takes the number from sbatch (since 22.05), and with one it keeps a step
        to exactly so many CPUs.
        """
        fewest = min(self.cpus[: geometry.nodes], default=0)
        return max(geometry.threads, fewest // geometry.processes_per_node)

    @property
    def pmi(self) -> str:
        """The PMI plugin that fits the MPI library; "": Slurm's own default."""
        wanted = _SPEAKS[mpirun.family(self.probe_result.library)]
        if "cray" in self.probe_result.library:
            wanted = ("cray_shasta", *wanted)
        return next(filter(None, (_newest(name, self.probe_result.offers) for name in wanted)), "")

    @property
    def _is_told(self) -> bool:
        return any(word.partition("=")[0] == "--mpi" for word in self.options)

    @property
    def cure(self) -> str:
        used = f"--mpi={self.pmi}" if self.pmi else "its default PMI"
        if self._is_told:
            used = " ".join(self.options)
        offers = ", ".join(self.probe_result.offers) or "none"
        return (
            f"srun used {used}, and this Slurm offers {offers}: "
            "Open MPI needs --mpi=pmix, MPICH and Intel MPI --mpi=pmi2 (Intel MPI also "
            "I_MPI_PMI_LIBRARY); give it in launcher.options, or use the launcher mpirun"
        )

    def environment(self) -> dict[str, str]:
        env = mpirun.environment(self.probe_result.library, self.scratch)
        if mpirun.family(self.probe_result.library) == mpirun.OPEN_MPI:
            env["OMPI_MCA_mpi_yield_when_idle"] = "1"  # as Mpirun
        return env

    def prepare(self) -> None:
        mpirun.prepare(self.probe_result.library, self.scratch)


def _newest(name: str, offers: Sequence[str]) -> str:
    """`name` itself (Slurm then takes its newest), or its highest version; "" if not offered."""
    versions = [offer for offer in offers if re.fullmatch(rf"{name}_v\d+", offer)]
    newest = max(versions, key=lambda offer: int(offer.rpartition("_v")[2]), default="")
    return name if name in offers else newest


def plugins(text: str) -> tuple[str, ...]:
    """Names in the output of `srun --mpi=list`, which differs between versions of Slurm."""
    lines = (line.removeprefix("srun:").strip() for line in text.splitlines())
    named = [line for line in lines if re.fullmatch(r"\w+", line)]
    special = re.search(r"specific pmix plugin versions available:(.*)", text)
    return tuple(dict.fromkeys([*named, *re.findall(r"\w+", special[1] if special else "")]))
