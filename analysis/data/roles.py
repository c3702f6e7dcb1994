"""Roles of factors in the SSD study; levels: their order, their words, when two are the same.

The study (Wu et al., "How does SSD Cluster Perform for Distributed File Systems") varies storage
nodes, SSD interface, access pattern, processes per client and chunk size.  Workloads name
these differently (`chunk`, `bs`, `transfer_size`): a role is what they are for the analysis.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsmatrix.analysis import units
from fsmatrix.analysis.units import Level, Unit

ROLES: dict[str, tuple[str, ...]] = {
    "interface": ("interface",),
    "pattern": ("pattern", "rw", "phase"),
    "storage_nodes": ("storage_nodes",),
    "processes": ("processes_per_node", "processes"),
    "chunk": ("chunk", "chunk_size", "bs", "transfer_size"),
}
NUMERIC = ("storage_nodes", "processes", "chunk")
TITLES = {"processes": "processes per client node", "chunk": "chunk size"}
# the orders of the paper's figures; what it does not have comes after them
ORDER: dict[str, tuple[str, ...]] = {
    "interface": ("SATA", "PCIe"),
    "pattern": (
        "rand-read", "randread", "seq-read", "read", "rand-write", "randwrite", "seq-write",
        "write",
    ),
}  # fmt: skip
# what the paper prints; its Mb are 10**6 bits
PAPER_UNITS: dict[units.Quantity, Unit] = {
    "bandwidth": Unit("Mb/s", 1e6 / 8),
    "rate": Unit("1/s", 1.0),
    "transactions": Unit("tpm", 1 / 60),
    "events": Unit("events/s", 1.0),
    "time": Unit("ms", 1e-3),
}

Key = tuple[tuple[str, Level], ...]  # (role or factor, level)


def level_text(name: str, level: Level) -> str:
    """A role's level alone: "128 KiB", "16"."""
    return units.level_text(factor_of(name), level)


def by_size(level: Level) -> tuple[bool, float, str]:
    """A key that puts numbers, by their size, before texts."""
    return (True, 0.0, level) if isinstance(level, str) else (False, float(level), "")


def same(level: Level, wanted: Level) -> bool:
    """Whether a level is the wanted one; a text that reads as a number by its own text ("3.10")."""
    if isinstance(level, str):
        return level == (wanted if isinstance(wanted, str) else units.written(wanted))
    return not isinstance(wanted, str) and float(level) == float(wanted)


def factor_of(role: str) -> str:
    """The first of a role's factors; the name itself if it is no role."""
    return ROLES[role][0] if role in ROLES else role


def pattern_of(levels: Mapping[str, Level], several: set[str]) -> Key:
    """Workload, engine and pattern where they vary; the phase where that is not the pattern."""
    pattern = next((n for n in ROLES["pattern"] if levels.get(n, "") != ""), "")
    key: list[tuple[str, Level]] = []
    key += [(name, levels[name]) for name in ("workload", "engine") if name in several]
    if pattern:
        key.append((pattern, levels[pattern]))
    phase = levels.get("phase", "")
    if phase != "" and pattern != "phase" and str(phase) not in str(levels.get(pattern, "")):
        key.append(("phase", phase))
    return tuple(key)
