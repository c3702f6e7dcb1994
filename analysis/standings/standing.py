"""How sure it is who is ahead: of two targets in a cell, and of all targets of a cell.

This is the one place that says what proven, likely, equal, unclear and invalid mean.  It tests
nothing: the verdicts and intervals are those of `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fsmatrix.analysis.comparison.compared import OPPOSED, Compared
from fsmatrix.analysis.stats.words import TIMES

State = Literal["proven", "likely", "equal", "unclear", "invalid"]
MEANING: dict[State, str] = {
    "proven": "ahead, also with all cells counted together",
    "likely": "one cell alone says so (95 % sure): not proven, and may be chance",
    "equal": "no difference that matters",
    "unclear": "too little data: the difference may be chance",
    "invalid": "no valid run of a target: nothing to compare",
}
MARKS: dict[State, str] = {
    "proven": "●",
    "likely": "○",
    "equal": "=",
    "unclear": "?",
    "invalid": "×",
}


@dataclass(frozen=True)
class Pair:
    """Two targets in one cell: how often the value of `a` is that of `b`, and how sure."""

    a: str
    b: str
    cell: Compared
    state: State  # never invalid
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
    """What a compared cell says of its two sides; of a metric of which more is better.

    `proven` and `equal` are its verdict, corrected over all cells; `likely`: there is none, but the
    95 % interval of this cell alone leaves out 1, and the lead is above the tolerance.
    """
    ratio = cell.ratio
    small = max(ratio.ratio, 1 / ratio.ratio) <= 1 + cell.verdict.x
    if cell.kind in ("faster", "slower"):
        return Pair(a, b, cell, "proven", a if cell.kind == "faster" else b)
    if cell.kind == "no difference":
        return Pair(a, b, cell, "equal", "")
    if ratio.differs and not small and OPPOSED not in cell.doubts:
        return Pair(a, b, cell, "likely", a if ratio.low > 1 else b)
    return Pair(a, b, cell, "unclear", "")


def certain(pair: Pair) -> Pair:
    """The pair, unclear if it is only likely."""
    return replace(pair, state="unclear", ahead="") if pair.state == "likely" else pair


def weakest(pairs: Sequence[Pair]) -> Pair:
    """What holds of two targets in all of several comparisons (at several levels of one of them).

    The one that says the least, if all agree on who is ahead; else unclear.
    """
    order: tuple[State, ...] = ("unclear", "likely", "equal", "proven")
    first = pairs[0]
    if len({pair.ahead for pair in pairs}) > 1:
        return replace(first, state="unclear", ahead="")
    return min(pairs, key=lambda pair: (order.index(pair.state), pair.over(pair.ahead or pair.a)))


@dataclass(frozen=True)
class Order:
    """All targets of a cell: groups that cannot be told apart, the leaders first."""

    state: State
    groups: tuple[tuple[str, ...], ...]

    @property
    def leaders(self) -> tuple[str, ...]:
        """The targets that are behind nobody; all of them where nobody is ahead."""
        return self.groups[0] if self.groups else ()


def ordered(names: Sequence[str], pairs: Sequence[Pair]) -> Order:
    """Of these targets (best median first), from what is known of each two of them.

    A group holds those who are behind nobody that is left when the groups before it are taken away.
    proven, likely: every leader is so much ahead of everyone behind; equal: no two of them differ;
    unclear: all else, also if somebody is behind a leader, but not behind every one.
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
        alike &= all(pair.state == "equal" for pair in pairs)
        return Order("equal" if alike and len(names) > 1 else "unclear", tuple(groups))
    against_rest = [
        by_targets.get(frozenset((leader, two)))
        for leader in groups[0]
        for two in names
        if two not in groups[0]
    ]
    if not all(pair is not None and pair.ahead in groups[0] for pair in against_rest):
        return Order("unclear", tuple(groups))
    sure = all(pair is not None and pair.state == "proven" for pair in against_rest)
    return Order("proven" if sure else "likely", tuple(groups))


def ahead_by(ratio: float) -> str:
    """A ratio above 1 in the fewest characters: "+14 %", "×25"."""
    if ratio < TIMES:
        percent = 100 * (ratio - 1)
        return f"+{percent:.0f} %" if percent >= 1 else f"+{percent:.1f} %"
    return f"×{ratio:.1f}" if ratio < 10 else f"×{ratio:,.0f}".replace(",", "\u202f")
