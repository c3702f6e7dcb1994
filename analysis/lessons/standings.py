"""Where each target stands in every cell of a campaign, from the comparisons that were made."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.data.cells import Cell, Values
from fsmatrix.analysis.data.factors import varying_names
from fsmatrix.analysis.data.metric_cells import Study
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.lessons.lessons_words import orders, shown
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.certainty import WEAKEST_FIRST, Certainty
from fsmatrix.analysis.units import (
    MISSING,
    Level,
    Metric,
    is_size,
    labelled,
    level_text,
    metric_of,
    own_metric,
)
from fsmatrix.results.evidence.stored import Json

# Who is ahead, and how sure: of two targets in a cell, and of all targets of a cell.
#
# It tests nothing: the verdicts and intervals are those of `compare`.


@dataclass(frozen=True)
class Pair:
    """Two targets in one cell: how often the value of `a` is that of `b`, and how sure."""

    a: str
    b: str
    cell: Compared
    state: Certainty  # never invalid
    ahead: str  # a, b or ""

    def over(self, target: str) -> float:
        """The ratio as that target over the other one."""
        ratio = self.cell.ratio.ratio
        return ratio if target == self.a else 1 / ratio

    def span(self, target: str) -> tuple[float, float]:
        """The ends of the ratio's interval, as `over`."""
        ratio = self.cell.ratio
        return (ratio.low, ratio.high) if target == self.a else (1 / ratio.high, 1 / ratio.low)

    def other(self, target: str) -> str:
        """The rival."""
        return self.b if target == self.a else self.a

    def blocks(self, target: str) -> tuple[int, int]:
        """(blocks in which that target is ahead, blocks); (0, 0) if blocks are not paired."""
        parts = self.cell.ratio.parts
        if len(parts) != 1:
            return 0, 0
        sign = 1 if target == self.a else -1
        return int((sign * parts[0] > 0).sum()), int(parts[0].size)


def pair(a: str, b: str, cell: Compared) -> Pair:
    """What a compared cell says of its two sides; of a metric of which more is better."""
    led = cell.certainty in (Certainty.PROVEN, Certainty.LIKELY)
    # no data on one side tells no more than too little does
    sure = Certainty.UNDECIDED if cell.certainty is Certainty.INVALID else cell.certainty
    return Pair(a, b, cell, sure, (a if cell.ratio.ratio > 1 else b) if led else "")


def certain(pair: Pair) -> Pair:
    """The pair, undecided if it is only likely."""
    return _undecided(pair) if pair.state is Certainty.LIKELY else pair


def _undecided(pair: Pair) -> Pair:
    return replace(pair, state=Certainty.UNDECIDED, ahead="")


def weakest(pairs: Sequence[Pair]) -> Pair:
    """What holds of two targets in all of several comparisons (at several levels of one of them).

    The one that says the least, if all agree on who is ahead; else undecided.
    """
    first = pairs[0]
    if len({pair.ahead for pair in pairs}) > 1:
        return _undecided(first)
    return min(
        pairs,
        key=lambda pair: (WEAKEST_FIRST.index(pair.state), pair.over(pair.ahead or pair.a)),
    )


@dataclass(frozen=True)
class Order:
    """All targets of a cell: groups that cannot be told apart, the leaders first."""

    state: Certainty
    groups: tuple[tuple[str, ...], ...]

    @property
    def leaders(self) -> tuple[str, ...]:
        """The targets that are behind nobody; all of them where nobody is ahead."""
        return self.groups[0] if self.groups else ()


def ordered(names: Sequence[str], pairs: Sequence[Pair]) -> Order:
    """Of these targets (best median first), from what is known of each two of them.

    A group holds those who are behind nobody that is left when the groups before it are taken away.
    proven, likely: every leader is so much ahead of everyone behind; equal: no two of them differ;
    undecided: all else, also if somebody is behind a leader, but not behind every one.
    """
    by_targets = {frozenset((pair.a, pair.b)): pair for pair in pairs}
    left, groups = list(names), []
    while left:
        behind = {
            pair.other(pair.ahead)
            for pair in pairs
            if pair.ahead in left and pair.other(pair.ahead) in left
        }
        front = [name for name in left if name not in behind] or left
        groups.append(tuple(sorted(front)))  # by name: nothing else is known
        left = [name for name in left if name not in front]
    if len(groups) < 2:
        alike = len(by_targets) == math.comb(len(names), 2)
        alike &= all(pair.state is Certainty.EQUAL for pair in pairs)
        alike &= len(names) > 1
        return Order(Certainty.EQUAL if alike else Certainty.UNDECIDED, tuple(groups))
    against_rest = [
        by_targets.get(frozenset((leader, two)))
        for leader in groups[0]
        for two in names
        if two not in groups[0]
    ]
    if not all(pair is not None and pair.ahead in groups[0] for pair in against_rest):
        return Order(Certainty.UNDECIDED, tuple(groups))
    sure = all(pair is not None and pair.state is Certainty.PROVEN for pair in against_rest)
    return Order(Certainty.PROVEN if sure else Certainty.LIKELY, tuple(groups))


