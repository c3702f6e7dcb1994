"""From an interval, corrected p and a declared tolerance to a verdict in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fsmatrix.analysis.stats import repetitions, words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.repetitions import Repetitions
from fsmatrix.analysis.stats.testing import signflips, tests
from fsmatrix.analysis.stats.testing.tests import ALPHA, Correction
from fsmatrix.results.evidence.stored import Json

Kind = Literal["faster", "slower", "no difference", "too few", "no data"]
CERTAINTY: dict[Kind, Certainty] = {
    "faster": Certainty.PROVEN, "slower": Certainty.PROVEN, "no difference": Certainty.EQUAL,
    "too few": Certainty.UNDECIDED, "no data": Certainty.INVALID,
}  # fmt: skip


def judge(
    interval: Ratio,
    p: float,
    p_equal: float,
    x: float,
    alpha: float = ALPHA,
    more_is_faster: bool = True,
) -> Kind:
    """The verdict on a / b: a pure function of interval, corrected p, and tolerance x.

    `no difference` (larger than x): the interval lies within 1 / (1 + x) .. 1 + x and the
    equivalence test agrees; that comes first, so a small difference that is sure is none that
    matters.  `faster`, `slower`: the interval leaves out 1 and p <= alpha.  Otherwise `too few`.
    `more_is_faster` is False for times.
    """
    if not x > 0:
        raise ValueError(f"the tolerance must be positive, such as 0.05, not {x}")
    if interval.kind == "none":
        return "no data"
    if interval.kind != "interval":
        return "too few"
    if interval.low >= 1 / (1 + x) and interval.high <= 1 + x and p_equal <= alpha:
        return "no difference"
    if p <= alpha and (interval.low > 1 or interval.high < 1):
        return "faster" if (interval.low > 1) == more_is_faster else "slower"
    return "too few"


@dataclass(frozen=True)
class Verdict:
    """A verdict on one cell with all that it follows from; p are corrected, `raw` are not."""

    kind: Kind
    interval: Ratio
    p: float
    p_equal: float
    p_median: float  # of order statistics, by Holm: that the medians differ, whatever the shapes
    raw_p: float
    raw_p_equal: float
    x: float
    alpha: float
    cells: int
    correction: Correction
    share: float  # of alpha that this cell has, with more blocks, if it is one of all that differ
    more_is_faster: bool = True  # False for times
    spread: float = math.nan  # of the log ratios over blocks, as max-T has it

    @functools.cached_property
    def needed(self) -> Repetitions | None:
        """With `too few`: how many attachments it would take; None without any scatter known."""
        if self.kind != "too few":
            return None
        return more(self.interval, self.x, self.share, self.spread)

    @property
    def certainty(self) -> Certainty:
        """How sure the verdict is, corrected over all cells: never `likely`."""
        return CERTAINTY[self.kind]

    @property
    def median_differs(self) -> bool:
        """Whether the medians differ whatever the shapes: the sign test, stricter than max-T."""
        return self.kind in ("faster", "slower") and self.p_median <= self.alpha

    @property
    def says(self) -> str:
        """The verdict in a sentence, of a as against b."""
        ratio = self.interval
        if self.kind == "no data":
            return "no data on one side"
        ahead = words.whole(ratio, self.more_is_faster)
        if self.kind == "no difference":
            return f"no difference larger than {100 * self.x:.3g} %: {ahead}"
        if ratio.kind == "one session":
            return f"{ahead} in one attachment: others may differ"
        if self.kind != "too few":
            return ahead
        return f"{ahead}; {words.not_proven(ratio, 'this cell')}{self._missing}"

    @property
    def _missing(self) -> str:
        """What it would take; "" if that is not known."""
        have, unit = min(self.interval.units), words.unit(self.interval)
        family = self.cells if self.correction == "holm" else 1
        least = tests.fewest(family, self.alpha)
        sentence = ""
        if have < least and family > 1:
            sentence = f"; {have} {unit} are too few for one of {family} cells; {least} are needed"
        elif have < least and not words.every_time(self.interval):
            sentence = f"; {words.few(have, least, unit)}"
        return f"{sentence}; to tell: {self.needed.says}" if self.needed else sentence

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        kept = {k: v for k, v in self.__dict__.items() if k not in ("interval", "needed", "spread")}
        needed = self.needed.to_dict() if self.needed else None
        return kept | {
            "interval": self.interval.to_dict(),
            "needed": needed,
            "says": self.says,
            "median_differs": self.median_differs,
        }


def verdicts(
    cells: Sequence[Ratio],
    x: float,
    alpha: float = ALPHA,
    correction: Correction = "holm",
    more_is_faster: bool = True,
    together: signflips.MaxTResult | None = None,
    later: float | None = None,
    claims: int = 0,
) -> list[Verdict]:
    """A verdict on each cell of one comparison, corrected over all of them.

    Of a cell either the claim of a difference can be false or that of equivalence.  So that both
    err in at most alpha together, each claim of equivalence has the same share of it (Bonferroni),
    whatever the others say.  `claims`: of how many, if more than these cells are in the family.
    `together`: the test of all cells that `max-t` needs (ValueError without), `signflips.max_t` or
    over several looks `looks.max_t`.  `later`: the alpha with more blocks, for which `needed` is;
    None: the same.
    """
    if not x > 0:
        raise ValueError(f"the tolerance must be positive, such as 0.05, not {x}")
    raw = np.array([cell.p for cell in cells])
    count = max(int(np.count_nonzero(~np.isnan(raw))), 1)
    share = alpha / (count if correction != "none" else 1)
    spreads = np.full(len(cells), math.nan)
    if correction == "max-t":
        if together is None:
            raise ValueError("max-t needs the differences of every block")
        p, share = together.p, max(together.share, share)  # few blocks: the flips say little
        spreads = signflips.spreads(together.differences)
        raw_equal = signflips.equivalent(together.differences, float(np.log1p(x)))
        raw_equal = np.maximum(raw_equal, np.finfo(float).tiny)
    else:
        raw_equal = np.array([cell.p_equal(x) for cell in cells])
        p = tests.correct(raw, correction)
    p_equal = np.minimum(raw_equal * (1 if correction == "none" else max(claims, count)), 1.0)
    p_median = tests.correct(raw)
    share *= (later or alpha) / alpha
    return [
        Verdict(
            kind=judge(cell, float(p[i]), float(p_equal[i]), x, alpha, more_is_faster),
            interval=cell,
            p=float(p[i]),
            p_equal=float(p_equal[i]),
            p_median=float(p_median[i]),
            raw_p=float(raw[i]),
            raw_p_equal=float(raw_equal[i]),
            x=x,
            alpha=alpha,
            cells=count if correction != "none" else 1,
            correction=correction,
            share=share,
            more_is_faster=more_is_faster,
            spread=float(spreads[i]),
        )
        for i, cell in enumerate(cells)
    ]


def more(cell: Ratio, x: float, alpha: float, spread: float = math.nan) -> Repetitions | None:
    """Attachments until one or the other verdict is likely, if ratio and spread stay so.

    A difference, by the distance of the log ratio from 0, or equivalence (at 1 - 2 alpha), by
    that from the tolerance; whichever comes first.  `alpha` is the share of this one cell.
    `spread`, of the blocks' log ratios: by their mean, of which `repetitions.lead` is believed;
    without, until the interval of the medians leaves it out.  None within one session.
    """
    if min(cell.units) < 2:
        return None
    (values, *_) = cell.parts
    typical = not math.isnan(spread)
    distance = abs(float(np.mean(values) if typical else np.log(cell.ratio)))
    room = float(np.log1p(x)) - distance
    if typical:
        lead = repetitions.lead(values, spread)
        differs = repetitions.for_typical(values, spread, lead, alpha)
        equal = repetitions.for_typical(values, spread, room, 2 * alpha)
    else:
        differs = repetitions.for_parts(cell.parts, distance, 1 - alpha)
        level = max(1 - 2 * alpha, cell.level)
        equal = repetitions.for_parts(cell.parts, room, level)
    if not differs.known:
        return differs
    options = [r for r in (differs, equal) if r.needed is not None]
    return min(options, key=lambda r: r.needed or 0) if options else differs
