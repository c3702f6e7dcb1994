"""What this process may do, by the kernel's own account."""

from __future__ import annotations

import pwd
from enum import IntEnum
from functools import cache
from pathlib import Path

from fsmatrix.backends.system import libc


class Capability(IntEnum):
    """By their numbers (capabilities(7)); a container's root may lack them."""

    CAP_NET_ADMIN = 12  # links, addresses, queues
    CAP_SYS_ADMIN = 21  # mounts and namespaces


def has(capability: Capability) -> bool:
    """Whether this process has it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return True  # a kernel that does not tell


@cache
def network_refusal(link: bool = False) -> str:
    """Why this process gives nothing a network of its own (empty: it can): it is tried.

    `link`: as for `libc.own_network`.
    """
    try:
        with libc.own_network(link):
            return ""
    except OSError as error:
        return f"no network namespace can be made here ({error})"


def name_of(uid: int) -> str:
    """The name of a user; empty if it has none, as in many containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
