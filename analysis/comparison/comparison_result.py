"""What a comparison found: in sentences without statistics, as tables, plain data and pictures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison.compared import SINGLE, ComparedSides
from fsmatrix.analysis.comparison.extension import Extension, extension
from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.dependence import dependent_words
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.verdict import CERTAINTY, Verdict
from fsmatrix.analysis.units import brief, factor_title, labelled
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd

    from fsmatrix.analysis.comparison.compared import Compared, ComparedSides

CORRECTIONS = {
    "max-t": "by max-T over sign flips of blocks", "holm": "by Holm's correction",
    "benjamini-hochberg": "by Benjamini and Hochberg's correction", "none": "each for itself",
}  # fmt: skip


def headline(of: ComparedSides) -> str:
    """Who is faster in how many cells."""
    count, kinds = len(of.cells), of.counts
    sentences: list[str] = []
    start = f"{of.a} against {of.b}, {of.title.lower()}:"
    if kinds == {"single": count}:
        return f"{start} {SINGLE} ({plural(count, 'cell')})."
    for kind, number in kinds.items():
        who = {"faster": f"{of.a} is faster", "slower": f"{of.b} is faster"}
        where = f"{number} of {plural(count, 'cell')}" if not sentences else str(number)
        sentences.append(f"{who.get(kind, of.word(kind))} in {where}")
        if kind == "too few":
            cells = [cell for cell in of.cells if cell.kind == kind]
            sentences[-1] += f" ({ahead(of.a, of.b, cells, of.metric.more_is_better)})"
    return f"{start} {'; '.join(sentences)}."


def ahead(
    a: str,
    b: str,
    cells: Sequence[Compared],
    more_is_better: bool = True,
    *,
    against: bool = False,
) -> str:
    """Who leads in cells that prove nothing: "a is ahead in all 4 by +1 to +10 %; may be chance".

    The larger number is ahead of rates, the smaller one of times.  `against`: the other is named.
    """
    ratios = [c.ratio.ratio if more_is_better else 1 / c.ratio.ratio for c in cells]
    wins = sum(ratio > 1 for ratio in ratios)
    name, other = a, b
    tie = 2 * wins == len(ratios) and math.prod(ratios) < 1  # whose mean is ahead
    if 2 * wins < len(ratios) or tie:
        name, other, wins = b, a, len(ratios) - wins
        ratios = [1 / ratio for ratio in ratios]
    every = "both" if wins == 2 else f"all {wins}"
    which = every if wins == len(cells) else f"{wins} of {len(cells)}"
    by = words.span(min(ratios), max(ratios))
    which += " cells" * against
    over = "" if wins == len(cells) else ", with"
    where = f"in {which}{over or ' by'} {by}" if len(cells) > 1 else f"by {by}"
    start = f"{name} is ahead{f' of {other}' if against else ''}"
    if wins < len(cells) or not all(words.every_time(cell.ratio) for cell in cells):
        return f"{start} {where}; {words.CHANCE}"
    most = max((cell.ratio for cell in cells), key=lambda ratio: min(ratio.units))
    what = "these cells" if len(cells) > 1 else "this cell"
    return f"{start} {where}, each time; {words.not_proven(most, what)}"


def mean(of: ComparedSides) -> str:
    """The geometric mean over all cells, as who is faster over all of them."""
    start = f"Over all {plural(len(of.cells), 'cell')} (geometric mean) {of.a} is"
    better = of.metric.more_is_better
    if of.mean is None:
        by = words.lead(of.mean_ratio, better, of.b)
        return f"{start} {by} (ratio {brief(of.mean_ratio, 4)}); {how_sure(of)}."
    ratio = of.mean.mean
    sentence = f"{start} {words.whole(ratio, better, of.b)}; {how_sure(of)}."
    if of.mean.left_out:
        noun = words.unit(ratio).removesuffix("s")
        sentence += f" Left out: {plural(of.mean.left_out, noun)} without all cells."
    return sentence


def how_sure(of: ComparedSides) -> str:
    """How sure the geometric mean over all cells is, or why that cannot be said."""
    if of.mean is None:
        return f"how sure that is cannot be said: {of.mean_missing}"
    lacking = f" ({plural(of.mean.left_out, 'block')} without all cells)" * (of.mean.left_out > 0)
    return {
        "too few": words.not_proven(of.mean.mean, "all cells together") + lacking,
        "no difference": of.word("no difference"),
    }.get(of.mean_kind, Certainty.PROVEN.value)


def extremes(of: ComparedSides) -> list[str]:
    """The proven cells of the largest and of the smallest ratio."""
    apart = sorted(
        (c for c in of.cells if c.kind in ("faster", "slower")), key=lambda cell: cell.ratio.ratio
    )
    ends = dict.fromkeys(cell.named for cell in (*apart[-1:], *apart[:1]))
    by_name = {cell.named: cell for cell in apart}
    return [
        f"{by_name[name].named or 'The only cell'}: {of.a} is {by_name[name].verdict.says}."
        for name in ends
    ]


def doubts(of: ComparedSides) -> list[str]:
    """What the cells' numbers hang on."""
    where: dict[str, list[str]] = {}
    for cell in of.cells:
        for doubt in cell.doubts:
            where.setdefault(doubt, []).append(cell.named)
    count = len(of.cells)
    parts = []
    for doubt, names in sorted(where.items(), key=lambda item: -len(item[1])):
        some = f"{len(names)} of {count} cells, {names[0]}{' and others' * (len(names) > 1)}"
        parts.append(f"{doubt} ({'all cells' if len(names) == count else some})")
    return [f"In doubt: {'; '.join(parts)}."] if parts else []


