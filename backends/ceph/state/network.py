"""Bytes between this kernel and the OSDs, where one of its interfaces carries all of them.

The interface is the one that the routes to the OSDs' addresses leave by, asked of the kernel
(a UDP socket that is connected, which sends nothing).  With an OSD on this very machine, part
of the bytes goes over the loopback interface: then no interface counts, rather than for a part.
With all of them on loopback addresses the OSDs count (see osdcounters).  Other programs' bytes
are counted too, of an interface and by the OSDs.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Sequence

import psutil

from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.state import osdcounters
from fsmatrix.backends.local.provenance import SYS_NET

PORT = 6800  # of an OSD; any would do


def counters(addresses: Sequence[str], login: Login | None = None) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen.

    With a `login`, the OSDs of this machine are asked what the interfaces cannot tell.
    """
    totals = _of_interfaces(addresses)
    if login is None:
        return totals
    return totals | osdcounters.counters(login, not totals and on_loopback(tuple(addresses)))


def _of_interfaces(addresses: Sequence[str]) -> dict[str, float]:
    names = interfaces(tuple(addresses))
    totals: dict[str, float] = {}
    for counter, file in (("network_received_bytes", "rx"), ("network_sent_bytes", "tx")):
        for name in names:
            text = (SYS_NET / name / f"statistics/{file}_bytes").read_text()
            totals[counter] = totals.get(counter, 0.0) + float(text)
    return totals


@functools.cache
def on_loopback(addresses: tuple[str, ...]) -> bool:
    """Whether no other machine can reach any of these addresses (and there are some)."""
    return bool(addresses) and all(
        ipaddress.ip_address(address).is_loopback for address in addresses
    )


@functools.cache
def interfaces(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Interfaces to these IP addresses; empty if one is this machine's or cannot be told."""
    own_addresses = {
        item.address.partition("%")[0]: name
        for name, items in psutil.net_if_addrs().items()
        for item in items
    }
    names = set()
    for address in addresses:
        source = _source(address)
        if not source or source == address or own_addresses.get(source, "lo") == "lo":
            return ()
        names.add(own_addresses[source])
    return tuple(sorted(names))


def _source(address: str) -> str:
    """The local address from which this kernel would speak to it; "" if there is no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, PORT))
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""
