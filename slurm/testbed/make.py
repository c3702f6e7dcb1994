"""Bring a Slurm up, step by step: munged, slurmctld, then all slurmds at once."""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import socket
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.daemons import Launch
from fsmatrix.backends.testbed.home import Home, Kind, Steps
from fsmatrix.results.evidence.values import Json

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
