"""A real Slurm on one machine, for tests and for trying `fsmatrix submit` on a laptop (root).

    from fsmatrix.slurm.testbed import SlurmTestbed, SlurmTestbedOptions, down, status, up

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

It comes up step by step: munged, slurmctld, then all slurmds at once.
"""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import select
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.libc import Capability, has
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.bed import LEFT, BaseTestbed, end_daemons, lacking, left_alone
from fsmatrix.backends.testbed.daemons import Daemon, Launch
from fsmatrix.backends.testbed.home import Home, Kind, Steps
from fsmatrix.results.evidence.stored import Json, JsonObject, text
from fsmatrix.results.process import environment

# What a Slurm test bed may look like, and its slurm.conf.


# slurm.conf(5), MaxTime: minutes, minutes:seconds, hours:minutes:seconds, days-hours...
_TIME = re.compile(r"(\d+-)?\d+(:[0-5]?\d){0,2}")
_LICENSES = re.compile(r"[A-Za-z][\w.]*(:\d+)?(,[A-Za-z][\w.]*(:\d+)?)*")
_PLAIN = re.compile(r"[\w./+-]+")  # slurm.conf has neither quotes nor escapes for its paths
# AF_UNIX paths hold 107 bytes; the longest that slurmd makes is its PMIx plugin's.
_SOCKET = "/spool/node64/stepd.slurm.pmix.999999.999"
LONGEST_DIRECTORY = 107 - len(_SOCKET)
_FIRST_PORT, _LAST_PORT = 20000, 32000  # below those that Linux gives away by itself
_TRIES = 100

# Take a Slurm down: its jobs, its daemons, and what jobs left running.
JOBS_END_WITHIN = 10.0  # seconds; KillWait is 5: jobs may clean up after themselves
_ASK_WITHIN = 5.0  # seconds for each question to slurmctld
_POLL_ENDS = 0.05


class SlurmTestbedOptions(BaseModel):
    """A Slurm test bed.  Every node is a slurmd with a host name of its own on this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(default=4, ge=1, le=64, description="compute nodes, node1 to nodeN")
    cpus_per_node: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="CPUs that each node declares; they may be more than there are",
    )
    time_limit: str = Field(
        default="1-00:00:00", description="longest job of partition main, in Slurm's notation"
    )
    short_time_limit: str = Field(default="0:30:00", description="longest job of partition short")
    licenses: str = Field(default="", description="cluster licences, such as scratch:1,ior:2")

    @field_validator("time_limit", "short_time_limit")
    @classmethod
    def _known_time(cls, value: str) -> str:
        if not _TIME.fullmatch(value):
            raise ValueError("write a time as Slurm does: 30, 2:00:00, 1-00:00:00")
        return value

    @field_validator("licenses")
    @classmethod
    def _known_licenses(cls, value: str) -> str:
        if value and not _LICENSES.fullmatch(value):
            raise ValueError("write licences as name:count,name:count")
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return tuple(f"node{number}" for number in range(1, self.nodes + 1))


def refusal(folder: Path) -> str:
    """Why a test bed cannot live in this directory (empty: it can)."""
    if not _PLAIN.fullmatch(str(folder)):
        return (
            f"{str(folder)!r}: slurm.conf can hold only letters, digits and . _ / + - in a path; "
            "choose another directory"
        )
    if len(os.fsencode(folder)) > LONGEST_DIRECTORY:
        return (
            f"{folder}: longer than {LONGEST_DIRECTORY} bytes, too long for the sockets that "
            "slurmd makes below it; choose a shorter directory"
        )
    return ""


def free_ports(nodes: int) -> int:
    """The first of nodes + 1 consecutive TCP ports that nobody uses."""
    for _ in range(_TRIES):
        first = random.randrange(_FIRST_PORT, _LAST_PORT - nodes)
        if all(_free(port) for port in range(first, first + nodes + 1)):
            return first
    raise BackendError(
        f"{nodes + 1} free TCP ports between {_FIRST_PORT} and {_LAST_PORT} were not found"
    )


def _free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("", port))
        except OSError:
            return False
    return True


def conf_text(folder: Path, testbed_id: str, options: SlurmTestbedOptions, port: int) -> str:
    """slurm.conf.  The controller listens on `port`, node K on port + K.

    Only slurmctld can be told to listen on loopback alone; munge keeps strangers from the rest.
    The name of the cluster is the test bed's own.
    """
    nodes = f"node[1-{options.nodes}]" if options.nodes > 1 else "node1"
    ports = f"[{port + 1}-{port + options.nodes}]" if options.nodes > 1 else str(port + 1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    licenses = f"Licenses={options.licenses}\n" if options.licenses else ""
    return f"""\
