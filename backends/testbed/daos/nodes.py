"""Processes of a DAOS bed's nodes: engines, which their servers start, and what is left of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import identity
from fsmatrix.backends.journal.journal import Entry
from fsmatrix.backends.testbed import daemons, process
from fsmatrix.backends.testbed.base import LEFT
from fsmatrix.backends.testbed.home import Home

ENGINE = "daos_engine"  # name of its program
_POLL = 0.02
_TAIL = 1500  # bytes of a log in an error


def engines(home: Home, servers: Sequence[Entry]) -> list[Entry]:
    """Journal the engine of each server; BackendError if one has none."""
    written = []
    for server in servers:
        role = str(server.facts["role"]).replace("server.", "engine.")
        seen = _child(process.pid_of(server), ENGINE)
        if seen is None:
            raise BackendError(f"{server.facts['role']} has no engine: {last_words(home, server)}")
        written.append(
            home.journal.begin(
                "process", role=role, argv=list(seen.argv), pid=seen.pid, start=seen.start
            )
        )
    return written


def _child(parent: int, program: str) -> process.Seen | None:
    """The child of a process that runs a program; None if there is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "exe").readlink().name
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone, or a thread of the kernel
        if int(words[1]) == parent and name == program:
            return process.look(int(folder.name))
    return None


def end_rest(store: str) -> list[str]:
    """End whatever else carries the bed's proof: what servers started and nobody wrote down."""
    ended: set[str] = set()
    deadline = time.monotonic() + process.GONE_WITHIN
    while rest := _carriers(store):
        if time.monotonic() >= deadline:
            return [f"{LEFT}{each.role} does not end" for each in rest]
        ended.update(process.end(rest)[0])
        time.sleep(_POLL)  # an engine that ends with its server needs a moment
    return [f"ended {', '.join(sorted(ended))}"] if ended else []


def _carriers(store: str) -> list[process.Recorded]:
    """The processes, but this one, that carry the proof of a bed and run."""
    seen = [process.look(pid) for pid in identity.carriers(store) if pid != os.getpid()]
    return [
        process.Recorded(
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
