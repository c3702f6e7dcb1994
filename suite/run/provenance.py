"""Where and with what a run was made: recorded by allow-list, never a secret."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import psutil

import fsmatrix
from fsmatrix.backends.access import Access
from fsmatrix.backends.base import Backend
from fsmatrix.results.evidence.deployment import Deployment
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


def machine() -> dict[str, Any]:
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
) -> dict[str, Any]:
    """The environment of all runs of a session: machine, MPI, launcher, storage.

    `planned`: what was known of the target's deployment before; the storage itself counts first.
    """
    launcher = session.launcher
    described = backend.describe(access)
    return {
        "machine": machine(),
        "mpi": session.hello["mpi"],
        "launcher": {
            "name": launcher.name,
            "version": launcher.probe_result.version,
            "emulated": launcher.emulated,
            "options": list(launcher.options),
            "hosts": list(launcher.hosts),
            "binding": launcher.binding,
            "words": list(session.words),
        },
        "nodes": sorted({rank["host"] for rank in session.hello["ranks"]}),
        "target": {
            "name": target,
            "backend": backend.name,
            **described,
            "deployment": backend.deployment(described).completed(planned).document(),
        },
    }


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
