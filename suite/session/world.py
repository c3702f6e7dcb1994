"""The session as one of its ranks sees it: leaders, and the channels between ranks.

Ranks of a node wait on a socket of their node's leader and burn nothing.  Rank 0 waits on
the conductor's socket; the other leaders poll MPI with a back-off from 1 to 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from fsmatrix.suite.session import programs, wire
from fsmatrix.suite.session.comm import Comm
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
        folder = None
        listener = None
        address = ""
        if self.is_leader and len(own) > 1:
            folder = tempfile.TemporaryDirectory(prefix=f"{programs.SCRATCH}{os.getpid()}-")
            address = str(Path(folder.name) / "leader")
            listener = wire.listener(Path(address), len(own))
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
            self._up = wire.connect(Path(addresses[leader]))
            wire.send(self._up, {"rank": self.me.rank})

    def next_command(self) -> dict[str, Any]:
        """Wait for the next command and pass it on; raises ChannelClosed when it is over."""
        if self._up is not None:
            return _opened(wire.receive(self._up)[0])
        if self.conductor is not None:
            command = wire.receive(self.conductor)[0]
            frame = wire.pack(command | {"to": in_rows(command["to"])})
        else:
            frame = self._poll()
            command = _opened(wire.parse(frame)[0])
        addressed = set(command["to"])
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


def in_rows(ranks: Sequence[int]) -> list[list[int]]:
    """Ranks as rows [first, count, step]: one for each node at most, as MPI lays ranks out.

    A command goes to every rank: its list of thousands of ranks must not.
    """
    rows: list[list[int]] = []
    for rank in ranks:
        if rows and rank == rows[-1][0] + rows[-1][1] * rows[-1][2]:
            rows[-1][1] += 1
        elif rows and rows[-1][1] == 1 and rank > rows[-1][0]:
            rows[-1][1:] = [2, rank - rows[-1][0]]
        else:
            rows.append([rank, 1, 1])
    return rows


def from_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """The ranks of `in_rows`, in their order."""
    return [first + index * step for first, count, step in rows for index in range(count)]


def _opened(command: dict[str, Any]) -> dict[str, Any]:
    return command | {"to": from_rows(command["to"])}
