"""Who is ahead, and how sure: of two targets in a cell, and of all targets of a cell.

It tests nothing: the verdicts and intervals are those of `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.stats.certainty import WEAKEST_FIRST, Certainty


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
