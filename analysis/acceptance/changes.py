"""What changed around the storage from one campaign to the next, by the campaigns' own records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.rows import CAMPAIGN, Table
from fsmatrix.analysis.data import provenance
from fsmatrix.analysis.data.load import environments, rows
from fsmatrix.analysis.units import level_text
from fsmatrix.results.evidence.values import JsonObject

# parts of a description that are new with each attachment, or name one place of it
PASSING = frozenset({
    "free", "inodes_free", "fsid", "mount_point", "mount_source", "mount_command", "mkfs",
    "image_rewritten", "tested", "pgs", "kb_used", "stored", "max_avail", "fill", "usable_bytes",
    "path", "path_written", "image", "image_written",
})  # fmt: skip
FIRST = ("version", "kernel", "ceph", "engine", "configuration", "mount_options", "mpi")
LONG = 80  # characters of a value in a sentence

Facts = dict[str, set[str]]  # name of a fact -> its values in one campaign


@dataclass(frozen=True)
class Change:
    """One fact that two campaigns have no value in common of; "" where one has none."""

    name: str
    old: str
    new: str

    @property
    def says(self) -> str:
        """The old value and the new one."""
        old, new = (_short(text) or "nothing" for text in (self.old, self.new))
        return f"{self.name}: {old} → {new}"


def changes(old: Facts, new: Facts) -> tuple[Change, ...]:
    """Facts without a common value, those of versions and configurations first.

    A fact that has several values inside one campaign and shares one with the other did not change.
    """
    differing = [
        Change(name, _joined(old.get(name, ())), _joined(new.get(name, ())))
        for name in dict.fromkeys((*old, *new))
        if not old.get(name, set()) & new.get(name, set())
    ]
    return tuple(sorted(differing, key=lambda change: _rank(change.name)))


def facts_of(of: Table, names: Iterable[str]) -> dict[str, Facts]:
    """For each campaign what its environments, engines and constant factors say.

    Facts of a target carry its name, unless each campaign has one target.  Where a campaign
    describes nothing, its Facts hold only what the runs themselves tell.
    """
    data = rows(of.ds)
    campaign = of.ds[CAMPAIGN].values.astype(str)
    described = environments(of.ds)
    index = data.columns.get("environment_index", np.full(len(data), -1))
    engines = _engines(of.ds)
    of_campaigns: dict[str, Facts] = {}
    own = {
        name: [
            described[int(i)]
            for i in np.unique(index[campaign == name]).tolist()
            if 0 <= int(i) < len(described)
        ]
        for name in names
    }
    same_target = all(len({_target(e) for e in many} - {""}) < 2 for many in own.values())
    for name, many in own.items():
        in_campaign = campaign == name
        facts: Facts = {}
        for environment in many:
            _add(facts, environment, "target" if same_target else _target(environment))
        for engine in sorted(set(engines[in_campaign].tolist())):
            facts.setdefault("engine", set()).add(engine)
        of_campaigns[name] = facts
    for factor, levels in following(of).items():
        for name in of_campaigns:
            if name in levels:
                of_campaigns[name][factor] = {levels[name]}
    return of_campaigns


def following(of: Table) -> dict[str, dict[str, str]]:
    """Factors with one level in each campaign and several in all -> campaign -> that level."""
    levels_by_factor = {}
    for name, axis in of.factors.items():
        pairs = np.unique(np.stack([of.sides.codes, axis.codes]), axis=1)
        if np.unique(axis.codes).size > 1 and np.unique(pairs[0]).size == pairs.shape[1]:
            levels_by_factor[name] = {
                str(of.sides.levels[side]): level_text(name, axis.levels[code])
                for side, code in pairs.T.tolist()
            }
    return levels_by_factor


def _engines(ds: xr.Dataset) -> Any:
    data = rows(ds)
    parts = [data[n].astype(str) for n in ("engine", "engine_version") if n in data.columns]
    if not parts:
        return np.full(len(data), "")
    joined = parts[0] if len(parts) == 1 else np.char.add(np.char.add(parts[0], " "), parts[1])
    return np.char.strip(joined)


def _target(environment: JsonObject) -> str:
    """The name of the target that an environment is of; "target" without a name."""
    target = environment.get("target")
    return str(target.get("name") or "target") if isinstance(target, Mapping) else ""


def _add(facts: Facts, environment: JsonObject, named: str) -> None:
    """One description; its target's part as `named`."""
    rest = {key: value for key, value in environment.items() if key != "target"}
    target = environment.get("target")
    if isinstance(target, Mapping):
        rest[named] = {k: v for k, v in target.items() if k != "name"}
    machine = rest.pop("machine", None)
    rest = rest | dict(machine) if isinstance(machine, Mapping) else rest
    for name, value in provenance.flat(_names_of_counts(rest), ""):
        if name.rpartition(".")[2] not in PASSING:
            facts.setdefault(name, set()).add(value)


def _names_of_counts(value: Any) -> Any:
    """Counts by name ({"ceph version 16.2.15 ...": 2}) as the names: these are the fact."""
    if not isinstance(value, Mapping):
        return value
    if (
        value
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value.values())
        and any(" " in str(key) for key in value)
    ):
        return ", ".join(sorted(map(str, value)))
    return {key: _names_of_counts(item) for key, item in value.items()}


def _joined(values: Iterable[str]) -> str:
    return "; ".join(sorted(values))


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def _rank(name: str) -> tuple[int, str]:
    place = next((i for i, word in enumerate(FIRST) if word in name), len(FIRST))
    return place, name