# A test bed of fsmatrix: all nodes are this machine.
ClusterName=fsmatrix{testbed_id}
SlurmctldHost=localhost
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# a requeued job starts again after cred_expire seconds
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5

StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobcomp.log
MailProg=/bin/true

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
JobRequeue=1
ReturnToService=2
MinJobAge=300
SlurmdTimeout=10
InactiveLimit=0
KillWait=5
MessageTimeout=10
{licenses}
NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports} \
CPUs={options.cpus_per_node} RealMemory={memory}
PartitionName=main Nodes={nodes} Default=YES MaxTime={options.time_limit} State=UP
PartitionName=short Nodes={nodes} MaxTime={options.short_time_limit} State=UP
"""


KIND = Kind(
    "fsmatrix-testbed-slurm",
    "slurm.conf",
    ("run", "log", "state", "spool", "tmp"),
    ("munge.key",),
    words="Slurm test bed",
)
START_WITHIN = daemons.START_WITHIN
_KEY_BYTES = 128  # munged(8): 32 to 1024
_SERVING = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
# Variables by which a user changes what Slurm's commands print or whom they ask.
_PRIVATE = ("SINFO_FORMAT", "SINFO_PARTITION", "SQUEUE_FORMAT", "SLURM_CLUSTERS")
_POLL = 0.01


def bring_up(
    home: Home, options: SlurmTestbedOptions, testbed_id: str, steps: Steps
) -> dict[str, Json]:
    """All steps; returns the facts of the test bed."""
    port = free_ports(options.nodes)
    home.conf.write_text(conf_text(home.folder, testbed_id, options, port))
    with steps.step("munged"):
        _munged(home, steps)
    with steps.step("slurmctld"):
        argv = ("slurmctld", "-D", "-i", "-f", str(home.conf))
        controller = daemons.start(home, Launch("slurmctld", argv))
        daemons.wait_for_port(home, controller, "127.0.0.1", port, steps)
    with steps.step("slurmds"):
        nodes = [_slurmd(home, name) for name in options.names]
        _wait_for_nodes(home, options, [controller, *nodes], steps)
        for entry in nodes:
            note_namespace(home, entry)
    with steps.waiting():
        version = answer(home, "sinfo", "--version").stdout.split()[-1]
    return {"version": version, "port": port, "nodes": list(options.names), "realised": "emulated"}


def _munged(home: Home, steps: Steps) -> None:
    """A munge of the test bed's own: without it any user of this machine could run jobs as root."""
    key, run = home.folder / "munge.key", home.folder / "run"
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
    socket = run / "munge.socket"
    argv = (
        "munged",
        "--foreground",
        "--force",
        "--num-threads=1",
        f"--key-file={key}",
        f"--socket={socket}",
        f"--pid-file={run}/munged.pid",
        f"--seed-file={run}/munge.seed",
        f"--log-file={home.folder}/log/munged.log",
    )
    entry = daemons.start(home, Launch("munged", argv))
    deadline = time.monotonic() + START_WITHIN
    while not socket.is_socket():
        daemons.check(home, [entry])
        if time.monotonic() >= deadline:
            raise BackendError(f"munged made no socket: {daemons.last_words(home, entry)}")
        with steps.waiting():
            time.sleep(_POLL)


def _slurmd(home: Home, name: str) -> Entry:
    for folder in ("spool", "tmp"):
        (home.folder / folder / name).mkdir()
    slurmd = ("slurmd", "-D", "-N", name, "-f", str(home.conf))
    return daemons.start(home, Launch(f"slurmd.{name}", slurmd, host=name))


