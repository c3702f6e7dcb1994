"""The Slurm allocation that this process runs in: its nodes, and the CPUs of each."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.suite.launchers.base import PROBE_SECONDS, LauncherError

OUTSIDE = "not inside a Slurm allocation: use fsmatrix submit, or sbatch or salloc"


@dataclass(frozen=True)
class Allocation:
    """What Slurm gave to this job."""

    hosts: tuple[str, ...]
    cpus: tuple[int, ...] = ()  # of each host; empty if Slurm does not say

    def of(self, hosts: Sequence[str]) -> tuple[int, ...]:
        """CPUs of these hosts; () if that is not known of all of them."""
        known = dict(zip(self.hosts, self.cpus, strict=False))
        return tuple(known[host] for host in hosts) if known.keys() >= set(hosts) else ()


def inside(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in an allocation."""
    return bool(environ.get("SLURM_JOB_ID")) and bool(environ.get("SLURM_JOB_NODELIST"))


def current(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """This process's allocation; None outside.  LauncherError if its nodes cannot be read."""
    if not inside(environ):
        return None
    hosts = _hosts(environ["SLURM_JOB_NODELIST"])
    cpus = counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return Allocation(hosts, cpus if len(cpus) == len(hosts) else ())


def _hosts(nodes: str) -> tuple[str, ...]:
    """Names in a list such as "node[1,3-4]": Slurm knows its own notation best."""
    argv = ["scontrol", "show", "hostnames", nodes]
    trouble = ""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        names = tuple(done.stdout.split())
        if done.returncode == 0 and names:
            return names
        trouble = done.stderr.strip() or f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = str(error)
    raise LauncherError(
        f"the nodes of this Slurm allocation ({nodes}) cannot be read: scontrol show hostnames: "
        f"{trouble}; give launcher.hosts"
    )


def counts(text: str) -> tuple[int, ...]:
    """Numbers per node as Slurm writes them: "4(x2),8" is (4, 4, 8); () if it is not that."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return ()
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found)