# Many targets: their places by pattern, without a verdict (`lessons.ranking`).


@dataclass(frozen=True)
class Place:
    """Where a target stands in one pattern; 1 is the largest median."""

    pattern: str
    place: int
    of: int

    @property
    def says(self) -> str:
        """ "3 of 150 in seq-read"."""
        return f"{self.place} of {self.of}" + (f" in {self.pattern}" if self.pattern else "")


@dataclass(frozen=True)
class Places:
    """A ranking for each pattern, and the best and the worst place of each target."""

    rankings: tuple[tuple[str, tuple[str, ...]], ...]  # pattern, targets with medians
    ends: tuple[tuple[str, Place, Place], ...]  # target, best, worst; the best target first


def places(of: Study) -> Places:
    """Of all targets of a study; linear in its cells."""
    places_by_target: dict[str, list[Place]] = defaultdict(list)
    rankings = []
    for key, order in orders(of).items():
        pattern = ", ".join(labelled(name, level) for name, level in key)
        rankings.append((pattern, tuple(shown(order))))
        for place, cell in enumerate(order, 1):
            places_by_target[cell.cell.target].append(Place(pattern, place, len(order)))

    def share(place: Place) -> float:
        return place.place / place.of

    ends = [
        (name, min(shares, key=share), max(shares, key=share))
        for name, shares in places_by_target.items()
    ]
    return Places(tuple(rankings), tuple(sorted(ends, key=lambda e: (share(e[1]), share(e[2])))))


PER = " per node"
LED = (Certainty.PROVEN, Certainty.LIKELY)  # somebody is ahead
SIDE = ("target",)  # never what tells cells apart
Key = tuple[Level, ...]


@dataclass(frozen=True)
class Standing:
    """One cell: who is ahead, by how much, how sure, and on what it stands."""

    levels: Mapping[str, Level]  # of what tells the cells apart
    named: str  # they in words
    metric: Metric
    order: Order
    values: tuple[Values, ...]  # of each target with a value, the best median first
    pairs: tuple[Pair, ...]
    lost: tuple[tuple[str, str], ...]  # target without a valid value, and why
    doubts: tuple[str, ...]  # audits that warn, with their targets; then other doubts

    @property
    def state(self) -> Certainty:
        """How sure it is; `invalid`: fewer than two targets have a valid value, others lost it."""
        lost = self.lost and len(self.values) < 2
        return Certainty.INVALID if lost else self.order.state

    @property
    def leaders(self) -> tuple[str, ...]:
        """Who is ahead; nobody where that cannot be told."""
        return self.order.leaders if self.state in LED else ()

    @property
    def proven(self) -> tuple[str, ...]:
        """Who is proven to be ahead of all others: a lead that is likely is none in words."""
        return self.leaders if self.state is Certainty.PROVEN else ()

    @property
    def margin(self) -> float:
        """By how much the leaders are ahead of everybody behind them, at least; NaN without."""
        margins = [
            pair.over(first)
            for first in self.leaders
            for pair in self.pairs
            if first in (pair.a, pair.b) and pair.other(first) not in self.leaders
        ]
        return min(margins, default=float("nan"))

    @property
    def blocks(self) -> int:
        """Independent values of the target that has the fewest."""
        return min((value.median.independent for value in self.values), default=0)

    def to_dict(self) -> dict[str, Json]:
        """How sure, who leads, the groups behind, and by how much, as a ratio."""
        data: dict[str, Json] = plain(
            {
                "certainty": self.state,
                # as it was called before there was one word for it
                "state": "unclear" if self.state is Certainty.UNDECIDED else self.state,
                "leaders": self.leaders,
                "groups": self.order.groups,
                "margin": self.margin,
            }
        )
        return data


@dataclass(frozen=True)
class Standings:
    """All cells of a campaign in which targets can be held against each other."""

    targets: tuple[str, ...]
    cells: tuple[Standing, ...]
    names: tuple[str, ...]  # factors that tell the cells apart
    compared: tuple[Comparison, ...]
    summary: Summary

    def of(self, cell: Cell) -> Standing | None:
        """The standing that a cell of the summary is part of; None of references."""
        return self._by_key.get(_key(cell.levels, self.names))

    @functools.cached_property
    def _by_key(self) -> dict[Key, Standing]:
        return {_key(cell.levels, self.names): cell for cell in self.cells}

    def count(self, *states: Certainty) -> int:
        """Cells in one of these states."""
        return sum(cell.state in states for cell in self.cells)


