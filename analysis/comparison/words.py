"""The sentences of a comparison, for somebody who knows no statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison.compared import SINGLE
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import brief, factor_title
from fsmatrix.results.units import plural

if TYPE_CHECKING:
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


def tested(comparisons: Sequence[ComparedSides]) -> str:
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
