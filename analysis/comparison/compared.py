"""What was compared and found: one object per cell, and one for all cells of two sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.analysis.comparison.cells import Alone, Matched
from fsmatrix.analysis.comparison.checks import (
    Spread,
    common,
    differing,
    named,
    shared,
)
from fsmatrix.analysis.comparison.extension import Record
from fsmatrix.analysis.comparison.questions import Question
from fsmatrix.analysis.comparison.rows import Levels, Table
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import GeometricMean, Ratio
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_runs
from fsmatrix.analysis.stats.estimates.runs import Runs
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.effects import Effects
from fsmatrix.analysis.stats.testing.pooled import Pooled
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.stats.testing.verdict import Kind, Verdict, judge
from fsmatrix.analysis.units import Level, Metric, Unit, brief

OPPOSED = "typical ratio and medians point to different sides"
SINGLE = "one value on a side: chance cannot be told from a difference"
KINDS = {
    "faster": "faster", "slower": "slower", "no difference": "no difference larger than {x}",
    "too few": Certainty.UNDECIDED, "single": SINGLE, "no data": "no data",
}  # fmt: skip


def wins(ratios: Sequence[float], more_is_better: bool) -> tuple[int, int]:
    """How many ratios a / b say that a is the better one, and that b is; equal ones count not."""
    above, below = sum(r > 1 for r in ratios), sum(r < 1 for r in ratios)
    return (above, below) if more_is_better else (below, above)


@dataclass(frozen=True)
class Compared:
    """One cell: both medians and a / b.  `doubts`: why this cell may mislead."""

    levels: Levels
    named: str
    differs: dict[str, tuple[Level, Level]]
    a: Median
    b: Median
    verdict: Verdict
    effect: tests.EffectSize
    test: tests.Test
    doubts: tuple[str, ...]
    warned: tuple[bool, bool] = (False, False)  # audits warn of runs of a, of b
    apart: str = ""  # what differs between the sides in this cell, and not in all, in words
    both: tuple[str, ...] = ()  # audits that warn of both sides: they may cancel out, or not
    pooled: Pooled | None = None  # the ratio drawn towards those of the other cells

    @property
    def ratio(self) -> Ratio:
        """The ratio of the medians."""
        return self.verdict.interval

    @property
    def kind(self) -> str:
        """The verdict's kind, or `single`: a side has one value."""
        single = min(self.a.runs, self.b.runs) == 1 and self.ratio.kind == "one session"
        return "single" if single else self.verdict.kind

    @property
    def certainty(self) -> Certainty:
        """How sure it is who is ahead, or that nobody is.

        `likely`: there is no verdict, but the 95 % interval of this cell alone leaves out 1, and
        the lead is above the tolerance.
        """
        ratio, sure = self.ratio, self.verdict.certainty
        if sure.settled or not ratio.differs or OPPOSED in self.doubts:
            return sure
        small = max(ratio.ratio, 1 / ratio.ratio) <= 1 + self.verdict.x
        return sure if small else Certainty.LIKELY

    @property
    def says(self) -> str:
        """The verdict in a sentence."""
        return (
            f"{SINGLE} (ratio {brief(self.ratio.ratio)})"
            if self.kind == "single"
            else self.verdict.says
        )


def mean_ratio(cells: Sequence[Compared]) -> float:
    """The geometric mean of their ratios; NaN without any."""
    logs = [math.log(cell.ratio.ratio) for cell in cells if cell.ratio.ratio > 0]
    return math.exp(float(np.mean(logs))) if logs else math.nan


