"""Which cells a claim is about, and which of them agree in all but what is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import xarray as xr

from fsmatrix.analysis.data import cluster
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import follows
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.roles import ROLES, Key, by_size, level_text, same
from fsmatrix.analysis.data.study import Study, study
from fsmatrix.analysis.studies.claims.study import Claim, StudyFile
from fsmatrix.analysis.units import Level

# what may differ with the compared factor, because it is of the installation and not of the work
OF_TARGET = frozenset({*cluster.ALWAYS, "target"})


@dataclass(frozen=True)
class Data:
    """A campaign as the claims see it: the cells of each metric."""

    studies: Mapping[str, Study]
    absent: Mapping[str, str]  # metric -> why it has no values
    levels: dict[tuple[int, str], Level] = field(default_factory=dict, repr=False)  # of a cell


def data_of(ds: xr.Dataset, file: StudyFile) -> Data:
    """The metrics of all claims; ValueError if `ds` is no campaign or has no runs."""
    columns = rows(ds).columns
    names = dict.fromkeys(n for c in file.claims for n in (*c.metric, c.over_metric) if n)
    studies: dict[str, Study] = {}
    absent: dict[str, str] = {}
    for name in names:
        if name not in columns:
            absent[name] = f"no {name} in this campaign"
            continue
        try:
            studies[name] = study(ds, name)
        except ValueError as error:
            absent[name] = str(error)
    return Data(studies, absent)


@dataclass
class Reach:
    """Which cells a claim is about, and how they are told apart."""

    data: Data
    file: StudyFile
    claim: Claim
    metric: str
    notes: dict[str, None] = field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = field(default_factory=dict)  # of the study's factors
    words: dict[tuple[str, Level], Level] = field(default_factory=dict)

    def level(self, cell: Values, factor: str) -> Level:
        """The study's word for the level of a factor; "" if the run has none."""
        key = id(cell), factor
        if key not in self.data.levels:
            self.data.levels[key] = self._level(cell, factor)
        return self.data.levels[key]

    def _level(self, cell: Values, factor: str) -> Level:
        for name in self.file.names(factor):
            level = cell.cell.levels.get(name, "")
            if level != "" and level == level:
                return self.file.canonical(factor, level)
        return ""

    @property
    def of(self) -> Study:
        """All cells of the metric."""
        return self.data.studies[self.metric]

    def has(self, cell: Values, wanted: Mapping[str, Level]) -> bool:
        """Whether a cell has all these levels."""
        return all(
            same(self.level(cell, name), self._word(name, level)) for name, level in wanted.items()
        )

    def _word(self, factor: str, level: Level) -> Level:
        key = factor, level
        if key not in self.words:
            self.words[key] = self.file.canonical(factor, level)
        return self.words[key]

    def inside(self, cell: Values) -> bool:
        """Whether a cell lies in the claim's scope, and has a level that the study had."""
        for name, levels in self.claim.where.items():
            if not any(self.has(cell, {name: level}) for level in levels):
                return False
        if any(self.has(cell, exception) for exception in self.claim.unless):
            return False
        return all(self._has_level(name, self.level(cell, name)) for name in self.file.factors)

    def _has_level(self, factor: str, level: Level) -> bool:
        """Whether the study had a level of a factor, or does not say which it had."""
        if factor not in self.levels:
            self.levels[factor] = self.file.levels(factor)
        levels = self.levels[factor]
        return not levels or level == "" or any(same(level, other) for other in levels)

    def why(self, cells: Sequence[Values]) -> str:
        """Why there is nothing to compare among these cells: the first level that is missing."""
        wanted = [(n, level) for n, levels in self.claim.where.items() for level in levels]
        compare = self.claim.compare
        for pair in compare.both if compare else ():
            wanted += [item for side in pair for item in side.items()]
        wanted += [(compare.knee, compare.at)] if compare and compare.knee else []
        for name, level in wanted:
            if not any(self.has(cell, {name: level}) for cell in cells):
                instead = self._instead(name, level, cells)
                return f"no {name} {self._written(name, level)}: {instead}"
        for name in self.claim.compared:
            there = self._there(name, cells)
            if len(there) < 2:
                return f"{name} has {f'only {there[0]}' if there else 'no level'}"
        return "no two cells differ in what is compared and agree in all else"

    def _instead(self, name: str, level: Level, cells: Sequence[Values]) -> str:
        """What the campaign has in the place of a level, also where the study had no such level."""
        every, inside = self._there(name, self.of.valued), self._there(name, cells)
        if not every:
            return f"the campaign has no factor {name}"
        if self._written(name, level) not in every:
            return f"there are {', '.join(every)}"
        return f"in this claim's scope there are {', '.join(inside) or 'none'}"

    def _there(self, name: str, cells: Sequence[Values]) -> list[str]:
        """All levels of a factor among cells, numbers by size, as people write them."""
        levels = {self.level(cell, name) for cell in cells} - {""}
        return [self._written(name, level) for level in sorted(levels, key=by_size)]

    def _written(self, name: str, level: Level) -> str:
        return level_text(name, self._word(name, level))

    def lacking(self, cells: Sequence[Values]) -> tuple[str, ...]:
        """Levels of the scope that the data do not have."""
        written = {
            name for of, _ in (self.claim.compare.both if self.claim.compare else ()) for name in of
        }
        reasons = []
        for name in dict.fromkeys([*self.claim.where, *self.file.factors]):
            if name in written:
                continue
            where = self.claim.where.get(name)
            wanted = where or self.file.levels(name)
            there = [self.level(cell, name) for cell in cells]
            words = [(level, self.file.canonical(name, level)) for level in wanted]
            lost = [level for level, word in words if not any(same(t, word) for t in there)]
            reasons += [
                f"{name} {self.of.label(name, level)}" if name == "chunk" else f"{name} {level}"
                for level in lost
            ]
        return tuple(reasons)

    def groups(self, cells: Iterable[Values], compared: Sequence[str]) -> dict[Key, list[Values]]:
        """Cells that agree in all that varies but `compared`, and what follows it."""
        cells = list(cells)
        own = {n for factor in compared for n in (factor, *self.file.names(factor))}
        names = dict.fromkeys([*self.of.varying, *ROLES])  # a factor may have a role's name
        apart = [name for name in names if not self._roled(name) & own]
        apart = [name for name in apart if not self._follows(cells, name, compared)]
        groups: dict[Key, list[Values]] = defaultdict(list)
        for cell in cells:
            groups[tuple((name, _raw(cell, name)) for name in apart)].append(cell)
        return groups

    def _roled(self, name: str) -> set[str]:
        return {name, *(n for n in ROLES.get(name, ()) if n != "phase")}

    def _follows(self, cells: Sequence[Values], name: str, compared: Sequence[str]) -> bool:
        """Whether a factor of the installation changes with the compared ones only."""
        if name not in OF_TARGET or not compared:
            return False
        levels = [_raw(cell, name) for cell in cells]
        if not follows(levels, [tuple(self.level(c, n) for n in compared) for c in cells]):
            return False
        if len(set(levels)) > 1:
            self.notes[f"{name} changes with {' and '.join(compared)}"] = None
        return True


def _raw(cell: Values, name: str) -> Level:
    """The level of a role, or else of the factor of that name; "" without one."""
    level = cell.level(name)
    if level == "":
        level = cell.cell.levels.get(name, "")
    return level if level == level else ""
