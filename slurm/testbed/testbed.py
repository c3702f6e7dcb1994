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

import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.libc import Capability, has
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.base import LEFT, BaseTestbed, end_daemons, lacking, left_alone
from fsmatrix.backends.testbed.daemons import Daemon
from fsmatrix.backends.testbed.home import Home, Steps
from fsmatrix.results.evidence.values import Json, JsonObject, text
from fsmatrix.results.process import environment
from fsmatrix.slurm.testbed import make as testbed_make
from fsmatrix.slurm.testbed.make import (
    KIND,
    START_WITHIN,
    SlurmTestbedOptions,
    answer,
    look_at,
    namespace,
    node_problems,
    node_states,
    not_ready,
    open_files,
    refusal,
)

# Take a Slurm down: its jobs, its daemons, and what jobs left running.


JOBS_END_WITHIN = 10.0  # seconds; KillWait is 5: jobs may clean up after themselves
_ASK_WITHIN = 5.0  # seconds for each question to slurmctld
_POLL = 0.05


def end(home: Home, entries: list[Entry]) -> list[str]:
    """One sentence for each thing that was ended or left alone.

    Jobs are cancelled and get KillWait to end; what is left of them is then killed.  A process
    is a job's if it is in the UTS namespace of one of the test bed's nodes.  If anything is left
    alone, all stays in the journal.  BackendError if this process itself is one of the jobs.
    """
    started = [entry for entry in entries if entry.kind == "process"]
    with ExitStack() as held:
        nodes = _namespaces(home, entries, held)
        lines = _cancel(home, started)
        lines += end_daemons(started)[0]
        lines += _end_jobs(home, nodes)
    if not left_alone(lines):
        for entry in entries:
            home.journal.end(entry)
    return lines


def _cancel(home: Home, started: list[Entry]) -> list[str]:
    """Cancel all jobs, where slurmctld runs and answers; wait until they have ended."""
    states = {entry.facts["role"]: daemons.ours(daemons.proven(entry)) for entry in started}
    controller = states.get("slurmctld")
    if controller is None or controller.state in "Tt":
        return []
    try:
        jobs = _jobs(home)
        if not jobs:
            return []
        for state in ("PENDING", "RUNNING"):  # so that none starts as another ends
            answer(home, "scancel", f"--state={state}", *jobs, deadline=_ASK_WITHIN, check=False)
        answer(home, "scancel", *jobs, deadline=_ASK_WITHIN, check=False)
        deadline = time.monotonic() + JOBS_END_WITHIN
        while _jobs(home) and time.monotonic() < deadline:
            time.sleep(_POLL)
    except ToolError as error:
        return [f"note: jobs were not cancelled but killed: {error}"]
    return [f"cancelled {len(jobs)} job{'s' if len(jobs) > 1 else ''}"]


def _jobs(home: Home) -> list[str]:
    """Ids of all jobs that have not ended; array tasks by their own number."""
    ran = answer(home, "squeue", "--all", "-h", "-r", "-o", "%A", deadline=_ASK_WITHIN)
    return sorted(set(ran.stdout.split()))


def _namespaces(home: Home, here: list[Entry], held: ExitStack) -> set[str]:
    """UTS namespaces of the test bed's nodes, held open so that none is given to anybody else.

    Those of slurmds that run; of Slurm's programs that log into this test bed; and of others that
    were written down, if what is in them names this test bed's slurm.conf.  BackendError if this
    process itself is in one.
    """
    ours = namespace("self")
    slurmds = [daemons.ours(daemons.proven(entry)) for entry in here if entry.kind == "process"]
    pids = {seen.pid for seen in slurmds if seen is not None}
    written = {str(entry.facts["name"]) for entry in here if entry.kind == "uts"}
    if ours in written and _names_conf(home, os.getpid()):
        raise BackendError(f"{home.folder}: this is a job of that test bed; ask from outside")
    namespaces: set[str] = set()
    for seen in _processes():
        sure = seen.pid in pids or _logs_here(home, seen.pid)
        name = namespace(seen.pid)
        if name in namespaces or not (sure or (name in written and _names_conf(home, seen.pid))):
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            handle = os.open(f"/proc/{seen.pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, handle)
            if namespace(seen.pid) == name != ours:
                namespaces.add(name)
    return namespaces


def _end_jobs(home: Home, nodes: set[str]) -> list[str]:
    """Kill all processes of the nodes, until there are none; and slurmctld's helper."""
    killed, deadline = 0, time.monotonic() + daemons.GONE_WITHIN
    while left := [seen for seen in _processes() if _is_left(home, seen.pid, nodes)]:
        if time.monotonic() >= deadline:
            return [
                f"{LEFT}process {seen.pid} ({' '.join(seen.argv)}) does not end" for seen in left
            ]
        for seen in left:
            killed += _kill(home, seen.pid, nodes)
    return [f"ended {killed} processes of jobs"] if killed else []


def _is_left(home: Home, pid: int, nodes: set[str]) -> bool:
    return namespace(pid) in nodes or _logs_here(home, pid)


def _kill(home: Home, pid: int, nodes: set[str]) -> int:
    """SIGKILL it and wait a moment; looked at again by handle, against a pid used again."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        if not _is_left(home, pid, nodes):
            return 0
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 1.0)
        return 1
    except ProcessLookupError:
        return 0
    finally:
        os.close(handle)


def _processes() -> Iterator[daemons.Seen]:
    for folder in Path("/proc").glob("[0-9]*"):
        seen = look_at(folder.name)
        if seen is not None and seen.pid != os.getpid():
            yield seen


def _logs_here(home: Home, pid: int) -> bool:
    """Whether it is a program of Slurm (its command line may say anything) of this test bed."""
    try:
        name = Path(f"/proc/{pid}/exe").readlink().name
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone, or a thread of the kernel
    logs = home.folder / "log"
    return name.startswith("slurm") and any(path.parent == logs for path in open_files(pid))


def _names_conf(home: Home, pid: int) -> bool:
    return os.fsencode(f"SLURM_CONF={home.conf}") in environment(pid)


__all__ = ["SlurmTestbed", "SlurmTestbedOptions", "down", "missing", "status", "up"]

STATUS_WITHIN = 5.0  # seconds for asking slurmctld how the nodes are
_PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")


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
        return end(home, entries)

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
        while daemons.ours(daemons.proven(entry)) is not None:
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
