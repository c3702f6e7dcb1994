"""A real Slurm on one machine, for tests and for trying `fsmatrix submit` on a laptop (root).

    from fsmatrix.slurm.testbed.testbed import SlurmTestbed, SlurmTestbedOptions, down, status, up

    testbed = up(SlurmTestbedOptions(nodes=4), "/tmp/x/bed")  # a directory that is missing or empty
    testbed.conf                 # path of slurm.conf (text)
    testbed.environment()        # {"SLURM_CONF": ...}: all that sbatch, srun... need
    testbed.nodes                # ("node1", "node2", ...): their host names
    testbed.run("sbatch", "job.sh")       # a Slurm command; Ran(returncode, stdout, stderr)
    testbed.kill("slurmd.node2"); testbed.restart("slurmd.node2")
    testbed.stop("slurmctld"); testbed.resume("slurmctld")           # SIGSTOP, SIGCONT
    testbed.end_slurmctld(); testbed.kill("slurmctld"); testbed.restart("slurmctld")
    testbed.wait_ready(60)       # until slurmctld answers and all nodes serve
    SlurmTestbed.open("/tmp/x/bed")       # a test bed that another process brought up
    status("/tmp/x/bed")     # dict; never hangs
    down("/tmp/x/bed")       # list of sentences; idempotent; ends the test bed's jobs too

Each slurmd is in a UTS namespace of its own, so its jobs see the node's host name.  A killed
slurmd leaves its job steps running, as on a real node.  Test beds live side by side.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.rights import Capability, has
from fsmatrix.backends.testbed import daemons, process
from fsmatrix.backends.testbed.base import BaseTestbed, lacking
from fsmatrix.backends.testbed.daemons import Daemon
from fsmatrix.backends.testbed.home import Home
from fsmatrix.backends.testbed.steps import Steps
from fsmatrix.results.evidence.values import Json, JsonObject, text
from fsmatrix.slurm.testbed import down as testbed_down
from fsmatrix.slurm.testbed import make as testbed_make
from fsmatrix.slurm.testbed.conf import SlurmTestbedOptions, refusal
from fsmatrix.slurm.testbed.make import (
    KIND,
    START_WITHIN,
    answer,
    node_problems,
    node_states,
    not_ready,
)

__all__ = ["SlurmTestbed", "SlurmTestbedOptions", "down", "missing", "status", "up"]

STATUS_WITHIN = 5.0  # seconds for asking slurmctld how the nodes are
_PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_POLL = 0.05


@dataclass(frozen=True, kw_only=True)
class SlurmTestbed(BaseTestbed[SlurmTestbedOptions]):
    """A test bed that is up."""

    kind = KIND
    Options = SlurmTestbedOptions

    @classmethod
    def refusal(cls, options: SlurmTestbedOptions, folder: Path) -> str:  # noqa: ARG003
        """Why there can be no such test bed in this directory (empty: there can)."""
        return missing() or refusal(folder)

    @classmethod
    def bring_up(
        cls, home: Home, options: SlurmTestbedOptions, identity: JsonObject, steps: Steps
    ) -> dict[str, Json]:
        """What `make.bring_up` does, and its facts for the test bed's own file."""
        return {"facts": testbed_make.bring_up(home, options, text(identity, "id"), steps)}

    @classmethod
    def end(cls, home: Home, entries: list[Entry]) -> list[str]:
        """End daemons and jobs, as `down.end`; BackendError in one of its own jobs."""
        return testbed_down.end(home, entries)

    def look(self, states: Sequence[Daemon]) -> dict[str, Json]:
        """`health`, and `nodes`: Slurm's own state of each, if slurmctld answers.

        Waits at most STATUS_WITHIN seconds for it, and not at all if it does not run.
        """
        (state,) = [daemon.state for daemon in states if daemon.role == "slurmctld"]
        if state != "running":
            return {"health": [f"slurmctld is {state}"]}
        try:
            nodes = node_states(self._home, STATUS_WITHIN)
        except ToolError as error:
            return {"health": [f"slurmctld does not answer: {error}"]}
        return {"health": node_problems(nodes, self.options), "nodes": nodes}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return self.options.names

    def environment(self) -> dict[str, str]:
        """What Slurm's commands need in their environment."""
        return {"SLURM_CONF": self.conf}

    def run(self, *argv: str, deadline: float = START_WITHIN, check: bool = True) -> tools.Ran:
        """Run a Slurm command; ToolError if it is too slow or, with `check`, fails."""
        return answer(self._home, *argv, deadline=deadline, check=check)

    def restart(self, role: str) -> Entry:
        """As of every test bed; a slurmd gets a namespace of its own again."""
        entry = super().restart(role)
        if role.startswith("slurmd."):
            testbed_make.note_namespace(self._home, entry)
        return entry

    def end_slurmctld(self) -> None:
        """SIGTERM: it saves its state and ends.  Slurm commands fail; running jobs run on.

        BackendError if it does not end within START_WITHIN seconds.
        """
        daemons.signal_daemon(self._home, "slurmctld", signal.SIGTERM)
        entry, deadline = daemons.entry_of(self._home, "slurmctld"), time.monotonic() + START_WITHIN
        while process.ours(process.proven(entry)) is not None:
            if time.monotonic() >= deadline:
                raise BackendError(f"{self.directory}: slurmctld does not end")
            time.sleep(_POLL)

    def wait_ready(self, seconds: float = START_WITHIN) -> None:
        """Until slurmctld answers and every node serves; BackendError after `seconds`."""
        deadline = time.monotonic() + seconds
        while reasons := not_ready(self._home, self.options):
            if time.monotonic() >= deadline:
                raise BackendError(
                    f"{self.directory}: not ready within {seconds:g} s: {'; '.join(reasons)}"
                )
            time.sleep(_POLL)


def missing() -> str:
    """Why no Slurm can be brought up here (empty: it can); for skips and refusals."""
    if reason := lacking(_PROGRAMS, "libpmix.so"):
        return reason
    if not has(Capability.CAP_SYS_ADMIN):
        return "each node is a namespace of its own, and this container's root may make none"
    return ""


up, down, status = SlurmTestbed.up, SlurmTestbed.down, SlurmTestbed.status
