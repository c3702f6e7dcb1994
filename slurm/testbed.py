"""A real Slurm on one machine, for tests and for trying `fsmatrix submit` on a laptop (root).

    from fsmatrix.slurm.testbed import BedOptions, SlurmBed, down, missing, status, up

    bed = up(BedOptions(nodes=4), "/tmp/x/bed")   # a directory of its own: missing or empty
    bed.conf                 # path of slurm.conf (text)
    bed.environment()        # {"SLURM_CONF": ...}: all that sbatch, srun... need
    bed.nodes                # ("node1", "node2", ...): their host names
    bed.run("sbatch", "job.sh")       # a Slurm command; Ran(returncode, stdout, stderr)
    bed.kill_slurmd("node2"); bed.restart_slurmd("node2")
    bed.stop_slurmctld(); bed.cont_slurmctld()           # SIGSTOP, SIGCONT
    bed.end_slurmctld(); bed.kill_slurmctld(); bed.restart_slurmctld()
    bed.wait_ready(60)       # until slurmctld answers and all nodes serve
    SlurmBed.open("/tmp/x/bed")       # a bed that another process brought up
    status("/tmp/x/bed")     # dict; never hangs
    down("/tmp/x/bed")       # list of sentences; idempotent; ends the bed's jobs too

Each slurmd is in a UTS namespace of its own, so its jobs see the node's host name.  A killed
slurmd leaves its job steps running, as on a real node.  Beds live side by side.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import daemons, process
from fsmatrix.backends.testbed.home import Home, fresh_id
from fsmatrix.backends.testbed.steps import Step, Steps
from fsmatrix.slurm import testbed_down, testbed_make
from fsmatrix.slurm.testbed_conf import BedOptions, refusal
from fsmatrix.slurm.testbed_make import KIND, START_WITHIN, answer, node_states, not_ready, troubles

__all__ = ["BedOptions", "SlurmBed", "down", "missing", "status", "up"]

STATUS_WITHIN = 5.0  # seconds for asking slurmctld how the nodes are
_PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_PACKAGES = "slurmctld slurmd slurm-client libpmix2"  # munge comes with them
_POLL = 0.05


@dataclass(frozen=True)
class SlurmBed:
    """A test bed that is up."""

    directory: str
    conf: str
    options: BedOptions
    facts: dict[str, Any]
    steps: tuple[dict[str, Any], ...] = ()
    _home: Home = field(default_factory=lambda: Home(Path(), KIND), repr=False, compare=False)

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """The bed in `directory`; BackendError if there is none or it is not whole."""
        home = Home.at(directory, KIND)
        known = home.read() if home.exists() else {}
        if not known:
            raise BackendError(f"{home.folder} holds no Slurm test bed")
        if not known.get("complete"):
            raise BackendError(f"{home.folder}: bringing this test bed up was interrupted: down")
        return cls(
            directory=str(home.folder),
            conf=str(home.conf),
            options=BedOptions.model_validate(known["options"]),
            facts=known["facts"],
            steps=tuple(known["steps"]),
            _home=home,
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return self.options.names

    def environment(self) -> dict[str, str]:
        """What Slurm's commands need in their environment."""
        return {"SLURM_CONF": self.conf}

    def run(self, *argv: str, deadline: float = START_WITHIN, check: bool = True) -> tools.Ran:
        """Run a command against this bed; ToolError if it is too slow or, with `check`, fails."""
        return answer(self._home, *argv, deadline=deadline, check=check)

    def pid(self, role: str) -> int:
        """The pid of "munged", "slurmctld" or "slurmd.node1"."""
        return int(daemons.entry_of(self._home, role).facts["pid"])

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL; returns when it is gone.  Its job steps run on."""
        daemons.kill(self._home, f"slurmd.{node}")

    def restart_slurmd(self, node: str) -> None:
        """Start it again (one that runs is killed first); returns at once."""
        entry = daemons.restart(self._home, f"slurmd.{node}")
        testbed_make.note_namespace(self._home, entry)

    def stop_slurmctld(self) -> None:
        """SIGSTOP: every Slurm command hangs until its own timeout."""
        daemons.stop(self._home, "slurmctld")

    def cont_slurmctld(self) -> None:
        """SIGCONT."""
        daemons.signal_daemon(self._home, "slurmctld", signal.SIGCONT)

    def end_slurmctld(self) -> None:
        """SIGTERM: it saves its state and ends.  Slurm commands fail; running jobs run on.

        BackendError if it does not end within START_WITHIN seconds.
        """
        daemons.signal_daemon(self._home, "slurmctld", signal.SIGTERM)
        entry, deadline = daemons.entry_of(self._home, "slurmctld"), time.monotonic() + START_WITHIN
        while process.ours(entry.facts) is not None:
            if time.monotonic() >= deadline:
                raise BackendError(f"{self.directory}: slurmctld does not end")
            time.sleep(_POLL)

    def kill_slurmctld(self) -> None:
        """SIGKILL: as `end_slurmctld`, but what it knew of the last seconds is lost, also jobs."""
        daemons.kill(self._home, "slurmctld")

    def restart_slurmctld(self) -> None:
        """Start it again with the state that it saved; returns at once."""
        daemons.restart(self._home, "slurmctld")

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
    if os.geteuid() != 0:
        return "a test bed needs root"
    for program in _PROGRAMS:
        if tools.find(program) is None:
            return f"{program} is missing: apt install {_PACKAGES}"
    return ""


def up(
    options: BedOptions,
    directory: Path | str,
    *,
    begun: Callable[[str], None] = lambda _: None,
    ended: Callable[[Step], None] = lambda _: None,
) -> SlurmBed:
    """Bring a bed up; `begun` and `ended` tell of each step.

    BackendError if it is refused (then nothing was started) or fails (then what was made is
    taken down again).
    """
    home = Home.at(directory, KIND)
    reason = missing() or refusal(home.folder)
    if reason:
        raise BackendError(reason)
    home.make()
    steps = Steps(begun, ended)
    with home.locked():
        known: dict[str, Any] = {
            "complete": False, "id": fresh_id(), "made": time.time(),
            "options": options.model_dump(),
        }  # fmt: skip
        try:
            home.write(known)
            facts = testbed_make.bring_up(home, options, known["id"], steps)
            timed = [step.as_json() for step in steps.all]
            home.write({**known, "complete": True, "facts": facts, "steps": timed})
        except BaseException as error:
            left = testbed_down.left_alone(testbed_down.take_down(home))
            for line in left:
                error.add_note(line)
            if left and isinstance(error, Exception):
                raise BackendError(f"{error}; {'; '.join(left)}") from error
            raise
    return SlurmBed.open(directory)


def down(directory: Path | str) -> list[str]:
    """Take the bed in `directory` down, whole or not, with its jobs; [] if there is none."""
    home = Home.at(directory, KIND)
    if not home.exists():
        return []
    with home.locked():
        return testbed_down.take_down(home)


def status(directory: Path | str) -> dict[str, Any]:
    """How the bed is: `state` (none, interrupted, up, degraded), daemons, nodes, health, facts.

    `nodes` has Slurm's own state of each node.  Never waits longer than STATUS_WITHIN seconds
    for slurmctld.
    """
    home = Home.at(directory, KIND)
    if not home.exists():
        return {"directory": str(home.folder), "state": "none"}
    known = home.read()
    found: dict[str, Any] = {
        "directory": str(home.folder),
        "conf": str(home.conf),
        "daemons": daemons.states(home),
        **{key: known[key] for key in ("options", "facts", "steps") if key in known},
    }
    if not known.get("complete"):
        return {**found, "state": "interrupted"}
    options = BedOptions.model_validate(known["options"])
    found["health"] = _controller(found["daemons"])
    if not found["health"]:
        try:
            found["nodes"] = node_states(home, STATUS_WITHIN)
            found["health"] = troubles(found["nodes"], options)
        except ToolError as error:
            found["health"] = [f"slurmctld does not answer: {error}"]
    running = all(one["state"] == "running" for one in found["daemons"])
    return {**found, "state": "up" if running and not found["health"] else "degraded"}


def _controller(states: list[dict[str, Any]]) -> list[str]:
    """Why slurmctld need not be asked (empty: it runs)."""
    (state,) = [one["state"] for one in states if one["role"] == "slurmctld"]
    return [] if state == "running" else [f"slurmctld is {state}"]
