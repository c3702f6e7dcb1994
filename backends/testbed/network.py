"""Storage nodes in network namespaces, on a bridge, behind links of limited speed."""

from __future__ import annotations

import ipaddress
import json
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.system import tools

BURST, LIMIT = "1mb", "16mb"  # of the token bucket: enough for one large packet train
_TRIES = 50
_LINKS = Path("/sys/class/net")


@dataclass(frozen=True)
class Network:
    """Addresses of a bed.  Without namespaces every node has the first address."""

    address: str  # of this machine: clients, and what is on no node
    nodes: tuple[str, ...]
    namespaces: tuple[str, ...] = ()  # of each node; empty: none
    bridge: str = ""  # interface of `address`; empty: the loopback one

    def namespace(self, node: int) -> str:
        """The namespace of node 1, 2...; "" if it has none."""
        return self.namespaces[node - 1] if self.namespaces else ""


def loopback(nodes: int, port: int, address: str = "") -> Network:
    """An address of 127/8 that no other bed listens on, or the one that is given."""
    if address:
        if not _free(address, port):
            raise BackendError(
                f"address {address} port {port}: not on this machine, or in use already"
            )
        return Network(address, (address,) * nodes)
    for _ in range(_TRIES):
        chosen = f"127.{random.randint(64, 127)}.{random.randint(0, 255)}.1"
        if _free(chosen, port):
            return Network(chosen, (chosen,) * nodes)
    raise BackendError("no free loopback address was found for the test bed")


def _free(address: str, port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((address, port))
        except OSError:
            return False
    return True


def bridged(journal: Journal, bed: str, nodes: int, bits_per_second: int) -> Network:
    """A namespace per node on a bridge; each link limited in both directions, unless it is 0.

    Everything is journalled before it is made.  BackendError with the kernel's or iproute's
    own words if a part of it (namespaces, veth, bridge, tbf) is missing.
    """
    subnet = _free_subnet()
    hosts = [str(host) for host in subnet.hosts()]
    address, addresses = hosts[0], tuple(hosts[10 : 10 + nodes])
    bridge = f"fsm{bed}b"
    names = tuple(f"fsmatrix-{bed}-node{number}" for number in range(1, nodes + 1))
    try:
        _link(journal, bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        tools.run(["ip", "address", "add", f"{address}/{subnet.prefixlen}", "dev", bridge])
        tools.run(["ip", "link", "set", bridge, "up"])
        for number, (name, own) in enumerate(zip(names, addresses, strict=True), 1):
            _node(journal, name, f"fsm{bed}n{number}", bridge, f"{own}/{subnet.prefixlen}")
            for command in _limits(name, f"fsm{bed}n{number}", bits_per_second):
                tools.run(command)
    except ToolError as error:
        raise BackendError(
            f"the nodes' network cannot be made: {error} (it needs network namespaces, veth, "
            "bridge and tbf of the kernel, and iproute2)"
        ) from error
    return Network(address, addresses, names, bridge)


def _node(journal: Journal, name: str, link: str, bridge: str, address: str) -> None:
    journal.begin("namespace", name=name)
    tools.run(["ip", "netns", "add", name])
    _link(journal, link, "type", "veth", "peer", "name", "eth0", "netns", name)
    tools.run(["ip", "link", "set", link, "master", bridge, "up"])
    inside = ["ip", "-netns", name]
    tools.run([*inside, "link", "set", "lo", "up"])
    tools.run([*inside, "address", "add", address, "dev", "eth0"])
    tools.run([*inside, "link", "set", "eth0", "up"])


def _link(journal: Journal, name: str, *how: str) -> None:
    journal.begin("link", name=name)
    tools.run(["ip", "link", "add", name, *how])


def _limits(namespace: str, link: str, bits_per_second: int) -> Iterator[list[str]]:
    if not bits_per_second:
        return
    bucket = ["root", "tbf", "rate", f"{bits_per_second}bit", "burst", BURST, "limit", LIMIT]
    yield ["tc", "qdisc", "add", "dev", link, *bucket]
    yield ["tc", "-netns", namespace, "qdisc", "add", "dev", "eth0", *bucket]


def _free_subnet() -> ipaddress.IPv4Network:
    routes = json.loads(tools.run(["ip", "-j", "-4", "route", "show", "table", "all"]).stdout)
    taken = []
    for route in routes:
        text = str(route.get("dst", ""))
        if text not in ("", "default"):
            taken.append(ipaddress.IPv4Network(text, strict=False))
    for _ in range(_TRIES):
        subnet = ipaddress.IPv4Network(
            f"10.{random.randint(64, 254)}.{random.randint(0, 255)}.0/24"
        )
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise BackendError("no free subnet in 10.0.0.0/8 was found for the test bed")


def remove_link(name: str) -> str:
    """Remove a link of ours; what was done ("" if it was gone)."""
    if not (_LINKS / name).exists():
        return ""
    tools.run(["ip", "link", "delete", name], check=False)
    if (_LINKS / name).exists():
        raise BackendError(f"link {name} cannot be removed")
    return f"removed link {name}"


def remove_namespace(name: str) -> str:
    """Remove a namespace of ours; what was done ("" if it was gone)."""
    if not Path("/run/netns", name).exists():
        return ""
    tools.run(["ip", "netns", "delete", name])
    return f"removed network namespace {name}"
