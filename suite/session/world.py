"""The session as one of its ranks sees it: leaders, and the channels between ranks.

Ranks of a node wait on a socket of their node's leader and burn nothing.  Rank 0 waits on
the conductor's socket; the other leaders poll MPI with a back-off from 1 to 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Set
from pathlib import Path

from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.suite.session import programs, wire
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import COMMANDS, Command, Joined
from fsmatrix.suite.session.survey import survey

BACKOFF = (0.001, 0.020)
FAN = 8  # leaders that one leader passes a command on to


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
        with contextlib.ExitStack() as meanwhile:
            listener = None
            address = ""
            if self.is_leader and len(own) > 1:
                address = str(meanwhile.enter_context(work_folder()) / "leader")
                listener = meanwhile.enter_context(wire.listener(Path(address), len(own)))
            addresses = self.comm.bcast(self.comm.gather(address))
            if listener is not None:
                for _ in own[1:]:
                    member, _ = listener.accept()
                    joined, _ = wire.unpack(wire.receive(member), Joined)
                    self._members[joined.rank] = member
            elif not self.is_leader:
                self._up = wire.connect(Path(addresses[own[0]]))
                wire.send(self._up, Joined(rank=self.me.rank))

    def next_command(self) -> Command:
        """Wait for the next command and pass it on; raises ChannelClosed when it is over."""
        channel = self._up or self.conductor
        frame = wire.receive(channel) if channel else self._poll()
        command, _ = wire.unpack(frame, *COMMANDS)
        if not self.is_leader:
            return command
        addressed = set(command.ranks)
        for leader in self._next_leaders(addressed):
            self.comm.post(frame, leader)
        for rank, member in self._members.items():
            if rank in addressed:
                wire.deliver(member, frame)
        return command

    def _next_leaders(self, addressed: Set[int]) -> list[int]:
        """Whom this leader passes a command on to: a tree over the nodes that are addressed.

        Every hop may wait for a leader to wake, so the tree is wide: 64 nodes are two hops.
        """
        nodes = sorted({self.ranks[rank].node for rank in addressed} - {0})
        line = [self.leaders[node] for node in (0, *nodes)]  # node 0 is the conductor's
        at = FAN * line.index(self.me.rank)
        return line[at + 1 : at + FAN + 1]

    def _poll(self) -> bytes:
        wait, longest = BACKOFF
        while (frame := self.comm.fetch()) is None:
            time.sleep(wait)
            wait = min(2 * wait, longest)
        return frame

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
