"""daos_agent for tests: a socket of its kind, and somebody who takes connections there or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(folder: Path) -> Iterator[list[bytes]]:
    """An agent that ends every connection which its client has ended; what each of them sent."""
    received: list[bytes] = []
    with listening(folder) as listener:
        thread = threading.Thread(target=_serve, args=(listener, received), daemon=True)
        thread.start()
        yield received
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(str(folder / "daos_agent.sock"))
            last.send(b"end")
            thread.join(60)


@contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """One that hangs: it listens, and takes no connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "daos_agent.sock"))
        listener.listen()
        yield listener


def _serve(listener: socket.socket, received: list[bytes]) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            received.append(connection.recv(16))
            if received[-1]:
                return
