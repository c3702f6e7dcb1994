"""What a comparison found, as sentences, a table, plain data and pictures."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison import words
from fsmatrix.analysis.comparison.advice import patterns, tested
from fsmatrix.analysis.comparison.compared import ComparedSides
from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.estimates.dependence import dependent_words
from fsmatrix.analysis.stats.testing.verdict import CERTAINTY
from fsmatrix.analysis.units import labelled
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison(ComparedSides, Drawn):
    """Side a against side b in one metric; ratios are a / b."""

    @property
    def says(self) -> list[str]:
        """The answer first, then how sure, then what it does not cover.

        Of test beds on one machine there is no answer.
        """
        sentences = [f"{ONE_MACHINE}."] if self.one_machine else self._answers()
        sentences += words.doubts(self) + self._both() + self._alone() + self._dependent()
        sentences += [spread.says for spread in self.spreads]
        sentences += words.effects(self)
        return sentences + list(self.remarks)

    @property
    def means(self) -> list[str]:
        """What holds over all of several cells."""
        return [words.mean(self)] if len(self.cells) > 1 and not self.one_machine else []

    @property
    def beside(self) -> list[str]:
        """What stands beside an answer; of test beds on one machine why there is none."""
        if self.one_machine:
            return [f"{ONE_MACHINE}.", *self._alone()]
        against = words.doubts(self) + self._both() + self._alone() + self._dependent()
        return against + list(self.remarks)

    def _answers(self) -> list[str]:
        sentences = [words.headline(self), words.mean(self), *self._ahead()]
        sentences += patterns(self) + words.extremes(self)
        advice = (*tested(self), self.record.says(self.alpha))
        return sentences + [line for line in advice if line]

    def _ahead(self) -> list[str]:
        """A count of wins over all cells, where the headline has none."""
        count, (first, second) = len(self.cells), self.ahead
        if count < 2 or (len(self.counts) == 1 and self.counts.keys() != {"single"}):
            return []
        if first >= second:
            return [f"{self.a} is ahead in {first} of {count} cells, {self.b} in {second}."]
        return [f"{self.b} is ahead in {second} of {count} cells, {self.a} in {first}."]

    def _dependent(self) -> list[str]:
        sentence = "" if self.differences is None else dependent_words(self.differences)
        return [sentence] if sentence else []

    def _both(self) -> list[str]:
        count = Counter(audit for cell in self.cells for audit in cell.both)
        parts = [f"{audit} in {n} of {len(self.cells)} cells" for audit, n in count.most_common()]
        return [f"Warnings on both sides: {', '.join(parts)}."] if parts else []

    def _alone(self) -> list[str]:
        """How many cells have no partner, and the levels that only they have."""
        sentences = []
        for side in dict.fromkeys(side for side, *_ in self.alone):
            missing = [(levels, why) for alone, levels, why in self.alone if alone == side]
            own = [
                f"{labelled(name, level)}"
                for name in missing[0][0]
                for level in sorted({levels[name] for levels, _ in missing}, key=str)
                if level not in {cell.levels.get(name, level) for cell in self.cells}
            ]
            why = ", ".join(own[:6]) or next(iter(missing))[1]
            sentences.append(f"Not compared: {plural(len(missing), 'cell')} of {side} ({why}).")
        return sentences

    def table(self) -> pd.DataFrame:
        """One row per cell; medians in `unit`, ratios a / b."""
        import pandas as pd

        names = list(dict.fromkeys(name for cell in self.cells for name in cell.levels))
        varying = [n for n in names if len({c.levels.get(n, "") for c in self.cells}) > 1]
        scale, label = self.unit.divisor, self.unit.label
        frame = pd.DataFrame(
            [
                {
                    **{n: cell.levels.get(n, "") for n in varying},
                    **{
                        f"{side}{part}, {label}": getattr(median, name) / scale
                        for side, median in ((self.a, cell.a), (self.b, cell.b))
                        for part, name in (("", "median"), (" low", "low"), (" high", "high"))
                    },
                    "ratio": cell.ratio.ratio,
                    "low": cell.ratio.low,
                    "high": cell.ratio.high,
                    **{
                        f"pooled {name}": getattr(cell.pooled, name) if cell.pooled else math.nan
                        for name in ("ratio", "low", "high")
                        if any(c.pooled for c in self.cells)
                    },
                    "design": cell.ratio.design,
                    "units": " and ".join(map(str, cell.ratio.units)),
                    "p": cell.verdict.raw_p,
                    "p corrected": cell.verdict.p,
                    "A": cell.effect.a,
                    "verdict": self.word(cell.kind),
                    "in words": cell.says,
                    "doubts": "; ".join(cell.doubts),
                }
                for cell in self.cells
            ]
        )
        frame.attrs |= {"metric": self.metric.name, "unit": label, "a": self.a, "b": self.b}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "a": self.a,
                "b": self.b,
                "by": self.by,
                "metric": self.metric.name,
                "part": self.part,
                "one_machine": self.one_machine,
                "tolerance": self.tolerance,
                "alpha": self.alpha,
                "level": self.level,
                "looks": self.record.looks,
                "correction": self.correction,
                "family": self.family,
                "counts": self.counts,
                "ahead": dict(zip((self.a, self.b), self.ahead, strict=True)),
                "says": self.says,
                "geometric_mean": self.mean.to_dict() if self.mean else None,
                "geometric_mean_verdict": self.mean_kind,
                "geometric_mean_certainty": CERTAINTY[self.mean_kind],
                "questions": [question.to_dict() for question in self.questions],
                "cells": [
                    {
                        "levels": c.levels,
                        "differs": c.differs,
                        "a": c.a,
                        "b": c.b,
                        "kind": c.kind,
                        "certainty": c.certainty,
                        "verdict": c.verdict.to_dict(),
                        "pooled": c.pooled,
                        "effect": c.effect.to_dict(),
                        "test": c.test.to_dict(),
                        "doubts": c.doubts,
                        "says": c.says,
                    }
                    for c in self.cells
                ],
                "alone": [
                    {"side": s, "levels": levels, "why": why} for s, levels, why in self.alone
                ],
                "effects": self.effects.to_dict(),
                "spreads": self.spreads,
                "remarks": self.remarks,
            }
        )
        return data