@dataclass(frozen=True)
class ComparedSides:
    """Side a against side b in one metric, in numbers and verdicts; ratios are a / b."""

    a: str
    b: str
    by: tuple[str, ...]
    metric: Metric
    unit: Unit
    tolerance: float
    alpha: float  # of all looks at the campaign together
    record: Record
    correction: Correction
    family: int  # cells over which p is corrected, of all comparisons made together
    cells: tuple[Compared, ...]
    mean: GeometricMean | None
    mean_missing: str  # why there is no mean with an interval
    questions: tuple[Question, ...]  # about all cells (named ""), each pattern; none without max-T
    differences: Floats | None  # log ratios [block, cell], of the same blocks in all comparisons
    effects: Effects
    spreads: tuple[Spread, ...]
    alone: tuple[Alone, ...]
    remarks: tuple[str, ...]
    varying: tuple[str, ...] = ()  # factors that tell the cells apart
    part: str = ""  # engine, data or metadata, if the sides have several comparisons
    # both sides ran on test beds of one machine: who is faster there says nothing of the systems
    one_machine: bool = False
    pairs: int = 1  # comparisons that were made together

    @property
    def title(self) -> str:
        """The metric, and of what cells."""
        return self.metric.title + (f" ({self.part})" if self.part else "")

    @property
    def counts(self) -> dict[str, int]:
        """Kind of verdict -> cells, those of `KINDS` in order."""
        counts = Counter(cell.kind for cell in self.cells)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    def word(self, kind: str) -> str:
        """A kind of verdict in words."""
        return KINDS[kind].format(x=f"{100 * self.tolerance:.3g} %")

    @property
    def ahead(self) -> tuple[int, int]:
        """Cells in which the median of a, of b is the better one, decided or not."""
        return wins([cell.ratio.ratio for cell in self.cells], self.metric.more_is_better)

    @property
    def mean_kind(self) -> Kind:
        """The verdict on the geometric mean: the first question, or without max-T a test apart."""
        if self.mean is None:
            return "no data"
        whole = next((question for question in self.questions if not question.named), None)
        if whole is not None:
            return whole.kind
        mean = self.mean.mean
        return judge(
            mean,
            min(self.pairs * mean.p, 1.0),
            min(self.pairs * mean.p_equal(self.tolerance), 1.0),
            self.tolerance,
            self.level,
            self.metric.more_is_better,
        )

    @property
    def mean_ratio(self) -> float:
        """The geometric mean of the cells' ratios; NaN without any."""
        return mean_ratio(self.cells)

    @property
    def level(self) -> float:
        """What this look at the campaign may spend of alpha."""
        return self.record.level(self.alpha)


@dataclass(frozen=True)
class JudgedPair:
    """A cell of both sides: the ratio of their runs, and what is to be said of it."""

    ratio: Ratio
    a: Runs
    b: Runs
    verdict: Verdict
    doubts: tuple[str, ...]
    pooled: Pooled | None


def judged_cells(
    of: Table,
    matched_cells: Matched,
    names: tuple[str, str],
    varying: Sequence[str],
    pairs: Sequence[JudgedPair],
) -> tuple[Compared, ...]:
    """The cells of a pair of sides, in the order of the levels that vary."""
    cells, warned, same = [], shared(of, matched_cells.matches), common(matched_cells.matches)
    for match, pair, warns in zip(matched_cells.matches, pairs, warned, strict=True):
        parts = pair.ratio.parts
        sides = [of_runs(of.values[w], of.attachments[w]) for w in (match.a, match.b)]
        far = [
            f"a value of {name} is far from all others of its cell"
            for name, m in zip(names, sides, strict=True)
            if m.far
        ]
        verdict, opposed = pair.verdict, _opposed(pair.verdict, *sides)
        if opposed and verdict.kind in ("faster", "slower"):
            verdict = replace(verdict, kind="too few")
        cells.append(
            Compared(
                levels=match.levels,
                named=named(match, varying, same),
                apart=differing(match, same),
                differs=dict(match.differs),
                a=sides[0],
                b=sides[1],
                verdict=verdict,
                effect=tests.effect(pair.a.logs, pair.b.logs),
                test=tests.signed_rank(parts[0]) if len(parts) == 1 else tests.mann_whitney(*parts),
                doubts=(*pair.doubts, *far, *[OPPOSED] * opposed),
                warned=(warns[0], warns[1]),
                both=warns[2],
                pooled=pair.pooled,
            )
        )
    order = {n: sorted({sortable(c.levels.get(n, "")) for c in cells}) for n in varying}
    return tuple(
        sorted(
            cells, key=lambda c: [order[n].index(sortable(c.levels.get(n, ""))) for n in varying]
        )
    )


def _opposed(verdict: Verdict, a: Median, b: Median) -> bool:
    """Whether the typical ratio, of some size, and the medians say different things of a and b."""
    ratio, medians = verdict.interval.ratio, a.median / b.median
    large = max(ratio, 1 / ratio, medians, 1 / medians) > 1 + verdict.x
    return (verdict.kind in ("faster", "slower") or large) and (ratio - 1) * (medians - 1) < 0


def sortable(level: Level) -> tuple[int, float, str]:
    """A key that puts numbers, by their size, before texts."""
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")
