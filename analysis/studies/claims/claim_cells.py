"""The cells of a campaign that a claim is about, each with its estimate and interval.

An estimate has nested intervals at all levels (stats.intervals.Curve) on a scale where zero means
no effect: the log of a ratio, Fisher's z of a correlation.  One-sided p follow from them.

`Reach` says which cells those are, and which of them agree in all but what is compared.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from fsmatrix.analysis.data import cluster
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.doubts import doubts_of
from fsmatrix.analysis.data.factors import ROLES, Key, by_size, follows, level_text, same
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.metric_cells import Study, ratio_of, study
from fsmatrix.analysis.questions.correlation import FACTORS, correlated
from fsmatrix.analysis.stats.estimates.intervals import Curve, Ratio, from_logs
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.studies.claims.claims_file import Claim, StudyFile
from fsmatrix.analysis.units import SHORT_TITLES, Level

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


@dataclass(frozen=True)
class ClaimCell:
    """One cell of a claim.  `value`, `low`, `high`: a ratio or r; the interval is of 95 %."""

    label: str
    metric: str
    value: float
    low: float
    high: float
    kind: str  # of the interval: stats.intervals.Kind
    units: tuple[int, ...]  # blocks, or attachments of both sides
    bounds: tuple[float, float]  # claimed, with slack; infinite without an end
    curve: Curve = field(repr=False, compare=False)  # of the log, or of z
    parts: tuple[Floats, ...] = field(repr=False, compare=False, default=())
    blocks: tuple[int, ...] = ()  # of each value of the only part; none if cells share no blocks
    key: Key = ()  # levels of what else varies
    doubts: tuple[str, ...] = ()  # audits that warn of its values, values far off

    @property
    def decides(self) -> bool:
        """Whether it has an interval that may be judged."""
        return self.kind == "interval"

    def p_above(self, bound: float) -> float:
        """One-sided p that the curve's quantity is at most `bound` (on the curve's scale)."""
        return self._p(self.curve.low > bound)

    def p_below(self, bound: float) -> float:
        """One-sided p that it is at least `bound`."""
        return self._p(self.curve.high < bound)

    def _p(self, beyond: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
        places = np.flatnonzero(beyond)
        if not self.decides or not places.size:
            return 1.0
        return float(self.curve.alphas[places[0]]) / 2


@dataclass(frozen=True)
class Scope:
    """The cells of a claim, and what of its scope the data do not have."""

    cells: tuple[ClaimCell, ...]
    missing: tuple[str, ...]  # levels that the study had and the data have not
    absent: str  # why nothing can be tested
    notes: tuple[str, ...]


def scope_of(data: Data, file: StudyFile, claim: Claim) -> Scope:
    """All cells of a claim."""
    cells: list[ClaimCell] = []
    missing: dict[str, None] = {}
    notes: dict[str, None] = {}
    reasons: dict[str, None] = {}
    for metric in claim.metric:
        needed = [name for name in (metric, claim.over_metric) if name]
        lacking = [data.absent[name] for name in needed if name in data.absent]
        if lacking:
            reasons |= dict.fromkeys(lacking)
            missing |= dict.fromkeys(f"metric {name}" for name in needed if name in data.absent)
            continue
        scope = _of_metric(data, file, claim, metric)
        cells += scope.cells
        missing |= dict.fromkeys(scope.missing)
        notes |= dict.fromkeys(scope.notes)
        reasons |= dict.fromkeys([scope.absent] if scope.absent else [])
    absent = "" if cells else "; ".join(reasons) or "no cells to compare"
    return Scope(tuple(cells), tuple(missing), absent, tuple(notes))


def _of_metric(data: Data, file: StudyFile, claim: Claim, metric: str) -> Scope:
    of = data.studies[metric]
    emulated = _emulated(of, file, claim)
    if emulated:
        return Scope((), (), f"{emulated} is emulated: a claim about it is not tested on that", ())
    reach = Reach(data, file, claim, metric)
    cells = [cell for cell in of.valued if reach.inside(cell)]
    if not cells:
        return Scope((), (), reach.why(of.valued), ())
    claim_cells = list(_claim_cells(reach, cells))
    lacking = reach.lacking(cells)
    absent = "" if claim_cells else reach.why(cells)
    return Scope(tuple(claim_cells), lacking, absent, tuple(reach.notes))


def _emulated(of: Study, file: StudyFile, claim: Claim) -> str:
    about = claim.about or (*claim.compared, *claim.where)
    emulated = (name for name in about if any(n in of.cluster.emulated for n in file.names(name)))
    return next(emulated, "")


def _claim_cells(reach: Reach, cells: list[Values]) -> Iterator[ClaimCell]:
    claim, compare = reach.claim, reach.claim.compare
    if compare is None:
        others = reach.data.studies[claim.over_metric].cells  # the same, in the same order
        counterparts = dict(zip(map(id, reach.of.cells), others, strict=True))
        for cell in cells:
            other = counterparts[id(cell)]
            key = tuple((name, cell.level(name)) for name in reach.of.varying)
            if other.values.size:
                yield from _ratio(reach, key, cell, other, "")
    elif compare.correlation:
        for key, group in reach.groups(cells, FACTORS).items():
            yield from _r(reach, key, group)
    elif compare.both:
        for of, over in compare.both:
            chosen = [c for c in cells if reach.has(c, of) or reach.has(c, over)]
            for key, group in reach.groups(chosen, tuple(of)).items():
                yield from _pair(reach, key, group, of, over)
    else:
        factor = compare.steps or compare.knee
        for key, group in reach.groups(cells, (factor,)).items():
            ordered = _ordered(reach, group, factor)
            yield from _steps(reach, key, ordered) if compare.steps else _knee(reach, key, ordered)


def _pair(
    reach: Reach, key: Key, group: list[Values], of: Mapping[str, Level], over: Mapping[str, Level]
) -> Iterator[ClaimCell]:
    first = [cell for cell in group if reach.has(cell, of)]
    second = [cell for cell in group if reach.has(cell, over)]
    if len(first) == len(second) == 1:
        words = f"{' '.join(map(str, of.values()))} over {' '.join(map(str, over.values()))}"
        yield from _ratio(reach, key, first[0], second[0], words)
    elif first and second:
        reach.notes[
            f"{len(first)} cells against {len(second)} in {reach.of.describe(key)}: left out"
        ] = None


def _ordered(reach: Reach, group: list[Values], factor: str) -> list[tuple[float, Values]]:
    levels = [str(level) for level in reach.file.levels(factor)]
    places = []
    for cell in group:
        level = reach.level(cell, factor)
        if not isinstance(level, str):
            places.append((float(level), cell))
        elif level in levels:
            places.append((float(levels.index(level)), cell))
    if len({place for place, _ in places}) < len(places):
        reach.notes[f"several cells of one {factor}: left out"] = None
        return []
    return sorted(places, key=lambda place: place[0])


def _steps(reach: Reach, key: Key, cells: list[tuple[float, Values]]) -> Iterator[ClaimCell]:
    compare = reach.claim.compare
    every = compare is not None and compare.which == "all"
    pairs = itertools.combinations(cells, 2) if every else itertools.pairwise(cells)
    for (before, a), (after, b) in pairs:
        yield from _ratio(reach, key, b, a, f"{after:g} over {before:g}")


def _knee(reach: Reach, key: Key, cells: list[tuple[float, Values]]) -> Iterator[ClaimCell]:
    """Growth per doubling up to the knee (claimed: above low) and beyond it (below)."""
    claim, compare = reach.claim, reach.claim.compare
    at = reach.file.canonical(compare.knee, compare.at) if compare else ""
    place = next((i for i, (x, _) in enumerate(cells) if same(x, at)), 0)
    if not 0 < place < len(cells) - 1:
        return
    (x0, low), (x1, knee), (x2, high) = cells[place - 1 : place + 2]
    limit = claim.claimed.low or 1.0
    sides = (
        (low, knee, x1 / x0, (limit, math.inf), "up to the knee"),
        (knee, high, x2 / x1, (0.0, limit), "beyond the knee"),
    )
    for before, after, growth, bounds, words in sides:
        for cell in _ratio(reach, key, after, before, words):
            yield replace(_scaled(cell, 1 / math.log2(growth)), bounds=bounds)


def _scaled(cell: ClaimCell, by: float) -> ClaimCell:
    """The same on the scale of growth per doubling: logs times `by`."""
    curve = cell.curve
    return replace(
        cell,
        value=cell.value**by,
        low=cell.low**by,
        high=cell.high**by,
        curve=Curve(curve.estimate * by, curve.alphas, curve.low * by, curve.high * by),
        parts=tuple(part * by for part in cell.parts),
    )


def _ratio(reach: Reach, key: Key, a: Values, b: Values, words: str) -> Iterator[ClaimCell]:
    if np.any(a.values <= 0) or np.any(b.values <= 0):
        reach.notes[f"no ratio of zeros in {reach.of.describe(key)}: left out"] = None
        return
    r, blocks = _over(a, b)
    yield ClaimCell(
        _label(reach, key, words),
        reach.metric,
        r.ratio,
        r.low,
        r.high,
        r.kind,
        r.units,
        reach.claim.bounds,
        r.curve,
        r.parts,
        blocks,
        tuple(pair for pair in key if pair[1] != ""),
        _doubts(reach, (a, b)),
    )


def _doubts(reach: Reach, cells: Iterable[Values]) -> tuple[str, ...]:
    every = (text for c in cells for text in doubts_of(c.cell, c.median, reach.of.metric))
    return tuple(dict.fromkeys(every))


def _over(a: Values, b: Values) -> tuple[Ratio, tuple[int, ...]]:
    """As `study.ratio_of`, without its search where each block has one attachment; the blocks."""
    shared = set(a.attachments) & set(b.attachments)
    names = [c.attachments if shared else c.blocks for c in (a, b)]
    first, second = (
        dict(zip(n, np.log(c.values), strict=True)) for n, c in zip(names, (a, b), strict=True)
    )
    both = [name for name in first if name in second]
    single = len(first) == len(a.blocks) and len(second) == len(b.blocks)
    if single and len(both) >= min(SMALLEST, len(first), len(second)) > 0:
        block = dict(zip(names[0], a.blocks, strict=True))
        logs = np.array([first[name] - second[name] for name in both])
        return from_logs((logs,)), tuple(block[name] for name in both)
    return ratio_of(a, b), ()


def _r(reach: Reach, key: Key, group: list[Values]) -> Iterator[ClaimCell]:
    compare = reach.claim.compare
    if compare is None:
        return
    group = [c for c in group if all(math.isfinite(c.number(name)) for name in FACTORS)]
    if not group:
        return
    c = correlated(key, compare.correlation, reach.metric, group, compare.coding)
    if c.absent:
        reach.notes[f"{reach.of.describe(key)}: {c.absent}"] = None
        return
    has_interval = math.isfinite(c.pearson_low)
    kind = "interval" if has_interval else "one session" if c.attachments < 2 else "range"
    yield ClaimCell(
        _label(reach, key, f"r with {compare.correlation}"),
        reach.metric,
        c.pearson,
        c.pearson_low,
        c.pearson_high,
        kind,
        (c.attachments,),
        reach.claim.bounds,
        c.curve,
        doubts=_doubts(reach, group),
    )


def _label(reach: Reach, key: Key, words: str) -> str:
    parts = [words] if words else []
    parts += [SHORT_TITLES.get(reach.metric, reach.metric)] if len(reach.claim.metric) > 1 else []
    levels = reach.of.describe(key)
    return ", ".join([*parts, *([levels] if levels != "all" else [])]) or "all"


# The cells of a claim together: the mean of their logs in each block, against the claimed range.
#
# If every cell lies in a range, so does their geometric mean.  Cells of which each needs many
# blocks to be shown to lie outside are refuted together by few.  The means of all claims are
# tested at once, each against the ends of its range, by max-T over sign flips of whole blocks
# (stats/signflips.py): 6 blocks can refute, however many cells and claims there are.  As there,
# the centre of symmetry of a block's log ratios is tested, not their median.


Bounds = tuple[float, float]
Blocks = Mapping[int, float]  # block -> log ratio


def means(cells: Sequence[ClaimCell]) -> dict[Bounds, Ratio]:
    """Bounds of a claim -> the geometric mean of all its cells with these bounds.

    Only of two cells or more that have six blocks in common: no interval from fewer.
    """
    ratios = {
        bounds: from_logs((np.array(list(blocks.values())),))
        for bounds, blocks in _by_bounds(cells).items()
    }
    return {bounds: ratio for bounds, ratio in ratios.items() if ratio.decides}


def refuted(
    claims: Sequence[Sequence[ClaimCell]], alpha: float, ends: Sequence[Bounds | None]
) -> list[float]:
    """For each claim (its cells) p that the means lie inside, corrected over all; NaN: no mean.

    `ends`: of a claim, instead of the bounds of its cells; one for each claim.
    """
    columns: list[Blocks] = []
    owners: list[int] = []
    beyond: list[bool] = []  # whether the mean lies outside this end
    for number, (cells, instead) in enumerate(zip(claims, ends, strict=True)):
        for bounds, blocks in _by_bounds(cells).items():
            for end, sign in zip(instead or bounds, (-1, 1), strict=True):
                if 0 < end < math.inf:
                    column = {block: value - math.log(end) for block, value in blocks.items()}
                    columns.append(column)
                    owners.append(number)
                    beyond.append(sign * float(np.mean(list(column.values()))) > 0)
    if not columns:
        return [math.nan] * len(claims)
    every = sorted(set().union(*columns))
    matrix = np.array([[column.get(block, math.nan) for column in columns] for block in every])
    p = np.where(beyond, signflips.max_t(matrix, alpha).p, 1.0)
    owner = np.array(owners)
    return [
        float(np.nanmin(p[owner == n], initial=1.0)) if n in owners else math.nan
        for n in range(len(claims))
    ]


def _by_bounds(cells: Sequence[ClaimCell]) -> dict[Bounds, Blocks]:
    """Bounds -> the mean of all cells with these bounds, in each block that all of them have."""
    groups: dict[Bounds, list[ClaimCell]] = defaultdict(list)
    for cell in cells:
        groups[cell.bounds].append(cell)
    mean_blocks = {bounds: _mean(members) for bounds, members in groups.items() if len(members) > 1}
    return {bounds: blocks for bounds, blocks in mean_blocks.items() if len(blocks) > 1}


def _mean(cells: Sequence[ClaimCell]) -> Blocks:
    """Of cells that are paired by block; nothing if one is not."""
    if any(len(cell.parts) != 1 or not cell.blocks for cell in cells):
        return {}
    columns = [_by_block(cell) for cell in cells]
    common = sorted(set(columns[0]).intersection(*columns[1:]))
    return {block: float(np.mean([column[block] for column in columns])) for block in common}


def _by_block(cell: ClaimCell) -> Blocks:
    """Block -> its log ratio, the median of its attachments."""
    values: dict[int, list[float]] = defaultdict(list)
    for block, value in zip(cell.blocks, cell.parts[0].tolist(), strict=True):
        values[block].append(value)
    return {block: float(np.median(logs)) for block, logs in values.items()}
