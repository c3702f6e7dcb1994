"""Targets over all cells together: one test for each pair, where single cells decide nothing yet.

The geometric mean of the cells' ratios and its interval are those of `compare`; p is corrected over
the pairs.  It says nothing about any single pattern.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.lessons.words import Lesson
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.testing.tests import correct
from fsmatrix.analysis.stats.testing.verdict import Kind, judge
from fsmatrix.analysis.stats.words import inverted, not_proven, whole
from fsmatrix.results.units import plural

TOGETHER = "all cells together"


def overall(comparisons: Sequence[Comparison], targets: Sequence[str]) -> list[Lesson]:
    """A lesson on the geometric means of each part; none if no pair has cells and an interval."""
    parts = list(dict.fromkeys(comparison.part for comparison in comparisons))
    return [
        lesson
        for part in parts
        for lesson in _of_part(
            [comparison for comparison in comparisons if comparison.part == part], targets, part
        )
    ]


def _of_part(comparisons: Sequence[Comparison], targets: Sequence[str], part: str) -> list[Lesson]:
    with_mean = [
        comparison
        for comparison in comparisons
        if comparison.mean is not None and len(comparison.cells) > 1
    ]
    if not with_mean:
        return []
    kinds = _kinds(with_mean)
    losers: dict[str, set[str]] = {name: set() for name in targets}
    for comparison, kind in zip(with_mean, kinds, strict=True):
        if kind in ("faster", "slower"):
            losers[comparison.a if kind == "faster" else comparison.b].add(
                comparison.b if kind == "faster" else comparison.a
            )
    best = next((name for name in targets if len(losers[name]) == len(targets) - 1), "")
    alike = len(with_mean) == len(comparisons) and all(kind == "no difference" for kind in kinds)
    partly = not best and not alike and any(losers.values())
    sure = Certainty.PROVEN if best or partly else Certainty.UNDECIDED
    if alike:
        sure = Certainty.EQUAL
    short = best or ("no difference" if alike else Certainty.UNDECIDED.value)
    return [
        Lesson(
            "backend",
            TOGETHER + (f" of {part}" if part else ""),
            (),
            short,
            _first(best, with_mean)
            if best
            else "; ".join(
                _sentence(comparison, kind)
                for comparison, kind in zip(with_mean, kinds, strict=True)
            ),
            sure,
            "",
            (best,) if best else tuple(targets) if alike else (),
            tuple(
                f"{comparison.a} against {comparison.b}: {plural(len(comparison.cells), 'cell')}"
                for comparison in with_mean
            ),
            partly=partly,
        )
    ]


def _kinds(comparisons: Sequence[Comparison]) -> list[Kind]:
    """Verdicts on the geometric means: those of `compare` where max-T gave them."""
    if all(comparison.questions for comparison in comparisons):
        return [comparison.mean_kind for comparison in comparisons]
    means = [comparison.mean.mean for comparison in comparisons if comparison.mean]
    p = correct([mean.p for mean in means])
    equal = correct(
        [m.p_equal(comparison.tolerance) for m, comparison in zip(means, comparisons, strict=True)]
    )
    return [
        judge(
            mean,
            float(p[i]),
            float(equal[i]),
            comparison.tolerance,
            comparison.level,
            comparison.metric.more_is_better,
        )
        for i, (mean, comparison) in enumerate(zip(means, comparisons, strict=True))
    ]


def _first(best: str, comparisons: Sequence[Comparison]) -> str:
    """By how much the best one is ahead of each other."""
    sentences = []
    for comparison in comparisons:
        if best in (comparison.a, comparison.b) and comparison.mean is not None:
            mean = comparison.mean.mean if best == comparison.a else inverted(comparison.mean.mean)
            other = comparison.b if best == comparison.a else comparison.a
            sentences.append(whole(mean, comparison.metric.more_is_better, other))
    return f"{best}, {'; '.join(sentences)}"


def _sentence(comparison: Comparison, kind: Kind) -> str:
    """Who is ahead over all cells, by how much, how sure."""
    assert comparison.mean is not None
    mean, better = comparison.mean.mean, comparison.metric.more_is_better
    a, b = comparison.a, comparison.b
    if (mean.ratio < 1) == better:
        a, b, mean = b, a, inverted(mean)
    sentence = f"{a} is {whole(mean, better, b)}"
    if kind == "no difference":
        return f"{sentence}: {comparison.word(kind)}"
    return (
        f"{sentence}: {not_proven(mean, 'all cells together')}" if kind == "too few" else sentence
    )
