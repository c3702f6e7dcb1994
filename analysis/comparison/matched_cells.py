"""Which cells of two sides of a comparison belong together.

A cell is a combination of levels, phase and engine.  Cells of both sides belong together if
they agree in every factor of the work (`work_id`), in engine, cache state and device state.
Factors that are not of the work (a target's storage nodes, a trial) may differ, which is said.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.counted_rows import (
    CAMPAIGN,
    ComparisonOptions,
    Key,
    Levels,
    Table,
    Where,
)
from fsmatrix.analysis.data.columns import Codes, combined
from fsmatrix.analysis.data.factors import rows_by_group
from fsmatrix.analysis.data.matrices import Axis
from fsmatrix.analysis.stats.estimates.intervals import GeometricMean, Ratio, geometric_mean, ratio
from fsmatrix.analysis.stats.estimates.medians import Floats, per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs, independent, runs
from fsmatrix.analysis.stats.testing.effects import Effects, effects
from fsmatrix.analysis.units import Level, described, labelled, level_text
from fsmatrix.results.evidence.stored import Json, JsonObject

GUARDED = {"engine": "--across-engines", "cache": "--across-cache"}
STATED = ("device_state",)  # not of the work, but never compared silently
PLACE = ("target", "device_state")  # of a case, not of its work; and what is in its level
MOST_NEAREST = 400  # cells of a side among which the nearest are looked for


Alone = tuple[str, Levels, str]  # side, levels, why it has no partner


@dataclass(frozen=True)
class Match:
    """Two cells that belong together: rows of `Table`, and the levels of the work."""

    levels: Levels
    differs: Mapping[str, tuple[Level, Level]]  # factors beyond the compared ones
    a: Where
    b: Where

    def named(self, varying: Iterable[str]) -> str:
        """The levels that vary, in words."""
        return described(self.levels, varying)


@dataclass(frozen=True)
class Matched:
    """Cells of both sides, and cells that have no partner."""

    matches: tuple[Match, ...]
    alone: tuple[Alone, ...]
    differs: Mapping[str, tuple[Level, Level]]  # in all cells


def matched(of: Table, a: str, b: str, free: Iterable[str], ignore: Iterable[str]) -> Matched:
    """Pair the cells of sides a and b; `free`: GUARDED names that may differ; `ignore`: others.

    ValueError for mixed engines or cache states, and if no cell has a partner.
    """
    rows_of = [np.flatnonzero(of.sides.codes == of.sides.levels.index(side)) for side in (a, b)]
    constant = {
        name: pair
        for name in of.factors
        if (pair := _constants(of.factors[name], rows_of)) is not None
        and name not in (*GUARDED, *STATED)
    }
    # what varies is never ignored for one side alone: it would be mixed inside a cell
    loose = {*(of.beside_work - {*GUARDED, *STATED}), *free, *ignore}
    loose &= set(of.factors)
    names = [name for name in of.factors if name not in constant and name not in loose]
    groups = [_grouped(of, rows, names, sorted(loose - set(constant))) for rows in rows_of]
    _refuse_mixing(groups, names, loose, (a, b))
    matches, alone = _pairs(groups, names, sorted(loose - set(constant)), (a, b))
    if not matches:
        raise ValueError(_nearest(groups, names, (a, b)))
    measurable = [m for m in matches if _positive(of, m)]
    alone += [
        (side, m.levels, "a value of 0 has no ratio")
        for m in matches
        if not _positive(of, m)
        for side in (a, b)
    ]
    if not measurable:
        raise ValueError(f"every cell of {a} or {b} holds a value of 0 or infinity: no ratio")
    matches = measurable
    if "work_id" in ignore:
        return Matched(tuple(matches), tuple(alone), constant)
    allowed = {*of.by, *loose, *ignore}
    others = {i: diff for i, m in enumerate(matches) if (diff := _other_work(of, m, allowed))}
    if len(others) == len(matches):
        raise ValueError(
            f"no case is on both sides: {a} and {b} do not do the same work ({others[0]}); "
            "`--ignore work_id` compares them all the same"
        )
    alone += [
        (side, matches[i].levels, f"other work: {diff}")
        for i, diff in others.items()
        for side in (a, b)
    ]
    same = tuple(match for i, match in enumerate(matches) if i not in others)
    return Matched(same, tuple(alone), constant)


def _constants(axis: Axis, rows_of: Sequence[Where]) -> tuple[Level, Level] | None:
    """The two levels of a factor that is constant on each side and differs between them."""
    codes = [np.unique(axis.codes[rows]) for rows in rows_of]
    if any(code.size != 1 for code in codes) or codes[0][0] == codes[1][0]:
        return None
    return axis.levels[codes[0][0]], axis.levels[codes[1][0]]


Group = dict[Key, dict[Key, Where]]  # fixed levels -> loose levels -> rows


def _grouped(of: Table, use: Where, names: Sequence[str], loose: Sequence[str]) -> Group:
    axes = [of.factors[name] for name in (*names, *loose)]
    grouped: Group = defaultdict(dict)
    for group in rows_by_group(combined([axis.codes[use] for axis in axes], use.size)[1]):
        places = use[group]
        levels = tuple(_comparable(axis.levels[axis.codes[places[0]]]) for axis in axes)
        grouped[levels[: len(names)]][levels[len(names) :]] = places
    return grouped


def _comparable(level: Level) -> Level:
    """Missing numbers as "", so that missing equals missing."""
    return "" if level != level else level


def _refuse_mixing(
    groups: Sequence[Group], names: Sequence[str], loose: set[str], sides: tuple[str, str]
) -> None:
    for guard in [name for name in GUARDED if name in names and name not in loose]:
        place = names.index(guard)
        seen: list[dict[Key, set[Level]]] = [defaultdict(set), defaultdict(set)]
        for levels, group in zip(seen, groups, strict=True):
            for key in group:
                levels[key[:place] + key[place + 1 :]].add(key[place])
        mixed = [r for r in seen[0] if r in seen[1] and not seen[0][r] & seen[1][r]]
        if mixed:
            kinds = [", ".join(sorted(map(str, levels[mixed[0]]))) or "unknown" for levels in seen]
            raise ValueError(
                f"{len(mixed)} cells would mix {guard}s: {sides[0]} has {kinds[0]}, {sides[1]} has "
                f"{kinds[1]}; {GUARDED[guard]} compares them all the same, and says so"
            )


def _pairs(
    groups: Sequence[Group], names: Sequence[str], loose: Sequence[str], sides: tuple[str, str]
) -> tuple[list[Match], list[Alone]]:
    """Cells with equal fixed levels.  In each loose factor they agree; or, if the sides have
    no level in common there and one of them has a single one, each meets each."""
    matches: list[Match] = []
    used: list[set[tuple[Key, Key]]] = [set(), set()]
    for key in groups[0]:
        if key not in groups[1]:
            continue
        first, second = groups[0][key], groups[1][key]
        meets = [_meets({k[i] for k in first}, {k[i] for k in second}) for i in range(len(loose))]
        for x, y in itertools.product(first, second):
            if all(p == q or free for p, q, free in zip(x, y, meets, strict=True)):
                pairs = dict(zip(loose, zip(x, y, strict=True), strict=True))
                differs = {n: pair for n, pair in pairs.items() if pair[0] != pair[1]}
                agreed = {n: pair[0] for n, pair in pairs.items() if n not in differs}
                levels = dict(zip(names, key, strict=True)) | agreed
                matches.append(Match(levels, differs, first[x], second[y]))
                used[0].add((key, x))
                used[1].add((key, y))
    alone: list[Alone] = [
        (
            sides[i],
            dict(zip((*names, *loose), key + rest, strict=True)),
            f"no such cell for {sides[1 - i]}",
        )
        for i in (0, 1)
        for key, own in groups[i].items()
        for rest in own
        if (key, rest) not in used[i]
    ]
    return matches, alone


def _meets(a: set[Level], b: set[Level]) -> bool:
    return not a & b and min(len(a), len(b)) == 1


def _nearest(groups: Sequence[Group], names: Sequence[str], sides: tuple[str, str]) -> str:
    """The message for sides without a common case: the pair that differs in the least."""
    some = [list(group)[:MOST_NEAREST] for group in groups]
    if not all(some):
        return f"no case is on both sides: {sides[0 if not some[0] else 1]} has no runs that count"
    x, y = min(
        itertools.product(*some),
        key=lambda pair: sum(p != q for p, q in zip(*pair, strict=True)),
    )
    same = [labelled(n, p) for n, p, q in zip(names, x, y, strict=True) if p == q and p != ""]
    other = [
        f"{n} {level_text(n, p)} ({sides[0]}) against {level_text(n, q)} ({sides[1]})"
        for n, p, q in zip(names, x, y, strict=True)
        if p != q
    ]
    hint = (
        f"; `--ignore {next(n for n, p, q in zip(names, x, y, strict=True) if p != q)}`, if "
        "that may differ"
        if len(other) == 1
        else ""
    )
    differ = ", ".join(other) or "levels of other factors"
    return (
        f"no case is on both sides of {sides[0]} and {sides[1]}. The nearest, "
        f"{', '.join(same) or 'with nothing in common'}, differ in {differ}{hint}"
    )


def _positive(of: Table, match: Match) -> bool:
    values = of.values[np.concatenate([match.a, match.b])]
    return bool(np.all(values > 0) and np.all(np.isfinite(values)))


def _other_work(of: Table, match: Match, allowed: set[str]) -> str:
    """In what the work of two cells of equal factors differs; "" if it does not."""
    if set(of.works[match.a]) & set(of.works[match.b]):
        return ""
    if "case_json" not in of.ds or "case_index" not in of.ds:
        return "" if set(of.by) - {"target", CAMPAIGN} else "their work_id differs"
    first, second = (_case(of, int(where[0])) for where in (match.a, match.b))
    names = [n for n in sorted({*first, *second}) if first.get(n) != second.get(n)]
    shown = [
        f"{name} {first.get(name, 'default')} against {second.get(name, 'default')}"
        for name in names
        if name.rpartition(".")[2] not in allowed and not name.startswith("level.")
    ]
    return ", ".join(shown[:3])


def _case(of: Table, row: int) -> dict[str, Json]:
    """The case of a row without its place: {"options.chunk": 4096, ...}."""
    raw = of.ds["case_json"].values[int(of.ds["case_index"].values[of.index[row]])]
    case = json.loads(raw.decode() if isinstance(raw, bytes) else str(raw))
    return {name: value for name, value in _flat(case).items() if name not in PLACE}


def _flat(value: JsonObject, prefix: str = "") -> dict[str, Json]:
    flat: dict[str, Json] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = item
    return flat


# Pairs of sides: which are compared, and the ratios of their cells before any test.


MOST_PAIRS = 300  # of sides that nobody named: 25 sides


@dataclass(frozen=True, order=True)
class WorkPart:
    """What the cells of one mean have in common."""

    metric: str  # that their phases are judged by: bandwidth before iops
    engines: tuple[str, str]  # of both sides
    kind: str  # units.work_kind: no mean mixes fsyncs with what they secure, or with metadata

    def words(self, every: Sequence[WorkPart]) -> str:
        """It in words that tell it from the other parts; "" if there is no other."""
        words = (
            [" and ".join(dict.fromkeys(self.engines))]
            if len({p.engines for p in every}) > 1
            else []
        )
        if len({p.kind for p in every}) > 1:
            words.append(self.kind)
        return ", ".join(words)


def parts_of(of: Table, matches: Sequence[Match]) -> dict[WorkPart, list[int]]:
    """Part -> places of its matches, sorted."""
    places: dict[WorkPart, list[int]] = defaultdict(list)
    for place, match in enumerate(matches):
        engines = (_level(of, "engine", match.a), _level(of, "engine", match.b))
        metric = str(of.metrics[match.a[0]])
        kind = units.work_kind(metric, _level(of, "phase", match.a))
        places[WorkPart(metric, engines, kind)].append(place)
    return dict(sorted(places.items()))


def _level(of: Table, name: str, where: Where) -> str:
    """The level of a factor in a cell, as text; "" if there is no such factor."""
    axis = of.factors.get(name)
    return str(axis.levels[axis.codes[where[0]]]) if axis else ""


@dataclass(frozen=True)
class Pair:
    """Two sides with the cells that they share."""

    sides: tuple[str, str]
    cells: Matched
    parts: dict[WorkPart, list[int]]  # places in `cells.matches`
    blocks: Codes  # of each row, the groups of blocks that share attachments
    ratios: tuple[tuple[Ratio, Runs, Runs], ...]  # of each match, with the runs of both sides


def pairs_of(
    of: Table,
    sides: Sequence[str],
    baseline: str,
    free: Sequence[str],
    options: ComparisonOptions,
    made: Sequence[Pair] = (),
) -> list[Pair]:
    """Every pair of `sides` (all of them if none is named), or every other one with `baseline`.

    `free`: GUARDED names that may differ.  `made`: pairs of these rows that are there already.
    ValueError as `compare.comparisons`.
    """
    names = _chosen(of, sides)
    pairs = list(itertools.combinations(names, 2))
    if baseline:
        pairs = [(name, baseline) for name in names if name != baseline]
    elif len(pairs) > MOST_PAIRS and not sides:
        raise ValueError(
            f"{units.factor_title(' and '.join(of.by))} has {len(names)} levels, {len(pairs)} "
            f"pairs: name those to compare (--levels {shlex.quote(','.join(names[:2]))})"
        )
    known = {pair.sides: pair for pair in made}
    matched_cells = {
        (a, b): matched(of, a, b, free, options.ignore) for a, b in pairs if (a, b) not in known
    }
    return [
        known.get(pair) or _with_ratios(of, pair, matched_cells[pair], 1 - options.alpha)
        for pair in pairs
    ]


def _with_ratios(of: Table, sides: tuple[str, str], cells: Matched, level: float) -> Pair:
    blocks = units_of(of, cells.matches)
    ratios = tuple(_ratio(of, match, blocks, level) for match in cells.matches)
    return Pair(sides, cells, parts_of(of, cells.matches), blocks, ratios)


def _chosen(of: Table, sides: Sequence[str]) -> list[str]:
    """The sides that have values, or those that were named."""
    levels = [str(of.sides.levels[code]) for code in np.unique(of.sides.codes)]
    named = units.factor_title(" and ".join(of.by))
    for side in sides:
        if side not in levels:
            why = (
                f"has no run that counts ({of.valueless[side]})"
                if side in of.valueless
                else "is not there"
            )
            raise ValueError(f"{named} {side!r} {why}: there are {', '.join(sorted(levels))}")
    chosen = list(dict.fromkeys(sides or levels))
    if len(chosen) < 2:
        lost = "; ".join(without(of))
        if lost and not sides:
            raise ValueError(
                f"only {chosen[0]} has runs that count: nothing to compare it with. {lost}"
            )
        raise ValueError(f"{named} has one level, {chosen[0]}: nothing to compare it with")
    return chosen


def without(of: Table) -> list[str]:
    """Sides that have no value at all, and why."""
    return [f"{side} has none: {why}" for side, why in of.valueless.items()]


def _ratio(of: Table, match: Match, unit: Codes, level: float) -> tuple[Ratio, Runs, Runs]:
    """Paired by attachment where both cells are of one, else by groups of blocks.

    Each attachment has one value, the median of its logs; blocks of two campaigns differ.
    """
    shared = np.intersect1d(of.attachments[match.a], of.attachments[match.b]).size > 0
    labels = of.attachments if shared else unit
    sides = []
    for where in (match.a, match.b):
        owners, first = np.unique(of.attachments[where], return_index=True)
        logs = per_attachment(np.log(of.values[where]), of.attachments[where])
        sides.append(runs(np.exp(logs), owners, labels[where][first]))
    return ratio(sides[0], sides[1], level), sides[0], sides[1]


# What holds over all cells of a comparison: the geometric mean of ratios, effects of factors.


MOST_EFFORT = 100_000_000  # operations of a fit; there are some tens of fits
TOO_MANY = "too many levels and values: select some with --where"


def whole_mean(
    of: Table, matches: Sequence[Match], unit: Codes, ratios: Sequence[Ratio], level: float
) -> tuple[GeometricMean | None, str]:
    """The geometric mean over cells with its interval; or None, and why there is no interval.

    Its independent units (`unit`, of each row) are blocks in which all cells of a side were run;
    blocks that share an attachment are one.  Paired if the cells are.
    """
    if all(min(m.a.size, m.b.size) == 1 for m in matches):
        return None, "one value per cell"
    sides = [_matrix(of, unit, [m.a for m in matches]), _matrix(of, unit, [m.b for m in matches])]
    if all(r.design == "paired by block" for r in ratios):
        both = sorted(set(sides[0].index) & set(sides[1].index))
        sides = [sides[0].loc[both] - sides[1].loc[both]]
    mean = geometric_mean([side.to_numpy(dtype=np.float64) for side in sides], level)
    if mean.mean.kind == "none":
        return None, "no block has all cells"
    if mean.mean.kind == "one session":
        return None, "one block has all cells"
    return mean, ""


def differences_of(of: Table, pairs: Sequence[Sequence[Match]]) -> tuple[Floats, Codes]:
    """(log ratios [block, cell] of the cells of all pairs of sides, the block's highest number).

    In the order of pairs and matches; NaN: not both.  Blocks that share an attachment are one.
    """
    unit = units_of(of, [match for matches in pairs for match in matches])
    columns = []
    for matches in pairs:
        a, b = (_matrix(of, unit, [getattr(m, side) for m in matches]) for side in ("a", "b"))
        columns.append(a - b)
    whole = pd.concat(columns, axis=1)
    numbers = pd.Series(of.numbers).groupby(unit).max().reindex(whole.index)
    logs: Floats = whole.to_numpy(dtype=np.float64)
    return logs, numbers.to_numpy(dtype=np.int64)


def units_of(of: Table, matches: Sequence[Match]) -> Codes:
    """For each row of these cells the number of its group of blocks that share attachments."""
    used = np.zeros(of.blocks.size, dtype=bool)
    for match in matches:
        used[match.a] = used[match.b] = True
    use = np.flatnonzero(used)
    unit = np.full(of.blocks.size, -1, dtype=np.int64)
    unit[use] = independent(of.blocks[use], of.attachments[use])
    return unit


def _matrix(of: Table, unit: Codes, cells: Sequence[npt.NDArray[np.int64]]) -> pd.DataFrame:
    """Logs [unit, cell]: the median over attachments of their medians; NaN: not measured."""
    frame = _long(of, cells)
    frame["unit"] = unit[frame["row"]]
    each = frame.groupby(["unit", "cell", "attachment"])["log"].median()
    return (
        each.groupby(["unit", "cell"]).median().unstack("cell").reindex(columns=range(len(cells)))
    )


def _long(of: Table, cells: Sequence[npt.NDArray[np.int64]]) -> pd.DataFrame:
    row = np.concatenate(cells)
    return pd.DataFrame(
        {
            "row": row,
            "cell": np.repeat(np.arange(len(cells)), [c.size for c in cells]),
            "attachment": of.attachments[row],
            "block": of.blocks[row],
            "log": np.log(of.values[row]),
        }
    )


def factor_effects(
    of: Table, matches: Sequence[Match], sides: tuple[str, str], varying: Sequence[str]
) -> Effects:
    """Main effects and two-factor interactions of the compared factor and those that vary."""
    frames = []
    for side, cells in zip(sides, ([m.a for m in matches], [m.b for m in matches]), strict=True):
        groups = _long(of, cells).groupby(["cell", "attachment", "block"])["log"].median()
        frames.append(groups.reset_index().assign(side=side))
    frame = pd.concat(frames, ignore_index=True)
    labels: dict[str, npt.NDArray[np.str_]] = {" and ".join(of.by): frame["side"].to_numpy(str)}
    for name in varying:
        levels = np.array([str(m.levels.get(name, "")) for m in matches])
        labels[name] = levels[frame["cell"]]
    if all(min(m.a.size, m.b.size) == 1 for m in matches) or len(frame) < 3:
        return Effects((), tuple((name, "one value per cell") for name in labels))
    values: Floats = np.exp(frame["log"].to_numpy(dtype=np.float64))
    owners, blocks = frame["attachment"].to_numpy(), frame["block"].to_numpy()
    order = next((o for o in (2, 1) if _effort(labels, len(frame), o) <= MOST_EFFORT), 0)
    if not order:
        return Effects((), tuple((name, TOO_MANY) for name in labels))
    analysed = effects(values, owners, labels, blocks, order)
    if order == 2 or len(labels) < 2:
        return analysed
    return replace(analysed, missing=(*analysed.missing, ("interactions", TOO_MANY)))


def _effort(labels: dict[str, npt.NDArray[np.str_]], size: int, order: int) -> int:
    """Values x columns squared of the largest fit, in the order of its operations."""
    levels = [np.unique(column).size - 1 for column in labels.values()]
    columns = sum(levels)
    if order == 2:
        columns += (sum(levels) ** 2 - sum(n * n for n in levels)) // 2
    return size * columns**2
