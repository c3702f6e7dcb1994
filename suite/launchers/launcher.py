"""The launcher seam: how processes are started.  `command` and `environment` are pure.

A launcher is found once (`probe` looks at the machine) and then only turns an argv and a
geometry into another argv.  `hosts` names the nodes; `emulated` says that they are UTS
namespaces of this machine, entered by the launch agent instead of ssh.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.journal.proof import environment_proof
from fsmatrix.backends.system import libc, tools
from fsmatrix.results.record import Geometry

# The nodes that a batch system gave to a job, and the CPUs of each.


@dataclass(frozen=True)
class Allocation:
    """The hosts that a job has, and how many CPUs on each."""

    hosts: tuple[str, ...]
    cpus: tuple[int, ...] = ()  # of each host; empty if the batch system does not say

    def of(self, hosts: Sequence[str]) -> tuple[int, ...]:
        """CPUs of these hosts; () if that is not known of all of them."""
        cpus_of = dict(zip(self.hosts, self.cpus, strict=False))
        return tuple(cpus_of[host] for host in hosts) if cpus_of.keys() >= set(hosts) else ()


PROBE_SECONDS = 20


class LauncherError(Exception):
    """No launcher can do what was asked; the text says why and what to do."""


@dataclass(frozen=True)
class Probe:
    """What is known about a launcher's program on this machine."""

    ok: bool
    program: str = ""
    version: str = ""
    reason: str = ""
    library: str = ""  # the MPI library that belongs to the program
    offers: tuple[str, ...] = ()  # PMI plugins, of srun

    @property
    def major(self) -> int:
        """First number of the version; 0 if there is none."""
        digits = re.search(r"\d+", self.version)
        return int(digits.group()) if digits else 0


@dataclass(frozen=True)
class Launcher(ABC):
    """Subclasses: ten lines each, one line in registry.LAUNCHERS."""

    probe_result: Probe
    hosts: tuple[str, ...] = ()
    emulated: bool = False
    options: tuple[str, ...] = ()
    scratch: str = ""  # a folder of this session, for what `prepare` writes
    memory: str = ""  # a folder of this session in memory, of this machine
    store: str = ""  # what proves in the environment whose processes these are
    binding: str = "none"  # none, core, socket, numa: words of Open MPI and hydra
    own_network: bool = True  # if it can be
    cpus: tuple[int, ...] = ()  # of each host in a Slurm allocation, where known

    name: ClassVar[str] = ""
    needs_mpi: ClassVar[bool] = True
    mpi: ClassVar[str] = ""  # whose MPI the program is, where it is always the same

    @classmethod
    @abstractmethod
    def probe(cls) -> Probe:
        """Whether it can be used here: its program, version and library."""

    @abstractmethod
    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        """The argv that starts `argv` with this geometry, `env` given to every rank."""

    def environment(self) -> dict[str, str]:
        """What the launcher and its ranks need in their environment."""
        return {}

    @property
    def proof(self) -> dict[str, str]:
        """For the environment of everything that is started (backends/journal/proof.py)."""
        return environment_proof(self.store, Path(self.scratch).name) if self.store else {}

    @property
    def cure(self) -> str:
        """What to do when the world has not come up as asked; "" if there is nothing to say."""
        return ""

    @property
    def agent(self) -> str:
        """Path of the launch agent that plays ssh for emulated nodes."""
        return str(Path(self.scratch) / "agent")

    def prepare(self) -> None:
        """Write what the command needs into the scratch folder."""
        if self.emulated:
            python = shlex.quote(sys.executable)
            script = f'#!/bin/sh\nexec {python} -P -m fsmatrix.suite.launchers.mpirun "$@"\n'
            Path(self.agent).write_text(script)
            Path(self.agent).chmod(0o700)

    def stays_here(self, geometry: Geometry) -> bool:
        """Whether it needs no network, if all of its ranks are on this machine."""
        del geometry
        return False

    def exposure(self, geometry: Geometry) -> str:
        """Why what it starts is not in a network of its own (empty: it is, or nothing listens).

        Launchers believe whoever connects to them: in a network that others are in, every user of
        these machines can have programs started with the rights of who runs the session.
        """
        if not self.needs_mpi:
            return ""
        if not self.is_here(geometry):
            return f"{self.name} needs the network here"
        if not self.own_network:
            return "launcher.own_network is false"
        return libc.network_refusal(self.emulated)

    def is_here(self, geometry: Geometry) -> bool:
        """Whether all that it starts is on this machine, and it speaks to nothing else."""
        del geometry
        return False

    def network(self) -> AbstractContextManager[None]:
        """What is started meanwhile is in a network of its own; OSError if there can be none."""
        return libc.own_network(self.emulated)

    def place(self, geometry: Geometry) -> list[str]:
        """The first `nodes` hosts; LauncherError if there are fewer."""
        if geometry.nodes > max(len(self.hosts), 1):
            raise LauncherError(
                f"{geometry.nodes} client nodes are asked for, the launcher {self.name!r} has "
                f"{max(len(self.hosts), 1)}: give launcher.hosts or launcher.emulated_nodes, or "
                "run in an allocation of that many"
            )
        return list(self.hosts[: geometry.nodes])