def standings(summary: Summary, compared: Sequence[Comparison]) -> Standings:
    """The cells of a summary with what these comparisons of its targets say.

    Of few targets: `compared` are their pairs, each phase in its own metric; linear in the cells.
    """
    names = _names(summary, compared)
    pairs: dict[Key, dict[tuple[str, str], list[Compared]]] = defaultdict(lambda: defaultdict(list))
    for comparison in compared:
        for cell in comparison.cells:
            pairs[_key(cell.levels, names)][comparison.a, comparison.b].append(cell)
    targets = tuple(name for name in summary.targets if name not in summary.references)
    groups: dict[Key, list[Values]] = defaultdict(list)
    for of in summary.cells:
        if of.target in targets and not of.open_loop:  # in the metric of its own phase
            groups[_key(of.levels, names)].append(of.values(_metric(of)))
    several = varying_names([dict(zip(names, key, strict=True)) for key in groups])
    cells = tuple(
        _standing(dict(zip(names, key, strict=True)), several, values, pairs.get(key, {}))
        for key, values in groups.items()
    )
    return Standings(targets, cells, names, tuple(compared), summary)


def _names(summary: Summary, compared: Sequence[Comparison]) -> tuple[str, ...]:
    """What tells cells apart: what varies, without what differs between sides of one cell."""
    every = [cell for comparison in compared for cell in comparison.cells]
    return tuple(
        name
        for name in summary.varying
        if name not in SIDE and all(name in cell.levels for cell in every)
    )


def _key(levels: Mapping[str, Level], names: Iterable[str]) -> Key:
    """Levels that equal themselves: NaN is no key."""
    key = (levels.get(name, "") for name in names)
    return tuple(level if level == level else "" for level in key)


def _metric(cell: Cell) -> str:
    """As `compare` judges it: data without bytes by operations per second too."""
    name = own_metric(str(cell.levels.get("engine", "")), str(cell.levels.get("phase", "")))
    return "iops" if not cell.metrics[name].runs and cell.metrics["iops"].runs else name


def _standing(
    levels: Mapping[str, Level],
    several: Sequence[str],
    every: Sequence[Values],
    compared: Mapping[tuple[str, str], Sequence[Compared]],
) -> Standing:
    values = sorted((cell for cell in every if cell.values.size), key=lambda v: -v.median.median)
    have = list(dict.fromkeys(value.cell.target for value in values))
    pairs = [weakest([pair(a, b, cell) for cell in cells]) for (a, b), cells in compared.items()]
    proven = ordered(have, [certain(pair) for pair in pairs])  # what is only likely hides it not
    lost = [(cell.cell.target, _why(cell.cell)) for cell in every if cell.cell.target not in have]
    metrics = {_metric(cell.cell) for cell in (values or every)}
    return Standing(
        levels=levels,
        named=", ".join(
            level_words(n, levels[n]) for n in several if level_text(n, levels[n]) != MISSING
        ),
        metric=metric_of(min(metrics), (cell.cell.levels for cell in every)),
        order=proven if proven.state is Certainty.PROVEN else ordered(have, pairs),
        values=tuple(values),
        pairs=tuple(pairs),
        lost=tuple(lost),
        doubts=_doubts(values, pairs),
    )


def level_words(name: str, level: Level) -> str:
    """A level in few words: "4 KiB", "2 processes"."""
    return level_text(name, level) if is_size(name) else labelled(name, level).removesuffix(PER)


def _doubts(values: Sequence[Values], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Each audit once with all targets of which it warns, then what else the comparisons doubt."""
    warned: dict[str, list[str]] = defaultdict(list)
    for cell in values:
        for audit in cell.cell.doubts:
            warned[audit].append(cell.cell.target)
    audits = [f"{audit} ({', '.join(sorted(names))})" for audit, names in sorted(warned.items())]
    single = {f"{audit} in {name} only" for audit, names in warned.items() for name in names}
    others = dict.fromkeys(doubt for pair in pairs for doubt in pair.cell.doubts)
    return (*audits, *(doubt for doubt in others if doubt not in single))


def _why(cell: Cell) -> str:
    """Why a target has no valid value: "2 failed; 4 invalid (read-served-by-cache)"."""
    audits = f" ({', '.join(cell.invalid_by)})" if cell.invalid_by else ""
    parts = [f"{cell.failed} failed"] if cell.failed else []
    parts += [f"{cell.invalid} invalid{audits}"] if cell.invalid else []
    return "; ".join(parts) or "not measured"
