"""A real DAOS on one machine, where its server is installed, for tests and emulated factors (root).

    from fsmatrix.backends.testbed.daos_testbed import DaosTestbed, DaosTestbedOptions, up...

    bed = up(DaosTestbedOptions(nodes=2), "/tmp/x/bed")  # a directory of its own
    bed.conf          # path of dmg's configuration file (text)
    bed.pool          # label of the pool on all nodes; "" if none was made
    bed.system        # name of the DAOS system
    bed.agent         # folder of the agent's socket
    bed.environment() # {"DAOS_AGENT_DRPC_DIR": ...}: all that clients need
    bed.facts         # JSON-able: version, factors (with `realised`), nodes and their ranks...
    bed.control.create("mine", [0], 1 << 30)             # dmg
    bed.kill("engine.1"); bed.stop("engine.1"); bed.resume("engine.1")
    bed.kill("agent"); bed.restart("agent"); bed.stop("agent"); bed.resume("agent")
    DaosTestbed.open("/tmp/x/bed")    # a bed that another process brought up
    status("/tmp/x/bed")      # dict; never hangs
    down("/tmp/x/bed")        # list of sentences; idempotent; also after any crash

Each node is a server with one engine in network, mount, UTS and IPC namespaces of its own: its
storage (a tmpfs), shared memory and sockets end with its last process.  The agent is the bed's
own; one of the site is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from fsmatrix.backends.contract import SpeedEstimate
from fsmatrix.backends.daos.tools import Control
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.system.libc import Capability
from fsmatrix.backends.testbed import bed, daos_bringup
from fsmatrix.backends.testbed.bed import StorageTestbed, lacking, left_alone
from fsmatrix.backends.testbed.daemons import Daemon
from fsmatrix.backends.testbed.daos_bringup import GIB, DaosTestbedOptions
from fsmatrix.backends.testbed.home import Home, Kind, Steps
from fsmatrix.results.evidence.stored import Json, JsonObject, Scalar, inside, text, wholes

__all__ = ["DaosTestbed", "DaosTestbedOptions", "down", "missing", "status", "up"]

KIND = Kind(
    "fsmatrix-testbed-daos",
    "daos_control.yml",
    ("bin", "run", "log"),
    ("daos_agent.yml",),
    ("node",),
    words="DAOS test bed",
)
STATUS_WITHIN = 30.0  # seconds for asking the management service how the engines are
PROGRAMS = ("daos_server", "daos_engine", "daos_agent", "dmg", "daos")
TOOLS = ("ip", "tc")
SPARE = GIB  # bytes of memory beside the engines' storage: for engines, servers and clients
FUSE = Path("/dev/fuse")
_UP_SECONDS, _NODE_SECONDS = 10.0, 5.0  # to bring it up and take it down, and for each node


@dataclass(frozen=True, kw_only=True)
class DaosTestbed(StorageTestbed[DaosTestbedOptions]):
    """A test bed that is up."""

    kind = KIND
    Options = DaosTestbedOptions

    agent: str
    bridge: str
    system: str = daos_bringup.SYSTEM

    # What it needs

    @classmethod
    def refusal(cls, options: DaosTestbedOptions, folder: Path) -> str:
        """Why there can be no such bed in this directory, now (empty: there can)."""
        return options.refusal() or cls.missing() or _crowded(options) or _covered(folder)

    @classmethod
    def missing(cls) -> str:
        """Why no DAOS can be brought up here (empty: it can); for skips and refusals."""
        if reason := lacking(TOOLS):
            return reason
        for capability in (Capability.CAP_SYS_ADMIN, Capability.CAP_NET_ADMIN):
            if not libc.has(capability):
                return (
                    f"a DAOS test bed needs {capability.name} (mounts, namespaces, links), which "
                    "this process lacks: run it as root outside of containers, or in a "
                    "privileged one"
                )
        if reason := next(filter(None, map(tools.refusal, PROGRAMS)), ""):
            return reason
        absent = [name for name in PROGRAMS if tools.find(name) is None]
        if absent:
            return (
                f"{', '.join(absent)}: not on PATH; install DAOS's packages daos-server, "
                "daos-client and daos-admin (docs.daos.io), or load its module"
            )
        return ""

    @classmethod
    def warnings(cls, options: DaosTestbedOptions) -> list[str]:
        """What will work, but not well."""
        lines, cores = [], daos_bringup.cores()
        polling = options.nodes * options.targets_per_node
        if polling > cores:
            lines.append(
                f"{polling} targets poll on {cores} cores: engines and clients take the CPU from "
                "each other, and what is measured is the machine; use fewer nodes or targets"
            )
        if not FUSE.exists():
            lines.append(f"{FUSE} is missing: DFUSE cannot mount here (modprobe fuse)")
        return lines

    # What a campaign asks

    def node_of(self, role: str) -> str:
        """That of a server and of its engine; the agent is on none."""
        kind, _, number = role.partition(".")
        return f"node{number}" if kind in ("server", "engine") else ""

    @classmethod
    def attributes(cls, options: DaosTestbedOptions) -> dict[str, Scalar]:
        """Nodes, targets and links."""
        return {
            "storage_nodes": options.nodes,
            "targets_per_node": options.targets_per_node,
            "network": options.network,
        }

    @classmethod
    def pace(cls, options: DaosTestbedOptions, pace: SpeedEstimate) -> SpeedEstimate:
        """As fast as its links let it."""
        rates = [pace.bandwidth]
        if bits := options.bits_per_second:
            rates.append(bits / 8 * options.nodes)
        attach = pace.attach + _UP_SECONDS + options.nodes * _NODE_SECONDS
        return replace(pace, attach=attach, bandwidth=min(rates))

    def environment(self) -> dict[str, str]:
        """What DAOS's clients need in their environment to reach this bed."""
        return {"DAOS_AGENT_DRPC_DIR": self.agent}

    # Its life

    @classmethod
    def bring_up(
        cls, home: Home, options: DaosTestbedOptions, identity: JsonObject, steps: Steps
    ) -> dict[str, Json]:
        """Start servers, engines and agent, and make the pool: see daos_bringup.py."""
        made = daos_bringup.Making(home, options, steps, text(identity, "id")).bring_up()
        return {**made, "facts": {**inside(made, "facts"), "warnings": cls.warnings(options)}}

    @classmethod
    def end(cls, home: Home, entries: list[Entry]) -> list[str]:
        """End processes, then remove what they were in; a line for each thing done."""
        sentences = bed.processes(home, entries)
        sentences += daos_bringup.end_rest(home.journal.identity.store)
        if left_alone(sentences):
            return sentences
        return sentences + bed.things(home, entries, bed.NETWORK)

    def look(self, states: Sequence[Daemon]) -> dict[str, Json]:  # noqa: ARG002
        """`health` and the `ranks`' states; waits at most STATUS_WITHIN seconds for them."""
        try:
            members = Control(self.conf, STATUS_WITHIN).members()
        except BackendError as error:
            return {"health": [str(error)]}
        ranks = {str(member.rank): member.state for member in members}
        health = [
            f"rank {rank} is {state}"
            for rank, state in ranks.items()
            if state != daos_bringup.JOINED
        ]
        return {"health": health, "ranks": ranks}

    @property
    def control(self) -> Control:
        """dmg of this bed."""
        return Control(self.conf)

    @property
    def pool(self) -> str:
        """Label of the pool on all nodes; "" if none was made."""
        return self.options.pool if self.options.pool_percent else ""

    def ranks(self, node: int) -> list[int]:
        """Ranks of the engines of node 1, 2..."""
        return list(wholes(inside(self.facts, "nodes", f"node{node}"), "ranks"))


def _crowded(options: DaosTestbedOptions) -> str:
    """Why the memory does not suffice (empty: it does)."""
    wanted, there = options.nodes * options.memory + SPARE, psutil.virtual_memory().available
    if wanted <= there:
        return ""
    return (
        f"{options.nodes} nodes keep up to {options.memory / GIB:g} GiB each in memory and need "
        f"{SPARE / GIB:g} GiB beside it, {wanted / GIB:.1f} GiB; {there / GIB:.1f} GiB are "
        "available: use fewer nodes, or end what uses memory"
    )


def _covered(folder: Path) -> str:
    """What is mounted where the bed would be (empty: nothing)."""
    inside = mounts.mounted_below(folder)
    if not inside:
        return ""
    return f"{inside[0].point} is mounted in the test bed's directory: unmount it first"


up, down, status = DaosTestbed.up, DaosTestbed.down, DaosTestbed.status
missing = DaosTestbed.missing
