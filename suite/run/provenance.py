"""Where and with what a run was made: recorded by allow-list, never a secret."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

import fsmatrix
from fsmatrix.backends.access import Access
from fsmatrix.backends.base import Backend
from fsmatrix.results.evidence.deployment import Deployment
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.session.client.client import Session

# Environment variables that say how a run was started; everything else stays private.
ALLOWED = (
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_RESTART_COUNT",
    "FSMATRIX_PARALLEL_JOBS",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "LOADEDMODULES",
    "OMP_NUM_THREADS",
)
LIBRARIES = ("numpy", "h5py", "mpi4py")


@dataclass(frozen=True, kw_only=True)
class Environment(Stored):
    """Of all runs of a session."""

    machine: JsonObject  # of `machine`
    mpi: str
    launcher: JsonObject
    nodes: tuple[str, ...]
    target: JsonObject  # as its backend describes it, and its deployment


def machine() -> JsonObject:
    """This host: kernel, CPU, memory, Python, libraries."""
    return {
        "fsmatrix": fsmatrix.__version__,
        "host": platform.node(),
        "kernel": platform.release(),
        "system": _os_name(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": sys.version.split()[0],
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "variables": {name: os.environ[name] for name in ALLOWED if name in os.environ},
    }


def gather(
    backend: Backend, access: Access, session: Session, target: str, planned: Deployment
) -> Environment:
    """The environment of all runs of a session: machine, MPI, launcher, storage.

    `planned`: what was known of the target's deployment before; the storage itself counts first.
    """
    described = backend.describe(access)
    known = backend.deployment(described).completed(planned).document()
    own: JsonObject = {"name": target, "backend": backend.name}
    return of_session(session, {**own, **described, "deployment": known})


def of_session(session: Session, target: JsonObject) -> Environment:
    """The environment with that target."""
    launcher = session.launcher
    return Environment(
        machine=machine(),
        mpi=session.hello.mpi,
        launcher={
            "name": launcher.name,
            "version": launcher.probe_result.version,
            "emulated": launcher.emulated,
            "options": launcher.options,
            "hosts": launcher.hosts,
            "binding": launcher.binding,
            "words": session.words,
        },
        nodes=tuple(sorted({rank.host for rank in session.hello.ranks})),
        target=target,
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
