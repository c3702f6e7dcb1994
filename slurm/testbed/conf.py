"""What a Slurm test bed may look like, and its slurm.conf."""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.errors import BackendError

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
