"""Conditions of an acceptance test (`slower > 10 %`), and what cells say to them.

`slower > x`: the same work takes more than 1 + x times as long.  So a time is beyond 1 + x of the
baseline, a rate below 1 / (1 + x) of it.  With R the ratio of medians new / old and L its log:

    met       the interval of R lies wholly beyond the limit: the smallest alpha whose interval
              does, corrected over all cells (as `compare` does), is at most alpha
    not met   the interval of R lies wholly on this side of the limit, at alpha
    open      neither: it is undecided

"not met" needs no correction: that no cell is beyond is one statement about all of them, false
with at most alpha if each is tested at alpha (an intersection-union test: Berger, Technometrics
24, 1982).  Without a magnitude the verdict of `compare` decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fsmatrix.analysis.comparison.rows import Levels, Table
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.axes import factor_columns
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import Mask
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Curve, Ratio
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.units import labelled

# Cells that one side of a comparison has and another one lost: never run, failed, or invalid.


Why = Literal["missing", "failed", "invalid"]
WHYS: tuple[Why, ...] = ("missing", "failed", "invalid")
NO_PHASE = ("phase", "engine")  # what a run that failed may lack


@dataclass(frozen=True)
class Lost:
    """A cell without a counterpart.

    `missing`: no run of it, or of other work; `failed`: no run of it ended well; `invalid`:
    findings say of all that did that they do not count.
    """

    side: str
    levels: Levels
    named: str
    why: Why
    detail: str

    @property
    def says(self) -> str:
        """It in a sentence."""
        return f"{self.side}: {self.named or 'the only cell'} is {self.why} ({self.detail})"


def cells_of(of: Table, side: str) -> list[Levels]:
    """The levels of every cell of a side that has a value."""
    if side not in of.sides.levels:
        return []
    use = np.flatnonzero(of.sides.codes == of.sides.levels.index(side))
    axes = list(of.factors.values())
    first = combined([axis.codes[use] for axis in axes], use.size)[0]
    return [{axis.name: axis.levels[axis.codes[row]] for axis in axes} for row in use[first]]


def lost(
    of: Table, side: str, cells: Sequence[tuple[Levels, str]], varying: Sequence[str]
) -> list[Lost]:
    """Why `side` has no value of these cells; beside each what is known already, or ""."""
    data = rows(of.ds)
    axes = factor_columns(of.ds, data.factors)
    keys = [axes[name] for name in of.by]
    wanted = of.side_levels.get(side)
    rows_of_campaign = of.current.copy()
    for axis, level in zip(keys, wanted or (), strict=bool(wanted)):
        rows_of_campaign &= np.array([own == level for own in axis.levels])[axis.codes]
    every_lost = []
    for levels, reason in cells:
        here = rows_of_campaign.copy()
        for name, level in levels.items():
            if name in axes and name not in NO_PHASE and level == level and level != "":
                here &= np.array([own == level for own in axes[name].levels])[axes[name].codes]
        why, detail = _why(data, here, str(levels.get("phase", "")))
        named = ", ".join(labelled(n, levels[n]) for n in varying if levels.get(n, "") != "")
        every_lost.append(
            Lost(side, levels, named, why, reason if why == "missing" and reason else detail)
        )
    return every_lost


def _why(data: Rows, here: Mask, phase: str) -> tuple[Why, str]:
    if not here.any():
        return "missing", "no run of it"
    ended = here & (data["status"] == "ok")
    if not ended.any():
        errors = [text for text in data["error"][here].tolist() if text]
        first = f": {errors[0]}" if errors else ""
        return "failed", f"{_runs(data, here)} runs, none succeeded{first}"
    timed = ended & (data["phase"] == phase) if phase else ended
    if not timed.any():
        return "missing", f"{_runs(data, ended)} runs, none with the phase {phase}"
    if (timed & summary.invalid(data) == timed).all():
        return "invalid", f"{_runs(data, timed)} runs, all with a finding that makes them invalid"
    return "missing", "no comparable value"


def _runs(data: Rows, here: Mask) -> int:
    return len(set(data["run_id"][here].tolist()))


State = Literal["met", "not met", "open"]
CHANGES = ("faster", "slower")
UNDECIDED = Certainty.UNDECIDED.value
WORDS = (*CHANGES, UNDECIDED, *WHYS)
GRAMMAR = "slower, faster (or with a magnitude: slower > 10 %), " + ", ".join((UNDECIDED, *WHYS))
MOST = 1000.0  # per cent


@dataclass(frozen=True)
class Condition:
    """A word of WORDS; with `slower` and `faster` perhaps a magnitude, as a share."""

    word: str
    beyond: float | None = None

    def __str__(self) -> str:
        return self.word if self.beyond is None else f"{self.word} > {100 * self.beyond:.4g} %"

    @property
    def changes(self) -> bool:
        """Whether it is about a change of speed."""
        return self.word in CHANGES

    def limit(self, more_is_better: bool) -> float:
        """The log of the ratio new / old beyond which it is met, away from 0."""
        rises = (self.word == "faster") == more_is_better
        return math.log1p(self.beyond or 0.0) * (1 if rises else -1)


@dataclass(frozen=True)
class Outcome:
    """What one cell says to one condition; p is corrected, NaN without a magnitude."""

    condition: Condition
    state: State
    p: float

    @property
    def certainty(self) -> Certainty:
        """How sure the state is."""
        return Certainty.UNDECIDED if self.state == "open" else Certainty.PROVEN


def parse(text: str) -> Condition:
    """`slower > 10 %`, `slower`, `missing`...; ValueError for anything else."""
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:>\s*([0-9]+(?:\.[0-9]+)?)\s*%)?\s*", text.lower())
    word, share = match.groups() if match else ("", None)
    if word not in WORDS or (share is not None and word not in CHANGES):
        raise ValueError(f"no condition {text!r}: there are {GRAMMAR}")
    if share is None:
        return Condition(word)
    if not 0 < float(share) < MOST:
        raise ValueError(f"{text!r}: the magnitude must lie between 0 and {MOST:g} %")
    return Condition(word, float(share) / 100)


def outcomes(
    condition: Condition,
    ratios: Sequence[Ratio],
    kinds: Sequence[str],
    more_is_better: bool,
    alpha: float,
    correction: Correction,
) -> list[Outcome]:
    """What each cell says to a condition of `CHANGES`; `kinds` are the cells' verdicts."""
    if condition.beyond is None:
        return [Outcome(condition, _by_verdict(condition.word, kind), math.nan) for kind in kinds]
    limit = condition.limit(more_is_better)
    p = tests.correct(np.array([p_beyond(r.curve, limit) for r in ratios]), correction)
    results = []
    for ratio, own in zip(ratios, p.tolist(), strict=True):
        state: State = "open"
        if ratio.kind == "interval" and own <= alpha:
            state = "met"
        elif ratio.kind == "interval" and p_beyond(ratio.curve, limit, inner=True) <= alpha:
            state = "not met"
        results.append(Outcome(condition, state, own))
    return results


def _by_verdict(word: str, kind: str) -> State:
    if kind == word:
        return "met"
    return "not met" if kind in (*CHANGES, "no difference") else "open"


def p_beyond(curve: Curve, limit: float, *, inner: bool = False) -> float:
    """The smallest alpha whose interval of the log lies wholly beyond `limit`, away from 0.

    `inner`: wholly on the side of 0.  1 if none does, NaN without intervals.  For a limit that is
    not 0.
    """
    if not curve.alphas.size:
        return math.nan
    above = (limit > 0) != inner
    outside = np.flatnonzero(curve.low > limit if above else curve.high < limit)
    return float(curve.alphas[outside[0]]) if outside.size else 1.0
