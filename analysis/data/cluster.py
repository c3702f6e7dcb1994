"""What the storage is like in all cells of a chart, and which levels are emulated.

Redundancy, failure domain and the like hold for every number of a campaign: a chart without
them cannot be compared with another.  An emulated level (a virtual node, a throttled device, a
limited link) shows how things behave, never how fast hardware is: every chart over one says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import coded
from fsmatrix.analysis.data.load import Array, Rows, environments
from fsmatrix.analysis.units import Level, factor_title, labelled, level_text
from fsmatrix.results.evidence.stored import JsonObject, inside
from fsmatrix.results.evidence.target import POLLED, SHARED

# facts about a cluster that must stand in every chart where they do not vary in it
ALWAYS = (
    "redundancy", "failure_domain", "storage_nodes", "interface", "osds_per_node", "drive_scale",
    "network",
)  # fmt: skip
EMULATED = (
    "Emulated: made by one machine, as virtual storage nodes, throttled devices or limited links. "
    "It shows how levels compare with each other under those limits, not what hardware does, "
    "and no claim about such a factor is tested on it."
)


ONE_MACHINE = "Test beds on one machine: they share its cores; not comparable as systems"


@dataclass(frozen=True)
class Cluster:
    """What stands beside every chart."""

    facts: tuple[str, ...] = ()  # in words, with "(emulated)"
    emulated: Mapping[str, str] = field(default_factory=dict)  # factor -> what stands behind it
    one_machine: bool = False  # ONE_MACHINE holds of all targets

    @property
    def setting(self) -> str:
        """The facts as one line; empty if none is known."""
        return ", ".join(self.facts)

    @property
    def explanation(self) -> str:
        """What emulated means; empty if nothing is."""
        return EMULATED if self.emulated else ""

    def title(self, factor: str) -> str:
        """A factor's name for readers, which says if its levels are emulated."""
        return factor_title(factor) + self.emulated.get(factor, "")

    def label(self, factor: str, level: Level) -> str:
        """A level that says what it is, and whether it is emulated."""
        return labelled(factor, level) + self.emulated.get(factor, "")


def cluster_of(
    ds: xr.Dataset,
    data: Rows,
    columns: Mapping[str, Array],
    constants: Mapping[str, Level],
    owners: Mapping[str, str],
) -> Cluster:
    """Of a campaign's rows; `columns` and `constants` as in a Summary.

    A fact with an owner (the target, or a factor that it follows) is told for each of the
    owner's levels; a factor of which only some targets have emulated levels names these.
    """
    made_up = emulated(ds, data, columns)
    facts = []
    for name in ALWAYS:
        if name in constants:
            facts.append(labelled(name, constants[name]) + made_up.get(name, ""))
        elif name in owners:
            sentence = _followed(columns[name], name, columns[owners[name]], owners[name])
            facts.append(f"{factor_title(name)} {sentence}{made_up.get(name, '')}")
    return Cluster(tuple(facts), made_up, on_one_machine(ds, data))


def on_one_machine(ds: xr.Dataset, data: Rows, targets: Collection[str] = ()) -> bool:
    """Whether these targets (default: all), two or more, all ran on test beds of one machine.

    A bed: its storage nodes are emulated, or its servers work on the cores of clients.
    """
    index = data.columns.get("environment_index")
    every = environments(ds)
    if index is None or "target" not in data.factors or not any(map(_is_bed, every)):
        return False  # the targets of a million rows are not read
    columns = data.factor("target")
    concerned = np.isin(columns, list(targets)) if targets else np.ones(len(data), dtype=bool)
    if len(coded(columns[concerned])[0]) < 2:
        return False
    used = [int(number) for number in np.unique(index[concerned])]
    if not all(0 <= number < len(every) and _is_bed(every[number]) for number in used):
        return False
    return len({str(inside(every[number], "machine").get("host", "")) for number in used}) == 1


def _is_bed(environment: JsonObject) -> bool:
    shared = inside(environment, "target", "deployment").get("shared_cores")
    nodes = inside(environment, "realised").get("storage_nodes")
    return nodes == "emulated" or shared in (SHARED, POLLED)


def _followed(column: Array, name: str, owner: Array, owner_name: str) -> str:
    """The level for each level of its owner: "3 (interface PCIe), 6 (interface SATA)"."""
    return ", ".join(
        f"{level_text(name, column[owner == level].tolist()[0])} ({labelled(owner_name, level)})"
        for level in coded(owner)[0]
    )


def emulated(ds: xr.Dataset, data: Rows, columns: Mapping[str, Array]) -> dict[str, str]:
    """Factor -> " (emulated)", or with the targets where not all have it so."""
    index = data.columns.get("environment_index")
    if index is None:
        return {}
    targets = columns["target"]
    targets_by_fact: dict[str, set[str]] = {}
    for number, environment in enumerate(environments(ds)):
        realised = environment.get("realised")
        made_up = [
            str(factor)
            for factor, how in (realised.items() if isinstance(realised, Mapping) else ())
            if how == "emulated" and factor in columns
        ]
        if made_up:  # the targets of a million rows are worth a look only then
            concerned = {str(name) for name in targets[index == number].tolist()}
            for factor in made_up:
                targets_by_fact.setdefault(factor, set()).update(concerned)
    return {
        factor: " (emulated)" if names >= _having(columns, factor) else _of_targets(names)
        for factor, names in targets_by_fact.items()
        if names
    }


def _having(columns: Mapping[str, Array], factor: str) -> set[str]:
    """Targets that have a level of a factor at all."""
    column = columns[factor]
    there = np.array([value == value and value != "" for value in column.tolist()], dtype=bool)
    return {str(name) for name in columns["target"][there].tolist()}


def _of_targets(names: set[str]) -> str:
    return f" (emulated: {', '.join(sorted(names))})"
