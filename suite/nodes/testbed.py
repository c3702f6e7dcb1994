"""Nodes of the suite's own test beds: processes, links of namespaces, emulated drives."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsmatrix.backends.testbed.bed import BedNode, StorageTestbed
from fsmatrix.results.evidence.nodes import SERVICES, WatchedNode
from fsmatrix.suite.nodes.counters import MEMORY, TICK, Look, of_disk, of_link
from fsmatrix.suite.nodes.node_watch import Asked, Seen, Source, Unwatched

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOPBACK = "lo"


class TestbedSource(Source):
    """Reads /proc and /sys of this machine: the clock is the runs' own."""

    name = "testbed"
    __test__ = False  # no test of pytest's

    @classmethod
    def words(cls, asked: Asked) -> list[str]:
        """No command: files of this machine."""
        del asked
        return ["reads /proc and /sys of this machine for the nodes of the target's test bed"]

    @classmethod
    def open(cls, asked: Asked) -> TestbedSource:
        """Unwatched if the target is on no test bed."""
        if asked.bed is None:
            raise Unwatched("the target is on no test bed of the suite")
        return cls(asked.bed, asked.interval)

    def __init__(self, bed: StorageTestbed[Any], interval: float) -> None:
        self._bed, self._interval = bed, interval
        self._nodes = bed.nodes()
        self._looks: dict[str, list[Look]] = {}

    def look(self, at: float) -> None:
        """Of what has ended nothing is read; what has been started again is found."""
        if any(not Path(f"/proc/{pid}").exists() for pid in self._pids()):
            self._nodes = self._bed.nodes()
        for name, node in self._nodes.items():
            now = time.monotonic()
            look = Look(at, now, counters(node, now, name != SERVICES))
            self._looks.setdefault(name, []).append(look)

    def _pids(self) -> list[int]:
        return [pid for node in self._nodes.values() for pid in node.pids.values()]

    def taken(self, began: float, ended: float) -> Mapping[str, Seen]:
        """What was read since the last call."""
        del began, ended
        looks, self._looks = self._looks, {}
        return {
            name: Seen(self._watched(node), looks.get(name, []))
            for name, node in self._nodes.items()
        }

    def _watched(self, node: BedNode) -> WatchedNode:
        return WatchedNode(
            source=self.name,
            interval=self._interval,
            link_limits={"eth0": node.link_limit} if node.link_limit else {},
            drive_limits=node.drive_limits,
        )

    def close(self) -> None:
        """Nothing was started."""


def counters(node: BedNode, now: float, stores: bool = True) -> dict[str, float]:
    """Of a node's daemons together; a share of CPU is of all cores of this machine.

    A daemon without a drive of its own has what it read and wrote itself under its role's name, if
    the node `stores` clients' data.
    """
    found: dict[str, float] = {"cpu:user": 0.0, "cpu:system": 0.0, MEMORY: 0.0}
    found["cpu:all"] = now * (os.cpu_count() or 1)
    network = ""
    for role, pid in node.pids.items():
        folder = Path(f"/proc/{pid}")
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            pages = float((folder / "statm").read_text().split()[1])
            own = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
            network = (folder / "net/dev").read_text() if node.is_apart else ""
        except (OSError, IndexError):
            continue  # it has ended
        found["cpu:user"] += float(words[11]) * TICK
        found["cpu:system"] += float(words[12]) * TICK
        found[MEMORY] += pages * _PAGE
        if stores and role not in node.drives:
            found[f"disk_read:{role}"] = float(own["read_bytes"])
            found[f"disk_written:{role}"] = float(own["write_bytes"])
    for line in network.splitlines()[2:]:
        name, _, columns = line.partition(":")
        if name.strip() != _LOOPBACK:
            found.update(of_link(name.strip(), columns))
    for drive in node.drives.values():
        found.update(of_disk(drive, Path(f"/sys/block/{drive}/stat").read_text().split()))
    return found
