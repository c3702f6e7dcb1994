"""Counters of a node, as /proc has them, and the series that two looks at them give.

A counter's name is that of its series (`results/evidence/nodes.py`) where the series is its rate.
Others: "cpu:MODE" and "core:N" (seconds; "cpu:all": of all modes), "busy:DISK" and "queue:DISK"
(seconds with a request in flight, and times their number), "waited:DISK" (seconds of all requests).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

SECTOR = 512  # bytes, of /proc/diskstats on every device
TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds; 100 a second on every Linux that counts here
MEMORY = "memory_used"  # a level, no counter
_MODES = ("user", "user", "system", "idle", "iowait", "system", "system", "steal")
_CPU = ("user", "system", "iowait", "idle")
_FREE = ("MemFree", "Buffers", "Cached", "SReclaimable")
# columns of /proc/net/dev: bytes, packets, errors, drops received; likewise sent
_LINK = {0: "link_received:", 1: "link_packets_received:", 8: "link_sent:", 9: "link_packets_sent:"}
_RATES = ("disk_read:", "disk_written:", "disk_reads:", "disk_writes:", *_LINK.values(),
          "link_drops:")  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A node's counters at a moment."""

    at: float  # seconds on the runs' clock
    own: float  # seconds on a clock of the node that never steps
    counters: Mapping[str, float]


def rates(before: Look, after: Look) -> dict[str, float]:
    """The series' values between two looks; what cannot be known is left out.

    A counter that went back (a restart, a device that came anew) has no rate.
    """
    seconds = after.own - before.own
    if not seconds > 0:
        return {}
    moved = {
        name: value - before.counters[name]
        for name, value in after.counters.items()
        if name in before.counters and before.counters[name] <= value < math.inf
    }
    values = {name: moved[name] / seconds for name in moved if name.startswith(_RATES)}
    if (whole := moved.get("cpu:all", 0.0)) > 0:
        for mode in _CPU:
            if f"cpu:{mode}" in moved:
                values[f"cpu_{mode}"] = moved[f"cpu:{mode}"] / whole
    cores = [moved[name] for name in moved if name.startswith("core:")]
    if cores:
        values["cpu_core_max"] = min(max(cores) / seconds, 1.0)
    for name in moved:
        what, _, disk = name.partition(":")
        if what == "busy":
            values[f"disk_busy:{disk}"] = min(moved[name] / seconds, 1.0)
        elif what == "queue":
            values[f"disk_queue:{disk}"] = moved[name] / seconds
        elif what == "waited":
            done = moved.get(f"disk_reads:{disk}", 0.0) + moved.get(f"disk_writes:{disk}", 0.0)
            if done > 0:
                values[f"disk_latency:{disk}"] = moved[name] / done
    return values | levels(after)


def levels(look: Look) -> dict[str, float]:
    """The series' values that one look gives."""
    return {MEMORY: look.counters[MEMORY]} if MEMORY in look.counters else {}


def of_proc(
    lines: Iterable[str], links: frozenset[str] | None, disks: frozenset[str] | None
) -> dict[str, float]:
    """Counters of the lines of /proc/stat, meminfo, diskstats and net/dev, in any order.

    `links`, `disks`: those that count (None: all links but lo, all disks that did something); a
    bond, a partition or a RAID of what counts already would count it twice.  ValueError or
    IndexError if a line is none of these files.
    """
    counters: dict[str, float] = {}
    memory: dict[str, float] = {}
    for line in lines:
        name, colon, rest = line.strip().partition(":")
        words = line.split()
        if colon and len(words) <= 3:
            memory[name] = float(rest.split()[0]) * (1024 if "kB" in rest else 1)
        elif colon and len(rest.split()) >= 16:
            if name != "lo" if links is None else name in links:
                counters.update(of_link(name, rest))
        elif words and words[0].startswith("cpu"):
            counters.update(_of_cpu(words))
        elif len(words) >= 14 and words[0].isdigit():
            name, columns = words[2], words[3:]
            if any(map(int, columns[:11])) if disks is None else name in disks:
                counters.update(of_disk(name, columns))
    if "MemTotal" in memory:
        counters[MEMORY] = memory["MemTotal"] - sum(memory.get(name, 0.0) for name in _FREE)
    return counters


def of_link(name: str, columns: str) -> Iterator[tuple[str, float]]:
    """Counters of a link from its columns in /proc/net/dev."""
    values = [float(word) for word in columns.split()]
    yield from ((f"{metric}{name}", values[column]) for column, metric in _LINK.items())
    yield f"link_drops:{name}", values[3] + values[11]


def of_disk(name: str, words: list[str]) -> Iterator[tuple[str, float]]:
    """Counters of a disk from its columns in /sys/block/NAME/stat."""
    values = [float(word) for word in words[:11]]
    yield f"disk_reads:{name}", values[0]
    yield f"disk_read:{name}", values[2] * SECTOR
    yield f"disk_writes:{name}", values[4]
    yield f"disk_written:{name}", values[6] * SECTOR
    yield f"waited:{name}", (values[3] + values[7]) / 1000
    yield f"busy:{name}", values[9] / 1000
    yield f"queue:{name}", values[10] / 1000


def _of_cpu(words: list[str]) -> Iterator[tuple[str, float]]:
    seconds = [float(word) * TICK for word in words[1:9]]
    modes = dict.fromkeys(_MODES, 0.0)
    for mode, value in zip(_MODES, seconds, strict=False):
        modes[mode] += value
    whole = sum(seconds)
    if words[0] == "cpu":
        yield from ((f"cpu:{mode}", value) for mode, value in modes.items())
        yield "cpu:all", whole
    else:
        yield f"core:{words[0].removeprefix('cpu')}", whole - modes["idle"] - modes["iowait"]
