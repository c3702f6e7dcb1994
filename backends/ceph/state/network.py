"""Bytes between this kernel and the OSDs, by the interface that carries them or by the OSDs.

With all OSDs on loopback addresses the OSDs count (see osdcounters).  Other programs' bytes are
counted too, of an interface and by the OSDs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.ceph.bindings.login import Login
from fsmatrix.backends.ceph.state import osdcounters
from fsmatrix.backends.local import provenance


def counters(addresses: Sequence[str], login: Login | None = None) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen.

    With a `login`, the OSDs of this machine are asked what the interfaces cannot tell.
    """
    totals = provenance.counters_to(addresses)
    if login is None:
        return totals
    return totals | osdcounters.counters(
        login, not totals and provenance.on_loopback(tuple(addresses))
    )
