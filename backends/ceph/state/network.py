"""Bytes between this kernel and the OSDs, by the interface that carries them or by the OSDs.

With all OSDs on loopback addresses the OSDs count (see osdcounters).  Other programs' bytes are
counted too, of an interface and by the OSDs.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.state import facts
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local import provenance
from fsmatrix.backends.system import devices
from fsmatrix.results.evidence.stored import Json

# What the OSDs of one machine count themselves: bytes for clients, bytes at their devices.
#
# Clients' bytes where every OSD is on this machine's loopback: no interface tells them apart from
# other traffic, and nobody elsewhere can reach these OSDs, so their sum is what this kernel moved
# (data and metadata).  OSDs count an operation before they answer it.
#
# Devices' bytes where every OSD runs under this machine's host name, from the kernel: what the
# servers' caches did not serve, and with copies, journals and RocksDB what was written in all.


MOST_OSDS = 64
TIMEOUT = 2.0  # seconds; a look stands beside a measurement
REST = 30.0  # seconds after a failed look in which none is tried
SHARE = 0.02  # of one CPU that looks in the background may take
_COUNTERS = {"network_received_bytes": "op_out_bytes", "network_sent_bytes": "op_in_bytes"}


class Watched:
    """The OSDs of a cluster, asked over a connection that stays open."""

    def __init__(self, login: Login) -> None:
        """CephError if the cluster does not tell who they are."""
        self.cluster = login.connect(TIMEOUT)
        try:
            self.osds = facts.osds_up(self.cluster)
            metadata = self.cluster.mon("osd metadata") if len(self.osds) <= MOST_OSDS else []
        except BackendError:
            self.cluster.close()
            raise
        self.devices = _devices([entry for entry in metadata if int(entry["id"]) in self.osds])
        self._last: dict[int, dict[str, float]] = {}
        self._next = 0.0  # when a look in the background may be taken again

    def clients(self) -> dict[str, float]:
        """network_{received,sent}_bytes, and how many OSDs counted them (the source).

        Nothing if there are too many OSDs, or one has begun to count anew.  Outside the
        main thread (sampling) also nothing before its share of time has come again: the
        looks before and after a step are always taken.
        """
        began = time.monotonic()
        background = threading.current_thread() is not threading.main_thread()
        if not 0 < len(self.osds) <= MOST_OSDS or (background and began < self._next):
            return {}
        counts = {osd: _counted(self.cluster, osd) for osd in self.osds}
        restarted = any(
            counts[osd][n] < old for osd, of_osd in self._last.items() for n, old in of_osd.items()
        )
        self._last = counts
        ended = time.monotonic()
        self._next = ended + (ended - began) / SHARE
        if restarted:
            return {}
        total = {name: sum(of_osd[name] for of_osd in counts.values()) for name in _COUNTERS}
        return {**total, "network_counting_osds": float(len(counts))}

    def servers(self) -> dict[str, float]:
        """server_device_{read,written}_bytes and _busy_seconds; nothing if not all are here."""
        total = devices.total(self.devices)
        if total is None:
            return {}
        return {
            "server_device_read_bytes": float(total.read_bytes),
            "server_device_written_bytes": float(total.written_bytes),
            "server_device_busy_seconds": total.busy_seconds,
        }


_watched: dict[Login, Watched] = {}
_resting: dict[Login, float] = {}  # until when


def osd_counters(login: Login, clients: bool) -> dict[str, float]:
    """Of the devices, and of the `clients` too if asked for.

    What cannot be told is absent; audits then miss it.  A cluster that does not answer is left
    alone for a while: this never holds a run up for long.
    """
    if time.monotonic() < _resting.get(login, 0.0):
        return {}
    try:
        if login not in _watched:
            _watched[login] = Watched(login)
        watched = _watched[login]
        return watched.servers() | (watched.clients() if clients else {})
    except BackendError:
        forget(login)
        _resting[login] = time.monotonic() + REST
        return {}


def forget(login: Login) -> None:
    """Close the connection that is kept for it; a cluster that did not answer is asked again."""
    _resting.pop(login, None)
    watched = _watched.pop(login, None)
    if watched is not None:
        watched.cluster.close()


def kept() -> frozenset[Login]:
    """Of whom a connection is open."""
    return frozenset(_watched)


def _counted(cluster: Cluster, osd: int) -> dict[str, float]:
    answer = cluster.osd(osd, "perf dump", logger="osd")["osd"]
    return {name: float(answer[theirs]) for name, theirs in _COUNTERS.items()}


def _devices(metadata: list[dict[str, Json]]) -> tuple[str, ...]:
    """ "major:minor" of all these OSDs' devices; () if one is elsewhere or a plain file."""
    if any(entry.get("hostname") != platform.node() for entry in metadata):
        return ()
    nodes = [Path(str(entry.get("bluestore_bdev_dev_node", ""))) for entry in metadata]
    files = any(entry.get("bluestore_bdev_access_mode") != "blk" for entry in metadata)
    if files or not all(node.is_block_device() for node in nodes):
        return ()
    return tuple(devices.number_of(node) for node in nodes)


def counters(addresses: Sequence[str], login: Login | None = None) -> dict[str, float]:
    """network_{received,sent}_bytes; nothing if not all bytes are seen.

    With a `login`, the OSDs of this machine are asked what the interfaces cannot tell.
    """
    totals = provenance.counters_to(addresses)
    if login is None:
        return totals
    return totals | osd_counters(login, not totals and provenance.on_loopback(tuple(addresses)))
