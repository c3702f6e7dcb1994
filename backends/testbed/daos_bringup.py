"""Bring a DAOS up, step by step: its options, the files that configure it, its nodes' processes.

All servers start at once and wait to be formatted.  The first node, which holds the management
service, is formatted first: the others join there.  Then the agent, and a pool on all nodes.
Configuration files of daos_server, daos_agent and dmg have the names of DAOS 2.4 to 2.6.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field
from ruamel.yaml import YAML

from fsmatrix.backends.daos.tools import Control, Member
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import mounts, tools
from fsmatrix.backends.testbed import daemons, network
from fsmatrix.backends.testbed.bed import LEFT, StorageOptions
from fsmatrix.backends.testbed.daemons import Launch
from fsmatrix.backends.testbed.home import Home, Steps, make_sockets
from fsmatrix.backends.testbed.network import Network
from fsmatrix.results.evidence.stored import Json, JsonObject
from fsmatrix.results.units import PositiveSize

GIB = 1 << 30
SMALLEST_MEMORY = 4 * GIB  # bytes; daos_server takes no smaller memory file system
LABEL = r"^[A-Za-z0-9_][A-Za-z0-9:._-]{0,126}$"

ENGINE = "daos_engine"  # name of its program
_POLL_END = 0.02
_TAIL = 1500  # bytes of a log in an error

SYSTEM = "daos_server"  # the only name that DAOS supports
PROVIDER = "ofi+tcp"
CONTROL_PORT, ENGINE_PORT = 10001, 31316
NODE_LINK = "eth0"  # of a node, in its own network namespace
# A node's own tmpfs, which nobody else sees; the paths of sockets in it are short.
NODE_SOCKETS = "/dev/shm"
_NO_NUMA = 0  # nodes on one machine are not spread over its NUMA nodes
# Nobody but this machine reaches the servers: they listen in namespaces of the bed's own.
_INSECURE = {"allow_insecure": True}

UP_WITHIN = 180.0  # seconds for each step; a bound for engines that poll on all cores, no measure
JOINED = "joined"  # state of a rank that serves
AGENT_SOCKET = "daos_agent.sock"
_POLL = 0.1
_FORMATTING = re.compile(r"[Ff]ormat required")  # in the log of a server that waits for it
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class DaosTestbedOptions(StorageOptions):
    """A DAOS test bed.  Every storage node is a server with one engine, a fault domain."""

    nodes: int = Field(default=2, ge=1, le=16, description="storage nodes, one engine each")
    targets_per_node: int = Field(
        default=1, ge=1, le=16, description="targets of each engine; each of them polls"
    )
    memory: PositiveSize = Field(
        default=SMALLEST_MEMORY,
        ge=SMALLEST_MEMORY,
        multiple_of=GIB,
        description="bytes of each engine's storage: a tmpfs, filled as it is used",
    )
    pool: str = Field(
        default="fsmatrix", pattern=LABEL, description="label of the pool on all nodes"
    )
    pool_percent: int = Field(
        default=50,
        ge=0,
        le=100,
        description="part of each engine's storage that the pool takes; 0: no pool is made, as "
        "for pools on some of the nodes",
    )

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool on each node, whole MiB."""
        return self.memory * self.pool_percent // 100 >> 20 << 20

    @property
    def names(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return tuple(f"node{number}" for number in range(1, self.nodes + 1))


def engine_processes(home: Home, servers: Sequence[Entry]) -> list[Entry]:
    """Journal the engine of each server; BackendError if one has none."""
    written = []
    for server in servers:
        role = str(server.facts["role"]).replace("server.", "engine.")
        seen = _child(daemons.pid_of(server), ENGINE)
        if seen is None:
            raise BackendError(f"{server.facts['role']} has no engine: {last_words(home, server)}")
        written.append(
            home.journal.begin(
                "process", role=role, argv=list(seen.argv), pid=seen.pid, start=seen.start
            )
        )
    return written


def _child(parent: int, program: str) -> daemons.Seen | None:
    """The child of a process that runs a program; None if there is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "exe").readlink().name
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone, or a thread of the kernel
        if int(words[1]) == parent and name == program:
            return daemons.look(int(folder.name))
    return None


def end_rest(store: str) -> list[str]:
    """End whatever else carries the bed's proof: what servers started and nobody wrote down."""
    ended: set[str] = set()
    deadline = time.monotonic() + daemons.GONE_WITHIN
    while rest := _carriers(store):
        if time.monotonic() >= deadline:
            return [f"{LEFT}{each.role} does not end" for each in rest]
        ended.update(daemons.end_process(rest)[0])
        time.sleep(_POLL_END)  # an engine that ends with its server needs a moment
    return [f"ended {', '.join(sorted(ended))}"] if ended else []


def _carriers(store: str) -> list[daemons.Recorded]:
    """The processes, but this one, that carry the proof of a bed and run."""
    seen = [daemons.look(pid) for pid in proof.carriers(store) if pid != os.getpid()]
    return [
        daemons.Recorded(
            role=f"process {carrier.pid} ({Path(carrier.argv[0]).name})",
            argv=carrier.argv,
            pid=carrier.pid,
            start=carrier.start,
            store=store,
        )
        for carrier in seen
        if carrier is not None and carrier.state not in "ZX"
    ]


def last_words(home: Home, entry: Entry) -> str:
    """The end of what a server, its engine and its control plane printed and logged."""
    node = home.folder / str(entry.facts["role"]).replace("server.", "node")
    logs = [node / "server.log", node / "engine.log"]
    words = [daemons.last_words(home, entry), *_tails(logs)]
    return " | ".join(word for word in words if word)


def _tails(logs: Iterable[Path]) -> list[str]:
    return [
        log.read_bytes()[-_TAIL:].decode(errors="replace").strip() for log in logs if log.exists()
    ]


def conf_text(facts: JsonObject) -> str:
    """A configuration as YAML."""
    stream = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style, yaml.width = False, 4096  # columns; paths are not folded
    yaml.dump(dict(facts), stream)
    return stream.getvalue()


def access_point(network: Network) -> str:
    """The first node holds the management service."""
    return f"{network.nodes[0]}:{CONTROL_PORT}"


def server_conf(
    options: DaosTestbedOptions,
    network: Network,
    *,
    folder: Path,
    core: int,
    huge_pages: bool,
    environment: Mapping[str, str],
) -> dict[str, Json]:
    """daos_server.yml of a node.

    `folder`: of its logs and of the point where its storage is mounted; `core`: the first one that
    its engine uses; `huge_pages`: the kernel uses transparent ones, which daos_server refuses
    unless told otherwise; `environment`: variables of the engine.
    """
    engine: JsonObject = {
        "targets": options.targets_per_node,
        "nr_xs_helpers": 0,
        "first_core": core,
        "fabric_iface": NODE_LINK,
        "fabric_iface_port": ENGINE_PORT,
        "log_mask": "ERR",
        "log_file": str(folder / "engine.log"),
        "env_vars": [f"{name}={value}" for name, value in environment.items()],
        "storage": [
            {
                "class": "ram",
                "scm_mount": str(storage_conf(folder)),
                "scm_size": options.memory // GIB,
                "scm_hugepages_disabled": True,
            }
        ],
    }
    return {
        "name": SYSTEM,
        "access_points": [access_point(network)],
        "port": CONTROL_PORT,
        "transport_config": _INSECURE,
        "provider": PROVIDER,
        "socket_dir": NODE_SOCKETS,
        "disable_hugepages": True,
        **({"allow_thp": True} if huge_pages else {}),
        "system_ram_reserved": 1,
        "control_log_mask": "INFO",
        "control_log_file": str(folder / "server.log"),
        "engines": [engine],
    }


def storage_conf(folder: Path) -> Path:
    """Where a node's server mounts the storage of its engine, in a mount namespace of its own."""
    return folder / "scm"


def agent_conf(network: Network, sockets: Path, log: Path) -> dict[str, Json]:
    """daos_agent.yml; clients reach the nodes by the bridge."""
    device = {"iface": network.bridge, "domain": network.bridge}
    return {
        "name": SYSTEM,
        "access_points": [access_point(network)],
        "port": CONTROL_PORT,
        "transport_config": _INSECURE,
        "runtime_dir": str(sockets),
        "log_file": str(log),
        "fabric_ifaces": [{"numa_node": _NO_NUMA, "devices": [device]}],
    }


def control_conf(addresses: Sequence[str]) -> dict[str, Json]:
    """daos_control.yml, which dmg reads."""
    return {
        "name": SYSTEM,
        "port": CONTROL_PORT,
        "hostlist": [f"{address}:{CONTROL_PORT}" for address in addresses],
        "transport_config": _INSECURE,
    }


def engine_environment(proof: Mapping[str, str]) -> dict[str, str]:
    """Variables of an engine on a small machine, and the proof of whose it is."""
    return {"DAOS_MD_CAP": "128", "DAOS_TARGET_OVERSUBSCRIBE": "1", **proof}


@dataclass
class Making:
    """A bed that is being made."""

    home: Home
    options: DaosTestbedOptions
    steps: Steps
    bed: str  # its short id
    network: Network = field(default_factory=lambda: Network("", ()))
    servers: list[Entry] = field(default_factory=list)

    @property
    def control(self) -> Control:
        """Who is asked and told."""
        return Control(str(self.home.conf), UP_WITHIN)

    def bring_up(self) -> dict[str, Json]:
        """All steps; returns the entries of bed.json that they give."""
        home, options = self.home, self.options
        with self.steps.step("network"), self.steps.waiting():  # ip, tc: the kernel's time
            self.network = network.bridged(
                home.journal, self.bed, options.nodes, options.bits_per_second
            )
        with self.steps.step("servers"):
            home.conf.write_text(conf_text(control_conf(self.network.nodes)))
            self.servers = [self._server(node) for node in range(1, options.nodes + 1)]
            for node in range(1, options.nodes + 1):
                self._until(f"node{node} waits to be formatted", self._waits(node))
        with self.steps.step("first engine"):
            self._join(self.network.nodes[:1])
        with self.steps.step("other engines"):
            self._join(self.network.nodes[1:])
            engines = engine_processes(home, self.servers)
        with self.steps.step("agent"):
            folder = self._agent()
        with self.steps.step("pool"), self.steps.waiting():
            members = self.control.members()
            pool = self._pool([member.rank for member in members])
        with self.steps.step("facts"), self.steps.waiting():
            facts = self._facts(members) | {"pool": pool}
        assert len(engines) == options.nodes
        return {"agent": str(folder), "bridge": self.network.bridge, "facts": facts}

    def _program(self, name: str, called: str) -> str:
        """A link to a program: of one name of a process DAOS allows only one on a machine."""
        path = tools.find(name)
        if path is None:
            raise BackendError(tools.lacking(name))
        link = self.home.folder / "bin" / f"fsmatrix-{self.bed}-{called}"
        link.symlink_to(Path(path).resolve())
        return str(link)

    def _server(self, node: int) -> Entry:
        name = f"node{node}"
        folder = self.home.folder / name
        for place in (folder, storage_conf(folder)):
            place.mkdir()
        path = folder / "daos_server.yml"
        proof = self.home.journal.identity.environment
        facts = server_conf(
            self.options,
            self.network,
            folder=folder,
            core=(node - 1) % cores(),
            huge_pages="[never]" not in _read(_HUGE_PAGES),
            environment=engine_environment(proof),
        )
        path.write_text(conf_text(facts))
        return daemons.start(
            self.home,
            Launch(
                f"server.{node}",
                (self._program("daos_server", name), "start", "--config", str(path)),
                namespace=self.network.namespace(node),
                host=name,
                private=self._private(),
                environment=environment(),
            ),
        )

    def _private(self) -> str:
        """A node sees its own network below /sys, has a memory of its own for sockets, and holds
        no file system of others.
        """
        names = ":".join(environment().values()).split(":")
        needed = [self.home.folder, Path(sys.prefix), *(Path(name) for name in names if name)]
        leave = shlex.join(["umount", "--lazy", *mounts.not_needed(needed)])
        own = f"mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs {NODE_SOCKETS}"
        return f"{{ {leave} 2>/dev/null || true; }} && {own}"

    def _waits(self, node: int) -> Callable[[], bool]:
        log = self.home.folder / f"node{node}" / "server.log"
        return lambda: bool(_FORMATTING.search(_read(log)))

    def _join(self, addresses: Sequence[str]) -> None:
        """Format the storage of these nodes, and wait until their engines serve too."""
        if not addresses:
            return
        before = self._joined()
        with self.steps.waiting():
            answer = self.control.ask("storage", "format", f"--host-list={','.join(addresses)}")
        if failed := (answer or {}).get("host_errors"):
            raise BackendError(f"the storage of a node cannot be formatted: {failed}")
        wanted = before + len(addresses)
        self._until(f"{wanted} engines have joined", lambda: self._joined() >= wanted)

    def _joined(self) -> int:
        try:
            members = self.control.members()
        except ToolError:  # the management service is not there yet
            return 0
        return sum(member.state == JOINED for member in members)

    def _agent(self) -> Path:
        folder = make_sockets(self.home, self.bed, AGENT_SOCKET)
        path, log = self.home.folder / "daos_agent.yml", self.home.folder / "log" / "agent.log"
        path.write_text(conf_text(agent_conf(self.network, folder, log)))
        argv = (self._program("daos_agent", "agent"), "--config-path", str(path), "start")
        entry = daemons.start(self.home, Launch("agent", argv, environment=environment()))
        self.servers.append(entry)
        self._until("the agent listens", (folder / AGENT_SOCKET).is_socket)
        return folder

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        def check() -> None:
            daemons.check(self.home, self.servers)

        if not self.steps.until(done, UP_WITHIN, check, _POLL):
            words = " | ".join(last_words(self.home, entry) for entry in self.servers)
            raise BackendError(f"within {UP_WITHIN:g} s not reached: {what}: {words}")

    def _pool(self, ranks: list[int]) -> dict[str, Json]:
        options = self.options
        if not options.pool_percent:
            return {}
        made = self.control.create(options.pool, ranks, options.pool_bytes * options.nodes)
        return made.model_dump()

    def _facts(self, members: list[Member]) -> dict[str, Json]:
        options = self.options
        return {
            "version": tools.run(["dmg", "version"], deadline=UP_WITHIN).stdout.strip(),
            "provider": PROVIDER,
            "factors": self._factors(),
            "nodes": {
                f"node{node}": {"address": address, "ranks": ranks_at(members, address)}
                for node, address in enumerate(self.network.nodes, 1)
            },
            "targets_per_node": options.targets_per_node,
            "memory_bytes": options.memory,
            "device_state": "tmpfs",
        }

    def _factors(self) -> dict[str, Json]:
        """How each level is realised."""
        options = self.options
        link: dict[str, Json] = {"level": options.network}
        if options.bits_per_second:
            link |= {
                "realised": "emulated",
                "how": f"tbf on both ends of each node's link (burst {network.BURST}, limit "
                f"{network.LIMIT}); clients are on the bridge without a limit",
                "bits_per_second": options.bits_per_second,
            }
        how = "a server with one engine in namespaces of its own each, storage in memory (tmpfs)"
        nodes_of: JsonObject = {"level": options.nodes, "realised": "emulated", "how": how}
        return {"storage_nodes": nodes_of, "network": link}


def environment() -> dict[str, str]:
    """What DAOS's programs need of the caller's environment to find each other."""
    names = ("PATH", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def ranks_at(members: Iterable[Member], address: str) -> list[int]:
    """Ranks of the node at an address."""
    return sorted(each.rank for each in members if each.addr.rpartition(":")[0] == address)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
