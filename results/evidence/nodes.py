"""Storage nodes watched during a run: what their series are called, and where each came from.

A value of a series is of the time since the sample before it: a rate per second, or a share.
Names end with the device or link that they are of: "disk_read:sda", "link_received:eth0".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import Stored

# metric -> unit; those with a colon are of each device or link
METRICS: dict[str, str] = {
    "cpu_user": "1",  # shares of all cores of the node
    "cpu_system": "1",  # with interrupts
    "cpu_iowait": "1",
    "cpu_idle": "1",
    "cpu_core_max": "1",  # of the busiest core alone, busy
    "memory_used": "B",  # without buffers and caches
    "disk_read:": "B s-1",
    "disk_written:": "B s-1",
    "disk_reads:": "s-1",
    "disk_writes:": "s-1",
    "disk_busy:": "1",  # share of the time with a request in flight
    "disk_queue:": "1",  # requests in flight, mean
    "disk_latency:": "s",  # of a request, mean
    "link_received:": "B s-1",
    "link_sent:": "B s-1",
    "link_packets_received:": "s-1",
    "link_packets_sent:": "s-1",
    "link_drops:": "s-1",
}


CORES = ("cpu_user", "cpu_system")  # shares of the cores that worked
LINKS = ("link_received:", "link_sent:")
DISKS = ("disk_read:", "disk_written:")
_STILL = ("disk_", "link_")
SERVICES = "services"  # stands for a node: a test bed's daemons that are on none


@dataclass(frozen=True, kw_only=True)
class WatchedNode(Stored):
    """Where the series of one storage node came from, or why there are none."""

    source: str  # testbed, ssh, prometheus, nmon, sar, collectl
    interval: float | None = None  # seconds between samples
    offset: float = 0.0  # seconds by which its clock was ahead of the runs'; it is taken out
    uncertainty: float = 0.0  # of that offset, seconds
    # bytes/s each way of a link by its name, and of "disk_read:sda", where they are known
    link_limits: Mapping[str, float] = field(default_factory=dict)
    drive_limits: Mapping[str, float] = field(default_factory=dict)
    why_not: str | None = None  # why it has no series, or fewer than it should


def unit_of(name: str) -> str:
    """The unit of a series; KeyError for a name that is none."""
    metric, colon, _ = name.partition(":")
    return METRICS[metric + colon]


def moving(series: Mapping[str, npt.NDArray[np.float64]]) -> list[str]:
    """Names of those to keep: not of devices and links that are 0 all the time, on all nodes."""
    return [
        name
        for name, values in series.items()
        if not name.startswith(_STILL) or np.nansum(np.abs(values)) > 0
    ]
