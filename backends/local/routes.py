"""Bytes between this kernel and servers, where one of its interfaces carries all of them.

The interface is the one that the routes to the servers' addresses leave by, asked of the kernel
(a UDP socket that is connected, which sends nothing): the sum of all interfaces would count a
byte of a bond or a bridge twice.  With a server on this very machine, part of the bytes goes over
the loopback interface: then no interface counts, rather than for a part.  Other programs' bytes
are counted too.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence

import psutil

from fsmatrix.backends.local.provenance import SYS_NET

PORT = 6800  # of a server; any would do


def counters(addresses: Sequence[str]) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen."""
    names = interfaces(tuple(addresses))
    totals: dict[str, float] = {}
    for counter, file in (("network_received_bytes", "rx"), ("network_sent_bytes", "tx")):
        for name in names:
            text = (SYS_NET / name / f"statistics/{file}_bytes").read_text()
            totals[counter] = totals.get(counter, 0.0) + float(text)
    return totals


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
