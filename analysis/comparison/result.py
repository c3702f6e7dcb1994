"""What a comparison found: one object per cell, and one for all cells of two sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fsmatrix.analysis.comparison import words
from fsmatrix.analysis.comparison.advice import extension_of, patterns, tested
from fsmatrix.analysis.comparison.cells import Alone
from fsmatrix.analysis.comparison.checks import Spread
from fsmatrix.analysis.comparison.questions import Question
from fsmatrix.analysis.comparison.rows import Levels
from fsmatrix.analysis.planning.extension import Extension, Record
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.dependence import dependent_words
from fsmatrix.analysis.stats.estimates.intervals import GeometricMean, Ratio
from fsmatrix.analysis.stats.estimates.medians import Floats, Median
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.effects import Effects
from fsmatrix.analysis.stats.testing.pooled import Pooled
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.stats.testing.verdict import Kind, Verdict, judge
from fsmatrix.analysis.units import Level, Metric, Unit, brief, labelled
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


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
    effect: tests.Effect
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
        one = min(self.a.runs, self.b.runs) == 1 and self.ratio.kind == "one session"
        return "single" if one else self.verdict.kind

    @property
    def says(self) -> str:
        """The verdict in a sentence."""
        return f"{words.SINGLE} (ratio {brief(self.ratio.ratio)})" if self.kind == "single" \
            else self.verdict.says  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Side a against side b in one metric; ratios are a / b."""

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

    @property
    def title(self) -> str:
        """The metric, and of what cells."""
        return self.metric.title + (f" ({self.part})" if self.part else "")

    @property
    def counts(self) -> dict[str, int]:
        """Kind of verdict -> cells, those of `words.KINDS` in order."""
        found = Counter(cell.kind for cell in self.cells)
        return {kind: found[kind] for kind in words.KINDS if found[kind]}

    def word(self, kind: str) -> str:
        """A kind of verdict in words."""
        return words.KINDS[kind].format(x=f"{100 * self.tolerance:.3g} %")

    @property
    def says(self) -> list[str]:
        """The answer first, then how sure, then what it does not cover."""
        said = [words.headline(self), words.mean(self), *self._ahead()]
        said += patterns(self) + words.extremes(self)
        advice = (self.extension.says, tested(self), self.record.says(self.alpha))
        said += [line for line in advice if line]
        said += words.doubts(self) + self._both() + self._alone() + self._dependent()
        said += [spread.says for spread in self.spreads]
        said += self.effect_lines
        return said + list(self.remarks)

    def _ahead(self) -> list[str]:
        """A count of wins over all cells, where the headline has none."""
        count, (first, second) = len(self.cells), self.ahead
        if count < 2 or (len(self.counts) == 1 and self.counts.keys() != {"single"}):
            return []
        if first >= second:
            return [f"{self.a} is ahead in {first} of {count} cells, {self.b} in {second}."]
        return [f"{self.b} is ahead in {second} of {count} cells, {self.a} in {first}."]

    @property
    def ahead(self) -> tuple[int, int]:
        """Cells in which the median of a, of b is the better one, decided or not."""
        return wins([cell.ratio.ratio for cell in self.cells], self.metric.more_is_better)

    @property
    def mean_kind(self) -> Kind:
        """The verdict on the geometric mean: the first question, or without max-T a test apart."""
        if self.mean is None:
            return "no data"
        whole = next((one for one in self.questions if not one.named), None)
        if whole is not None:
            return whole.kind
        one = self.mean.mean
        return judge(one, one.p, one.p_equal(self.tolerance), self.tolerance, self.level,
                     self.metric.more_is_better)  # fmt: skip

    @property
    def mean_ratio(self) -> float:
        """The geometric mean of the cells' ratios; NaN without any."""
        logs = [math.log(cell.ratio.ratio) for cell in self.cells if cell.ratio.ratio > 0]
        return math.exp(float(np.mean(logs))) if logs else math.nan

    @property
    def level(self) -> float:
        """What this look at the campaign may spend of alpha."""
        return self.record.level(self.alpha)

    @property
    def extension(self) -> Extension:
        """How many blocks would decide the cells that are not decided."""
        return extension_of([self])

    def _dependent(self) -> list[str]:
        said = "" if self.differences is None else dependent_words(self.differences)
        return [said] if said else []

    def _both(self) -> list[str]:
        count = Counter(audit for cell in self.cells for audit in cell.both)
        parts = [f"{audit} in {n} of {len(self.cells)} cells" for audit, n in count.most_common()]
        return [f"Warnings on both sides: {', '.join(parts)}."] if parts else []

    def _alone(self) -> list[str]:
        """How many cells have no partner, and the levels that only they have."""
        said = []
        for side in dict.fromkeys(side for side, *_ in self.alone):
            mine = [(levels, why) for one, levels, why in self.alone if one == side]
            own = [
                f"{labelled(name, level)}"
                for name in mine[0][0]
                for level in sorted({levels[name] for levels, _ in mine}, key=str)
                if level not in {cell.levels.get(name, level) for cell in self.cells}
            ]
            why = ", ".join(own[:6]) or next(iter(mine))[1]
            said.append(f"Not compared: {plural(len(mine), 'cell')} of {side} ({why}).")
        return said

    @property
    def effect_lines(self) -> list[str]:
        """What else matters, and doubts about that."""
        shown = words.effects(self)
        doubtful = [
            f"The values {r.stratum} scatter as an F test does not allow: sign flips judge what "
            "matters."
            for r in self.effects.residuals
            if r.suspicious and shown
        ]
        return shown + doubtful

    def table(self) -> pd.DataFrame:
        """One row per cell; medians in `unit`, ratios a / b."""
        import pandas as pd

        names = list(dict.fromkeys(name for cell in self.cells for name in cell.levels))
        varying = [n for n in names if len({c.levels.get(n, "") for c in self.cells}) > 1]
        scale, label = self.unit.divisor, self.unit.label
        frame = pd.DataFrame([
            {**{n: cell.levels.get(n, "") for n in varying},
             **{f"{side}{part}, {label}": getattr(one, name) / scale
                for side, one in ((self.a, cell.a), (self.b, cell.b))
                for part, name in (("", "median"), (" low", "low"), (" high", "high"))},
             "ratio": cell.ratio.ratio, "low": cell.ratio.low, "high": cell.ratio.high,
             **{f"pooled {name}": getattr(cell.pooled, name) if cell.pooled else math.nan
                for name in ("ratio", "low", "high") if any(c.pooled for c in self.cells)},
             "design": cell.ratio.design, "units": " and ".join(map(str, cell.ratio.units)),
             "p": cell.verdict.raw_p, "p corrected": cell.verdict.p, "A": cell.effect.a,
             "verdict": self.word(cell.kind), "in words": cell.says,
             "doubts": "; ".join(cell.doubts)}
            for cell in self.cells
        ])  # fmt: skip
        frame.attrs |= {"metric": self.metric.name, "unit": label, "a": self.a, "b": self.b}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """SI units."""
        made: dict[str, Any] = plain({
            "a": self.a, "b": self.b, "by": self.by, "metric": self.metric.name,
            "part": self.part, "tolerance": self.tolerance, "alpha": self.alpha,
            "level": self.level, "looks": self.record.looks, "extension": self.extension.to_dict(),
            "correction": self.correction, "family": self.family,
            "counts": self.counts, "ahead": dict(zip((self.a, self.b), self.ahead, strict=True)),
            "says": self.says,
            "geometric_mean": self.mean.to_dict() if self.mean else None,
            "geometric_mean_verdict": self.mean_kind,
            "questions": [one.to_dict() for one in self.questions],
            "cells": [
                {"levels": c.levels, "differs": c.differs, "a": c.a, "b": c.b, "kind": c.kind,
                 "verdict": c.verdict.to_dict(), "pooled": c.pooled, "effect": c.effect.to_dict(),
                 "test": c.test.to_dict(), "doubts": c.doubts, "says": c.says}
                for c in self.cells
            ],
            "alone": [{"side": s, "levels": levels, "why": why} for s, levels, why in self.alone],
            "effects": self.effects.to_dict(), "spreads": self.spreads, "remarks": self.remarks,
        })  # fmt: skip
        return made

    @property
    def pages(self) -> int:
        """Number of figures: `figure(page)`, from 0."""
        from fsmatrix.analysis.comparison import chart

        return chart.pages(self)

    def figure(self, page: int = 0) -> Figure:
        """Ratios with intervals on a log axis, sorted; the verdict by colour and symbol."""
        from fsmatrix.analysis.comparison import chart

        return chart.draw(self, page)
