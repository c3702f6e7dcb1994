"""Who is where: nodes by processor name, kernels by boot id, leaders, and their channels.

Ranks of a node wait on a socket of their node's leader and burn nothing.  Rank 0 waits on
the conductor's socket; the other leaders poll MPI with a back-off from 1 to 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmatrix.suite.session import programs, wire
from fsmatrix.suite.session.comm import Comm

BACKOFF = (0.001, 0.020)
COMMAND_TAG = 11


@dataclass(frozen=True)
class Rank:
    """Where one rank of the world really is."""

    rank: int
    host: str
    node: int  # index of the node, in order of their first rank
    node_rank: int  # index of the rank inside its node
    boot_id: str
    mounts: str  # identity of the mount namespace
    pid: int
    cpus: tuple[int, ...]

    @property
    def kernel(self) -> str:
        """One mount, one cache drop and one sampler per kernel and mount namespace."""
        return f"{self.boot_id}/{self.mounts}"


def _own_facts() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "mounts": str(Path("/proc/self/ns/mnt").readlink()),
        "pid": os.getpid(),
        "cpus": sorted(os.sched_getaffinity(0)),
    }


def survey(comm: Comm) -> tuple[Rank, ...]:
    """Every rank's place, the same tuple at every rank."""
    gathered = comm.bcast(comm.gather(_own_facts()))
    hosts: dict[str, int] = {}
    counts: dict[int, int] = {}
    ranks = []
    for rank, facts in enumerate(gathered):
        node = hosts.setdefault(facts["host"], len(hosts))
        node_rank = counts.get(node, 0)
        counts[node] = node_rank + 1
        cpus = tuple(facts.pop("cpus"))
        ranks.append(Rank(rank=rank, node=node, node_rank=node_rank, cpus=cpus, **facts))
    return tuple(ranks)


class World:
    """The session as one of its ranks sees it."""

    def __init__(self, comm: Comm, conductor: socket.socket | None) -> None:
        self.comm = comm
        self.ranks = survey(comm)
        self.me = self.ranks[comm.rank]
        self.leaders = [rank.rank for rank in self.ranks if rank.node_rank == 0]
        self.conductor = conductor
        self._members: dict[int, socket.socket] = {}  # a leader's sockets, by world rank
        self._up: socket.socket | None = None  # a member's socket to its leader
        self._connect_node()

    @property
    def is_leader(self) -> bool:
        """Whether this rank leads its node."""
        return self.me.node_rank == 0

    def kernel_leaders(self) -> list[int]:
        """The lowest leader of each kernel and mount namespace."""
        first: dict[str, int] = {}
        for rank in self.ranks:
            if rank.node_rank == 0:
                first.setdefault(rank.kernel, rank.rank)
        return sorted(first.values())

    # -- channels ------------------------------------------------------------------------
    def _connect_node(self) -> None:
        own = [r.rank for r in self.ranks if r.node == self.me.node]
        folder = None
        listener = None
        address = ""
        if self.is_leader and len(own) > 1:
            folder = tempfile.TemporaryDirectory(prefix="fsmatrix-")
            address = str(Path(folder.name) / "leader")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(address)
            listener.listen(len(own))
        addresses = self.comm.bcast(self.comm.gather(address))
        leader = own[0]
        if listener is not None and folder is not None:
            for _ in own[1:]:
                member, _ = listener.accept()
                message, _ = wire.receive(member)
                self._members[int(message["rank"])] = member
            listener.close()
            folder.cleanup()
        elif not self.is_leader:
            self._up = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._up.connect(addresses[leader])
            wire.send(self._up, {"rank": self.me.rank})

    def next_command(self) -> dict[str, Any]:
        """Wait for the next command and pass it on; raises ChannelClosed when it is over."""
        if self._up is not None:
            return wire.receive(self._up)[0]
        if self.conductor is not None:
            command = wire.receive(self.conductor)[0]
            self._forward(command, [rank for rank in self.leaders if rank != self.me.rank])
        else:
            command = self._poll()
        for rank, member in self._members.items():
            if rank in command["to"]:
                wire.send(member, command)
        return command

    def _forward(self, command: dict[str, Any], leaders: list[int]) -> None:
        """To every other leader that is addressed itself or has an addressed member."""
        wanted = {self.ranks[rank].node for rank in command["to"]}
        for leader in leaders:
            if self.ranks[leader].node in wanted:
                self.comm.handle.send(command, dest=leader, tag=COMMAND_TAG)  # type: ignore[attr-defined]

    def _poll(self) -> dict[str, Any]:
        wait, longest = BACKOFF
        handle = self.comm.handle  # type: ignore[attr-defined]
        while not handle.Iprobe(source=0, tag=COMMAND_TAG):
            time.sleep(wait)
            wait = min(2 * wait, longest)
        command: dict[str, Any] = handle.recv(source=0, tag=COMMAND_TAG)
        return command

    def watch_conductor(self) -> None:
        """End this rank (and so the session) as soon as the conductor is gone."""
        if self.conductor is None:
            return
        poller = select.poll()
        poller.register(self.conductor, select.POLLHUP | select.POLLRDHUP | select.POLLERR)

        def wait() -> None:
            with contextlib.suppress(OSError):
                poller.poll()
            time.sleep(0.2)  # let an orderly end, which closes the channel too, come first
            programs.end_running()
            os._exit(70)

        threading.Thread(target=wait, name="conductor-watch", daemon=True).start()
