"""Bytes between this kernel and the OSDs, by the interface that carries them or by the OSDs.

With all OSDs on loopback addresses the OSDs count (see osdcounters).  Other programs' bytes are
counted too, of an interface and by the OSDs.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence

from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.state import osdcounters
from fsmatrix.backends.local import routes


def counters(addresses: Sequence[str], login: Login | None = None) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen.

    With a `login`, the OSDs of this machine are asked what the interfaces cannot tell.
    """
    totals = routes.counters(addresses)
    if login is None:
        return totals
    return totals | osdcounters.counters(login, not totals and on_loopback(tuple(addresses)))


@functools.cache
def on_loopback(addresses: tuple[str, ...]) -> bool:
    """Whether no other machine can reach any of these addresses (and there are some)."""
    return bool(addresses) and all(
        ipaddress.ip_address(address).is_loopback for address in addresses
    )