def under_slurm() -> dict[str, str]:
    """For mpirun and mpiexec, which start their daemons by srun inside an allocation.

    That srun must neither wait for the session that runs there nor bind the daemons.
    """
    return {"SLURM_OVERLAP": "1", "SLURM_CPU_BIND": "none"} if "SLURM_JOB_ID" in os.environ else {}


def find_program(names: Sequence[str], pattern: str) -> tuple[str, str]:
    """Path and version of the first program whose --version matches `pattern`.

    This Python's own folder comes first (PyPI's Open MPI lives there).  ("", "") if none, or if
    root does not run the first that is found.
    """
    for folder in (str(Path(sys.prefix) / "bin"), *tools.folders()):
        for name in names:
            program = tools.find(name, folder)
            if program is None:
                if tools.refusal(name, folder):
                    return "", ""
                continue
            version = re.search(pattern, answer(program, "--version"))
            if version:
                return program, version.group(1)
    return "", ""


def why_missing(names: Sequence[str], what: str) -> str:
    """Why `find_program` found none: there is no such program, or what it says instead."""
    for name in names:
        if program := tools.find(name):
            printed = _why(answer(program, "--version"))
            return f"{program} does not answer as {what}, it says: {printed}"
        if reason := tools.refusal(name):
            return reason
    return f"no {what} on PATH"


def _why(printed: str) -> str:
    """The one line that tells most: the first of a fatal error or an error, else the last."""
    lines = [" ".join(line.split())[:300] for line in printed.splitlines() if line.strip()]
    for word in ("fatal", "error"):
        for line in lines:
            if re.match(rf"(\S+: )?{word}\b", line, re.IGNORECASE):
                return line
    return lines[-1] if lines else "nothing"


def answer(program: str, question: str) -> str:
    """What a program prints when asked; "" if it cannot be run or takes too long."""
    try:
        done = subprocess.run(
            [program, question],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is not for it
            env={**os.environ, "PATH": tools.path()},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def with_library(program: str, version: str, names: Sequence[str]) -> Probe:
    """A launcher that is there, with the MPI library beside it, which its ranks load.

    Unusable where root loads no such library; without one, ranks load what they find.
    """
    library = find_library(program, names)
    reason = tools.load_refusal(library)
    return Probe(not reason, program, version, reason=reason, library=library)


def find_library(program: str, names: Sequence[str]) -> str:
    """The MPI library beside a program: <prefix>/lib, lib64, lib/<multiarch>; "" if none."""
    prefix = Path(program).resolve().parent.parent
    for start in (Path(program).parent.parent, prefix):
        for folder in ("lib", "lib64", "lib/*-linux-gnu*"):
            for name in names:
                for library in sorted(start.glob(f"{folder}/{name}")):
                    return str(library)
    return ""