def effects(of: ComparedSides) -> list[str]:
    """What else the numbers hang on: factors, and factors on which the comparison itself does."""
    proven = [e for e in of.effects.effects if e.p_holm <= of.level]
    side = " and ".join(of.by)
    terms = {side, *(e.term for e in proven if ":" in e.term)}
    alone = [f"{factor_title(e.term)}{_up_to(e.span)}" for e in proven if e.term not in terms]
    others = [name for e in proven if ":" in e.term for name in [e.term.split(":")]]
    by = [factor_title(n) for names in others if side in names for n in names if n != side]
    sentences = [f"Other factors with an effect: {', '.join(alone)}."] if alone else []
    if by:
        sentences.append(f"How {of.a} and {of.b} compare depends on {', '.join(by)}.")
    return sentences


def _up_to(span: float) -> str:
    return f" (up to {brief(span, 2)} times)" if span == span else ""


def how_tested(comparisons: Sequence[ComparedSides]) -> str:
    """How verdicts were found and where their p are, once for comparisons made together."""
    sides = comparisons[0]
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    if all(cell.ratio.kind == "one session" for cell in cells):
        takes = "" if sides.record.imported else ": it takes several blocks"
        return f"Nothing was tested{takes}."
    over = f"over {plural(sides.family, 'cell')} together " if sides.correction != "none" else ""
    return (
        f"How this was tested: {over}{CORRECTIONS[sides.correction]}, at "
        f"{100 * sides.level:.2g} %; docs/statistics.md. p and intervals: --json."
    )


def extension_of(sides: Sequence[ComparedSides]) -> Extension:
    """How many blocks would decide the open cells of comparisons that were made together."""
    first = sides[0]
    open_ = [
        (side, cell)
        for side in sides
        for cell in side.cells
        if cell.verdict.certainty is Certainty.UNDECIDED
    ]
    cells = [cell.verdict for _, cell in open_]
    return extension(
        first.record,
        [min(v.interval.units) for v in cells],
        [promised(v) for v in cells],
        first.alpha,
        first.family if first.correction == "holm" else 1,
        [_led(*each) for each in open_],
    )


