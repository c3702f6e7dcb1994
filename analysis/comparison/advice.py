"""What stands beside the verdicts of a comparison: what was tested, and what would decide more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison.extension import Extension, extension
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.verdict import Verdict
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    from fsmatrix.analysis.comparison.compared import Compared, ComparedSides


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
