"""DAOS's servers, as far as they run on this very kernel: on a test bed, or on a client node."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = ("daos_server", "daos_engine")
# of the addresses of a network namespace, in /proc/<pid>/net/fib_trie
_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def here(addresses: Iterable[str]) -> list[int]:
    """Pids of the servers and engines whose network has one of these IPv4 addresses.

    A loopback address is of this process's own network only: every network has it.
    """
    own, pids = Path("/proc/self/ns/net").readlink(), []
    everywhere = set(addresses)
    reached = {address for address in everywhere if not address.startswith("127.")}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, a thread of the kernel, or another user's
            if (entry / "exe").readlink().name not in PROGRAMS:
                continue
            wanted = everywhere if (entry / "ns/net").readlink() == own else reached
            if wanted & set(_ADDRESS.findall((entry / "net/fib_trie").read_text())):
                pids.append(int(entry.name))
    return sorted(pids)