def _wait_for_nodes(
    home: Home, options: SlurmTestbedOptions, running: list[Entry], steps: Steps
) -> None:
    deadline = time.monotonic() + START_WITHIN
    while True:
        with steps.waiting():
            reasons = not_ready(home, options)
            if not reasons:
                return
            time.sleep(_POLL)
        daemons.check(home, running)
        if time.monotonic() >= deadline:
            raise BackendError(
                f"within {START_WITHIN:g} s not all nodes registered: {'; '.join(reasons)}"
            )


def not_ready(home: Home, options: SlurmTestbedOptions) -> list[str]:
    """Why jobs cannot start on all nodes yet (empty: they can)."""
    try:
        return node_problems(node_states(home, START_WITHIN), options)
    except ToolError as error:
        return [f"slurmctld does not answer: {error}"]


def note_namespace(home: Home, entry: Entry) -> None:
    """Write down the UTS namespace of a node: what runs in it belongs to the test bed.

    CephError (a BackendError) if slurmd ended before it had one.
    """
    while (name := namespace(daemons.pid_of(entry))) in ("", namespace("self")):
        daemons.check(home, [entry])  # unshare(1) has not got so far yet
        time.sleep(_POLL)
    home.journal.begin("uts", node=entry.facts["role"], name=name)


def namespace(pid: int | str) -> str:
    """The UTS namespace of a process, as "uts:[4026531838]"; "" if it is gone or hidden."""
    try:
        return str(Path(f"/proc/{pid}/ns/uts").readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def answer(home: Home, *argv: str, deadline: float = START_WITHIN, check: bool = True) -> tools.Ran:
    """Run one of Slurm's commands against this test bed; ToolError as tools.run."""
    unset = [word for name in _PRIVATE if name in os.environ for word in ("-u", name)]
    return tools.run(["env", *unset, f"SLURM_CONF={home.conf}", *argv], deadline, check)


def node_states(home: Home, deadline: float) -> dict[str, str]:
    """Slurm's state of each node ("idle", "down*"...); ToolError if slurmctld does not answer."""
    ran = answer(home, "sinfo", "-h", "-N", "-p", "main", "-o", "%N %T", deadline=deadline)
    lines = (line.split() for line in ran.stdout.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def node_problems(states: dict[str, str], options: SlurmTestbedOptions) -> list[str]:
    """A sentence for each node that does not serve; a trailing * means that it does not answer."""
    states_of = ((name, states.get(name, "missing")) for name in options.names)
    return [
        f"{name} is {state}" for name, state in states_of if state.rstrip("-^$@+") not in _SERVING
    ]


def look_at(pid: str) -> daemons.Seen | None:
    """A process; None if it is gone or only its exit status is left."""
    seen = daemons.look(int(pid))
    return None if seen is None or seen.state in "ZX" else seen


def open_files(pid: int) -> list[Path]:
    """What a process has open, as far as it can be told."""
    files = []
    try:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                files.append(link.readlink())
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:  # deeper than a path may be: none of ours
                    raise
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended, or closed it, meanwhile
    return files


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
            time.sleep(_POLL_ENDS)
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
        """What `bring_up` does, and its facts for the test bed's own file."""
        return {"facts": bring_up(home, options, text(identity, "id"), steps)}

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
            note_namespace(self._home, entry)
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
            time.sleep(_POLL_ENDS)

    def wait_ready(self, seconds: float = START_WITHIN) -> None:
        """Until slurmctld answers and every node serves; BackendError after `seconds`."""
        deadline = time.monotonic() + seconds
        while reasons := not_ready(self._home, self.options):
            if time.monotonic() >= deadline:
                raise BackendError(
                    f"{self.directory}: not ready within {seconds:g} s: {'; '.join(reasons)}"
                )
            time.sleep(_POLL_ENDS)


def missing() -> str:
    """Why no Slurm can be brought up here (empty: it can); for skips and refusals."""
    if reason := lacking(_PROGRAMS, "libpmix.so"):
        return reason
    if not has(Capability.CAP_SYS_ADMIN):
        return "each node is a namespace of its own, and this container's root may make none"
    return ""


up, down, status = SlurmTestbed.up, SlurmTestbed.down, SlurmTestbed.status
