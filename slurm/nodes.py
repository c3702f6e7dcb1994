"""The nodes of a Slurm allocation, and the CPUs of each, from Slurm's own notation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.suite.launchers.allocation import Allocation
from fsmatrix.suite.launchers.base import PROBE_SECONDS, LauncherError


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation in an environment; None without one.  LauncherError if it cannot be read."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    if not environ.get("SLURM_JOB_ID") or not nodes:
        return None
    hosts = _hosts(nodes)
    cpus = counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return Allocation(hosts, cpus if len(cpus) == len(hosts) else ())


def _hosts(nodes: str) -> tuple[str, ...]:
    """Names in a list such as "node[1,3-4]": Slurm knows its own notation best."""
    try:
        done = tools.run(["scontrol", "show", "hostnames", nodes], PROBE_SECONDS, check=False)
        names = tuple(done.stdout.split())
        if done.returncode == 0 and names:
            return names
        trouble = done.stderr.strip() or f"status {done.returncode}"
    except ToolError as error:
        trouble = str(error)
    raise LauncherError(
        f"the nodes of this Slurm allocation ({nodes}) cannot be read: scontrol show hostnames: "
        f"{trouble}; give launcher.hosts"
    )


def counts(text: str) -> tuple[int, ...]:
    """Numbers per node as Slurm writes them: "4(x2),8" is (4, 4, 8); () if it is not that."""
    per_node: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return ()
        per_node += [int(match[1])] * int(match[2] or 1)
    return tuple(per_node)
