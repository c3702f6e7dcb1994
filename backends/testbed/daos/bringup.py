"""Bring a DAOS up, step by step.

All servers start at once and wait to be formatted.  The first node, which holds the management
service, is formatted first: the others join there.  Then the agent, and a pool on all nodes.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.daos.tools.answers import Member
from fsmatrix.backends.daos.tools.dmg import Control
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.system import mounts, tools
from fsmatrix.backends.testbed import daemons, network, sockets
from fsmatrix.backends.testbed.daemons import Launch
from fsmatrix.backends.testbed.daos import conf, nodes
from fsmatrix.backends.testbed.daos.options import DaosTestbedOptions
from fsmatrix.backends.testbed.home import Home, Steps
from fsmatrix.backends.testbed.network import Network
from fsmatrix.results.evidence.values import Json, JsonObject

UP_WITHIN = 180.0  # seconds for each step; a bound for engines that poll on all cores, no measure
JOINED = "joined"  # state of a rank that serves
AGENT_SOCKET = "daos_agent.sock"
_POLL = 0.1
_FORMATTING = re.compile(r"[Ff]ormat required")  # in the log of a server that waits for it
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


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
            home.conf.write_text(conf.text(conf.control(self.network.nodes)))
            self.servers = [self._server(node) for node in range(1, options.nodes + 1)]
            for node in range(1, options.nodes + 1):
                self._until(f"node{node} waits to be formatted", self._waits(node))
        with self.steps.step("first engine"):
            self._join(self.network.nodes[:1])
        with self.steps.step("other engines"):
            self._join(self.network.nodes[1:])
            engines = nodes.engines(home, self.servers)
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
        for place in (folder, conf.storage(folder)):
            place.mkdir()
        path = folder / "daos_server.yml"
        proof = self.home.journal.identity.environment
        facts = conf.server(
            self.options,
            self.network,
            folder=folder,
            core=(node - 1) % cores(),
            huge_pages="[never]" not in _read(_HUGE_PAGES),
            environment=conf.engine_environment(proof),
        )
        path.write_text(conf.text(facts))
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
        own = f"mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs {conf.NODE_SOCKETS}"
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
        folder = sockets.make(self.home, self.bed, AGENT_SOCKET)
        path, log = self.home.folder / "daos_agent.yml", self.home.folder / "log" / "agent.log"
        path.write_text(conf.text(conf.agent(self.network, folder, log)))
        argv = (self._program("daos_agent", "agent"), "--config-path", str(path), "start")
        entry = daemons.start(self.home, Launch("agent", argv, environment=environment()))
        self.servers.append(entry)
        self._until("the agent listens", (folder / AGENT_SOCKET).is_socket)
        return folder

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        def check() -> None:
            daemons.check(self.home, self.servers)

        if not self.steps.until(done, UP_WITHIN, check, _POLL):
            words = " | ".join(nodes.last_words(self.home, entry) for entry in self.servers)
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
            "provider": conf.PROVIDER,
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
