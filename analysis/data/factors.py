"""Factors of a campaign: which vary, which only follow others, and their roles in the SSD study.

The study (Wu et al., "How does SSD Cluster Perform for Distributed File Systems") varies storage
nodes, SSD interface, access pattern, processes per client and chunk size.  Workloads name
these differently (`chunk`, `bs`, `transfer_size`): a role is what they are for the analysis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis import units
from fsmatrix.analysis.data.columns import Mask, coded, combined
from fsmatrix.analysis.data.load import Array
from fsmatrix.analysis.units import Level, Unit

FIRST = ("workload", "pattern", "phase")  # order of columns; the target comes last
LAST = ("rate_per", "arrivals")  # that only say how a load comes
OF_PHASES = ("phase", "engine")  # what a run that failed before its first phase does not have
# what a reader must see in every table and chart even if each target has its own
KEPT_APART = frozenset({
    "workload", "pattern", "phase", "engine", "cache", "device_state",
    "nodes", "processes_per_node", "threads",
})  # fmt: skip

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


def roles(
    columns: Mapping[str, Array], timed: Mask
) -> tuple[tuple[str, ...], dict[str, Level], tuple[str, ...], dict[str, str]]:
    """(varying, constants, attributes of targets, derived).

    Of phases and engines those of rows that have a phase count: a run that failed has none.  All
    else counts for every row, so that rows which differ can be told apart by what varies.
    """
    every = np.ones_like(timed)
    use = timed if timed.any() else every
    coded = {
        name: codes(column[use if name in OF_PHASES else every]) for name, column in columns.items()
    }
    constants = {
        name: levels[0]
        for name, (levels, _) in coded.items()
        if len(levels) == 1 and name != "target" and not _missing(levels[0])
    }
    names = sorted(coded, key=LAST.__contains__)
    several = {n: coded[n][1] for n in names if len(coded[n][0]) > 1 and n != "target"}
    free = [name for name in several if name not in KEPT_APART]
    targets = codes(columns["target"])[1]
    attributes = tuple(name for name in free if _follows(several[name], targets))
    varying = [name for name in several if name not in attributes]
    derived: dict[str, str] = {}
    for name in reversed([name for name in varying if name not in KEPT_APART]):
        owners = [o for o in varying if o != name and o not in OF_PHASES]
        owner = next((o for o in owners if _follows(several[name], several[o])), "")
        if not owner and name == "processes" and "processes_per_node" in varying:
            geometry = [several[o] for o in ("nodes", "processes_per_node") if o in varying]
            if _follows(several[name], combined(geometry, timed.size)[1]):
                owner = "processes_per_node"  # nodes x processes per node
        if owner:
            derived[name] = owner
            varying.remove(name)
    varying.sort(key=_place)
    return (*varying, "target"), constants, attributes, derived


def _place(name: str) -> int:
    """Where a factor's column stands; of two that say the same the first one stays."""
    return FIRST.index(name) if name in FIRST else len(FIRST) + (name in LAST)


def codes(column: Array) -> tuple[list[Level], npt.NDArray[np.int64]]:
    """Levels, sorted, and the index of each row's level; NaN is one level."""
    return coded(column)


def _missing(level: Level) -> bool:
    return level == "" or level != level


def _follows(codes: npt.NDArray[np.int64], owner: npt.NDArray[np.int64]) -> bool:
    """`follows` for many rows: whether each owner has one code only."""
    pairs, owners = (combined(columns, owner.size)[0] for columns in ([owner, codes], [owner]))
    return pairs.size == owners.size


def levels_of(cells: Iterable[Mapping[str, Level]], name: str) -> list[Level]:
    """A factor's level in each cell; "" where it has none, or NaN."""
    found = (cell.get(name, "") for cell in cells)
    return [level if level == level else "" for level in found]


def follows(levels: Sequence[Hashable], owner: Sequence[Hashable]) -> bool:
    """Whether a factor, its level in each cell, has one level for each of its owner's."""
    return len(set(zip(owner, levels, strict=True))) == len(set(owner))


def several(cells: Sequence[Mapping[str, Level]]) -> list[str]:
    """Factors of which the cells have several levels, in the order in which they come."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [name for name in names if len(set(levels_of(cells, name))) > 1]


def varying_names(cells: Sequence[Mapping[str, Level]]) -> list[str]:
    """Factors that tell cells apart; one that follows an earlier one comes only if it must."""
    names = list(dict.fromkeys(name for levels in cells for name in levels))
    names.sort(key=_place)
    kept: list[str] = []
    for name in names:
        texts = {levels.get(name, "") for levels in cells}
        coarser = {tuple(levels.get(n, "") for n in kept) for levels in cells}
        finer = {tuple(levels.get(n, "") for n in (*kept, name)) for levels in cells}
        if len(texts) > 1 and len(finer) > len(coarser):
            kept.append(name)
    return kept


def varying_beside(cells: Sequence[Mapping[str, Level]], without: Sequence[str]) -> list[str]:
    """Factors of several levels that are not of `without`, and do not just follow one of them."""
    return [
        name
        for name in several(cells)
        if name not in without and not any(follows_in(cells, name, other) for other in without)
    ]


def follows_in(cells: Sequence[Mapping[str, Level]], name: str, owner: str) -> bool:
    """`follows` of two factors of these cells; a factor that they do not have owns none."""
    return owner in cells[0] and follows(levels_of(cells, name), levels_of(cells, owner))


def groups(columns: Iterable[Array], length: int) -> npt.NDArray[np.int64]:
    """Number of the combination that each row has, shape [row]."""
    return combined([codes(column)[1] for column in columns], length)[1]


def rows_by_group(group: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Rows of each group."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if group.size else []


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
    own = [name for name in ("workload", "engine") if name in several]
    if len({levels[name] for name in own}) == 1:  # a workload that is called as its engine
        own = own[:1]
    key += [(name, levels[name]) for name in own]
    if pattern:
        key.append((pattern, levels[pattern]))
    phase = levels.get("phase", "")
    if phase != "" and pattern != "phase" and str(phase) not in str(levels.get(pattern, "")):
        key.append(("phase", phase))
    return tuple(key)