def _led(side: ComparedSides, cell: Compared) -> str:
    """Who is ahead of whom in which cell: "xfs over ext4 for rand-write, chunk 4 KiB"."""
    first = (cell.ratio.ratio > 1) == side.metric.more_is_better
    a, b = (side.a, side.b) if first else (side.b, side.a)
    return f"{a} over {b}{' for ' * bool(cell.named)}{cell.named}"


def promised(verdict: Verdict) -> int | None:
    """Blocks that are likely to prove an open cell; None: not known, or nothing to prove.

    Of a cell whose own interval holds 1 nobody knows that there is anything to prove.
    """
    return verdict.needed.needed if verdict.needed and verdict.interval.differs else None


def fewest_blocks(of: ComparedSides) -> int:
    """Fewest blocks, or attachments of each side, that can decide a cell in this look."""
    return tests.fewest(of.family if of.correction == "holm" else 1, of.level)


def patterns(of: ComparedSides) -> list[str]:
    """What holds over the cells of each pattern, in a sentence; none with one pattern."""
    better = of.metric.more_is_better
    sentences = []
    for question in of.questions:
        word = {"faster": "proven", "slower": "proven"}.get(question.kind, of.word(question.kind))
        if question.named and question.kind != "no data":
            sentences.append(f"{question.named} {words.whole(question.ratio, better)}, {word}")
    return [f"By pattern {of.a} is, against {of.b}: {'; '.join(sentences)}."] if sentences else []


def tested(of: ComparedSides) -> list[str]:
    """What a called cell is, how many hold whatever the shapes are, and which look too large."""
    called = [c.verdict for c in of.cells if c.kind in ("faster", "slower")]
    if not called:
        return []
    if of.correction == "benjamini-hochberg":
        return [
            f"For screening: of the cells that are called, about {100 * of.level:.2g} % may be "
            "called wrongly (Benjamini-Hochberg)."
        ]
    near = sum(max(v.interval.low, 1 / v.interval.high) < 1 + v.x for v in called)
    small = [
        f"In {near} of the {plural(len(called), 'called cell')} the lead may be below "
        f"{100 * of.tolerance:.3g} %: such cells look more different than they are."
    ] * bool(near)
    if of.correction != "max-t":
        return small
    possible = [v for v in called if tests.fewest(v.cells, v.alpha) <= min(v.interval.units)]
    sentence = "A called cell differs in its typical ratio; that its medians differ, whatever shape"
    if not possible:
        return [f"{sentence} they have, takes more blocks.", *small]
    sure = sum(verdict.median_differs for verdict in possible)
    return [f"{sentence} the values have, is proven in {sure} of {len(called)}.", *small]


@dataclass(frozen=True)
class Comparison(ComparedSides, Drawn):
    """Side a against side b in one metric; ratios are a / b."""

    @property
    def says(self) -> list[str]:
        """The answer first, then how sure, then what it does not cover.

        Of test beds on one machine there is no answer.
        """
        sentences = [f"{ONE_MACHINE}."] if self.one_machine else self._answers()
        sentences += doubts(self) + self._both() + self._alone() + self._dependent()
        sentences += [spread.says for spread in self.spreads]
        sentences += effects(self)
        return sentences + list(self.remarks)

    @property
    def means(self) -> list[str]:
        """What holds over all of several cells."""
        return [mean(self)] if len(self.cells) > 1 and not self.one_machine else []

    @property
    def beside(self) -> list[str]:
        """What stands beside an answer; of test beds on one machine why there is none."""
        if self.one_machine:
            return [f"{ONE_MACHINE}.", *self._alone()]
        against = doubts(self) + self._both() + self._alone() + self._dependent()
        return against + list(self.remarks)

    def _answers(self) -> list[str]:
        sentences = [headline(self), mean(self), *self._ahead()]
        sentences += patterns(self) + extremes(self)
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
