"""A claim's verdict in words: what was claimed, what was measured, in how many cells it is so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fsmatrix.analysis.studies.claims import cells
from fsmatrix.analysis.studies.claims.cells import ClaimCell
from fsmatrix.analysis.studies.claims.judge import JudgedClaim, Where, as_claimed, place
from fsmatrix.analysis.studies.claims.study import Claim, Quantifier
from fsmatrix.analysis.units import number

MOST_NAMED = 8  # cells that contradict


def claimed(claim: Claim) -> str:
    """The claimed range: "at least 1.5 times in every cell"."""
    low, high, unit = claim.claimed.low, claim.claimed.high, _unit(claim)
    if claim.compare and claim.compare.knee:
        return f"{low or 1:g} times or more per doubling up to the knee, less beyond it"
    nothing = 0 if claim.scale == "r" else 1
    if low is not None and high is not None:
        span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    elif low is not None:
        span = f"above {low:g}" if low == nothing else f"at least {low:g}"
    else:
        assert high is not None
        span = f"below {high:g}" if high == nothing else f"at most {high:g}"
    slack = claim.claimed.slack
    about = f" (give or take {100 * slack:.3g} %)" if slack and claim.scale != "r" else ""
    about = f" (give or take {slack:.3g})" if slack and claim.scale == "r" else about
    return f"{'r ' * (claim.scale == 'r')}{span}{unit}{about} {_quantifier(claim)}"


def _quantifier(claim: Claim) -> str:
    q = claim.quantifier
    if isinstance(q, Quantifier):
        return f"in at least {q.at_least} of {q.of} cells"
    return {
        "every": "in every cell",
        "range": "over the cells",
        "median": "in more than half of the cells",
    }[q]


def measured(judged: JudgedClaim) -> str:
    """The smallest and the largest cell with what is sure of them."""
    cells = sorted(judged.scope.cells, key=lambda cell: cell.value)
    ends = [cells[0]] if len(cells) == 1 else [cells[0], cells[-1]]
    unit, sure = _unit(judged.claim), any(cell.decides for cell in ends)
    texts = [number_of(cell.value) + (f"{unit}{_sure(cell)}" if sure else "") for cell in ends]
    texts[-1] += "" if sure else unit
    middle = f", the median of them {number_of(float(np.median([c.value for c in cells])))}"
    many = f" in {len(cells)} cells{middle}" if len(cells) > 1 else ""
    return " to ".join(texts) + many


def _sure(cell: ClaimCell) -> str:
    return f" (95 % sure: {number_of(cell.low)} to {number_of(cell.high)})" if cell.decides else ""


def labels(judged: JudgedClaim) -> dict[str, str]:
    """Label of a cell -> it without what all cells of the claim have in common."""
    split = {cell.label: cell.label.split(", ") for cell in judged.scope.cells}
    if len(split) < 2:
        return {label: label for label in split}
    common = set.intersection(*(set(words) for words in split.values()))
    return {
        label: ", ".join(word for word in words if word not in common) or label
        for label, words in split.items()
    }


def untested_numbers(judged: JudgedClaim) -> str:
    """Where nothing can be tested: in how many cells the numbers are as claimed, and where not."""
    cells = judged.scope.cells
    other = [cell for cell in cells if not as_claimed(judged.claim, cell)]
    agree = "agree with" if judged.apparent else "contradict"
    count = f"{len(cells) - len(other)} of {len(cells)} cells"
    sentence = f"Taken as they are, the numbers {agree} it: as claimed in {count}"
    return f"{sentence}{_not_in(other, labels(judged))}; how much of that is chance is not known."


def agreement(claim: Claim, cell: ClaimCell) -> str:
    """Whether a cell is as claimed: "yes", "no", "not sure"; without an interval as it seems."""
    if not cell.decides:
        return f"{'yes' if as_claimed(claim, cell) else 'no'} (may be chance)"
    return {"inside": "yes", "outside": "no", "open": "undecided"}[place(cell)]


def _not_in(cells: list[ClaimCell], short: Mapping[str, str]) -> str:
    """The cells that contradict, the farthest from 1 first."""
    if not cells:
        return ""
    cells = sorted(cells, key=lambda cell: -abs(cell.curve.estimate))
    named = "; ".join(f"{short[c.label]} ({number_of(c.value)})" for c in cells[:MOST_NAMED])
    more = f"; and {len(cells) - MOST_NAMED} more" if len(cells) > MOST_NAMED else ""
    return f", not in {named}{more}"


def parts(judged: JudgedClaim) -> list[str]:
    """In how many cells it is so, all cells together, and the parts of the verdict that differ."""
    count = len(judged.scope.cells)
    needed = "all of them" if judged.needed == count else f"{judged.needed} of them"
    sentences = []
    if count > 1:
        sentences.append(f"{_counted(judged.counts, count)}; the claim needs {needed}.")
    for bounds, mean in cells.means(judged.scope.cells).items():
        knee = judged.claim.compare is not None and bool(judged.claim.compare.knee)
        where = (
            "All cells together"
            if not knee
            else "All cells together up to the knee"
            if bounds[1] == np.inf
            else "All cells together beyond the knee"
        )
        sentences.append(
            f"{where}: {number_of(mean.ratio)}{_unit(judged.claim)} (95 % sure: "
            f"{number_of(mean.low)} to {number_of(mean.high)})."
        )
    if judged.reach is not None:
        sentences.append(f"That the range is reached at both ends {_verb(judged.reach)}.")
    if judged.direction is not None and judged.direction != judged.kind:
        way = "more" if judged.claim.direction == "higher" else "less"
        sentences.append(
            f"The direction alone ({way}, whatever by how much) {_verb(judged.direction)}."
        )
    if judged.scope.missing:
        sentences.append("The data have a part only of what the claim is about.")
    return sentences


def _counted(counts: Mapping[Where, int], count: int) -> str:
    """How many cells are as claimed, each by its own interval."""
    if counts["inside"] == count:
        return f"All {count} cells are as claimed, each 95 % sure"
    if counts["outside"] == count:
        return f"None of {count} cells is as claimed, each 95 % sure"
    shown = f"Of {count} cells {counts['inside']} are as claimed and {counts['outside']} are not"
    return f"{shown}, each 95 % sure; {counts['open']} undecided"


def _verb(kind: str) -> str:
    return {"cannot be tested": "cannot be tested here", "cannot be told": "is undecided"}.get(
        kind, kind
    )


def _unit(claim: Claim) -> str:
    return " times" if claim.scale == "ratio" else ""


def number_of(value: float) -> str:
    """Three digits; of a correlation two decimals come out of it."""
    return f"-{number(-value)}" if value < 0 else number(value)
