"""The verdicts on a study's claims: in words, as tables, plain data and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.studies.claims import claim_cells
from fsmatrix.analysis.studies.claims.claim_cells import ClaimCell
from fsmatrix.analysis.studies.claims.claims_file import Claim, Quantifier, StudyFile
from fsmatrix.analysis.studies.claims.judge import (
    JudgedClaim,
    Where,
    as_claimed,
    place,
)
from fsmatrix.analysis.units import number
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 8  # cells that contradict

KINDS = ("holds", "does not hold", "cannot be told", "cannot be tested")
MANY = {"holds": "hold", "does not hold": "do not hold"}
WORDS = {"cannot be told": Certainty.UNDECIDED}


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


def verdict_parts(judged: JudgedClaim) -> list[str]:
    """In how many cells it is so, all cells together, and the parts of the verdict that differ."""
    count = len(judged.scope.cells)
    needed = "all of them" if judged.needed == count else f"{judged.needed} of them"
    sentences = []
    if count > 1:
        sentences.append(f"{_counted(judged.counts, count)}; the claim needs {needed}.")
    for bounds, mean in claim_cells.means(judged.scope.cells).items():
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


@dataclass(frozen=True)
class Claims(Drawn):
    """A study's claims and the verdicts on one campaign."""

    study: StudyFile
    judged: tuple[JudgedClaim, ...]
    alpha: float
    tested: int  # claims that Holm corrects over
    remarks: tuple[str, ...]

    @property
    def says(self) -> list[str]:
        """How many claims have which verdict, each claim, and those not tested by reason."""
        counts: Counter[str] = Counter(judged.kind for judged in self.judged)
        parts = [
            f"{counts[kind]} {MANY.get(kind, _word(kind)) if counts[kind] > 1 else _word(kind)}"
            for kind in KINDS
            if counts[kind]
        ]
        first = f"{plural(len(self.judged), 'claim')} of {self.study.title}: {', '.join(parts)}."
        if self.tested > 1:
            first += (
                f" The chance that any claim is wrongly said to hold is at most "
                f"{100 * self.alpha:.3g} %, and that any is wrongly said not to as well "
                f"({self.tested} claims tested together)."
            )
        lacking = self.lacking
        all_lack = [f"Not in the data, for any claim: {', '.join(lacking)}."] if lacking else []
        absent = self._absent
        together = {claim for named in absent.values() for claim in named}
        return [
            first,
            *self.remarks,
            *all_lack,
            *(sentence(one, lacking) for one in self.judged if one.claim.id not in together),
            *(self._not_tested(why, named) for why, named in absent.items()),
        ]

    @property
    def _absent(self) -> dict[str, list[str]]:
        """Reason -> claims (two or more) that cannot be tested for it."""
        named: dict[str, list[str]] = {}
        for judged in self.judged:
            if judged.why:
                named.setdefault(judged.why, []).append(judged.claim.id)
        return {why: claims for why, claims in named.items() if len(claims) > 1}

    def _not_tested(self, why: str, named: Collection[str]) -> str:
        """These claims, and how to see what was measured of them."""
        line = f"{plural(len(named), 'claim')} cannot be tested ({why}): {', '.join(named)}."
        some = any(one.scope.cells for one in self.judged if one.claim.id in named)
        return line + " What was measured of one: --claim NAME." * some

    @property
    def lacking(self) -> tuple[str, ...]:
        """Levels that no claim has in the data; none for a single claim."""
        if len(self.judged) < 2:
            return ()
        first, *others = [judged.scope.missing for judged in self.judged]
        return tuple(level for level in first if all(level in other for other in others))

    def of(self, claim: str) -> Claims:
        """The verdict on one claim, corrected as among all; ValueError for an unknown one."""
        judged_claims = tuple(judged for judged in self.judged if judged.claim.id == claim)
        if not judged_claims:
            allowed = ", ".join(judged.claim.id for judged in self.judged)
            raise ValueError(f"no claim {claim!r}: there are {allowed}")
        return replace(self, judged=judged_claims)

    def table(self) -> pd.DataFrame:
        """One row per claim; low and high of the claimed range are with its slack."""
        import pandas as pd

        return pd.DataFrame([row(judged) for judged in self.judged])

    def cells(self) -> pd.DataFrame:
        """One row per claim and cell."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "claim": judged.claim.id,
                    "metric": cell.metric,
                    "cell": cell.label,
                    "measured": cell.value,
                    "low": cell.low,
                    "high": cell.high,
                    "interval": cell.kind,
                    "claimed low": cell.bounds[0],
                    "claimed high": cell.bounds[1],
                    "is": place(cell),
                }
                for judged in self.judged
                for cell in judged.scope.cells
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        claims = [
            row(judged)
            | {"says": sentence(judged), "cells": [_cell(c) for c in judged.scope.cells]}
            for judged in self.judged
        ]
        data: dict[str, Json] = plain(
            {
                "study": self.study.study,
                "source": self.study.source.paper,
                "alpha": self.alpha,
                "tested": self.tested,
                "claims": claims,
                "says": self.says,
            }
        )
        return data


def _word(kind: str) -> str:
    """A verdict as readers see it."""
    return WORDS.get(kind, kind)


def sentence(judged: JudgedClaim, elsewhere: Collection[str] = ()) -> str:
    """A verdict in words, with what was claimed and measured.

    `elsewhere`: what is missing for all claims, which stands above them.
    """
    claim = judged.claim
    parts = [f"{claim.id}: {_word(judged.kind)}."]
    parts.append(f"The study says ({claim.place}): {claim.says.rstrip('.')} ({claim.number}).")
    parts += [f"Why not: {judged.why}."] if judged.why else []
    if judged.scope.cells:
        parts.append(f"Measured: {measured(judged)}; claimed: {claimed(claim)}.")
    if judged.kind == "cannot be tested" and judged.apparent is not None:
        parts.append(untested_numbers(judged))
    if judged.kind != "cannot be tested":
        parts += verdict_parts(judged)
    if judged.more is not None:
        parts.append(f"To tell: {judged.more.says}.")
    missing = [level for level in judged.scope.missing if level not in elsewhere]
    parts += [f"Not in the data: {', '.join(missing)}."] if missing else []
    parts += _doubts(judged)
    parts += [f"Note: {note}." for note in judged.scope.notes]
    return " ".join(parts)


def _doubts(judged: JudgedClaim) -> list[str]:
    """What is in doubt in the cells of a claim; its smallest and largest are named first."""
    ordered = sorted(judged.scope.cells, key=lambda cell: cell.value)
    ordered = [*ordered[:1], *ordered[-1:], *ordered[1:-1]]
    where: dict[str, list[str]] = {}
    short = labels(judged)
    for cell in dict.fromkeys(ordered):
        for doubt in cell.doubts:
            where.setdefault(doubt, []).append(short[cell.label])
    parts = [
        f"{doubt} in {len(names)} of {len(judged.scope.cells)} cells ({listed(names)})"
        for doubt, names in where.items()
    ]
    return [f"In doubt: {'; '.join(parts)}."] if parts else []


def row(judged: JudgedClaim) -> dict[str, Json]:
    """A verdict as one flat row."""
    low, high = judged.claim.bounds
    values = [cell.value for cell in judged.scope.cells]
    deciding = [cell for cell in judged.scope.cells if cell.decides]
    return {
        "claim": judged.claim.id,
        "verdict": judged.kind,
        "certainty": judged.certainty,
        "direction": judged.direction,
        "magnitude": judged.magnitude,
        "reach": judged.reach,
        "quantifier": _quantifier_as_data(judged.claim),
        "inside": judged.counts["inside"],
        "outside": judged.counts["outside"],
        "open": judged.counts["open"],
        "needed": judged.needed,
        "scope": "none" if not values else "part" if judged.scope.missing else "whole",
        "missing": ", ".join(judged.scope.missing),
        "why": judged.why,
        "number": judged.claim.number,
        "claimed_low": low,
        "claimed_high": high,
        "smallest": min(values, default=None),
        "largest": max(values, default=None),
        "low": min((cell.low for cell in deciding), default=None),
        "high": max((cell.high for cell in deciding), default=None),
        "median": float(np.median(values)) if values else None,
        "apparent": judged.apparent,
        "p_holds": judged.p.holds,
        "p_fails": judged.p.fails,
        "more": judged.more.more if judged.more else None,
        "place": judged.claim.place,
        "in doubt": ", ".join(dict.fromkeys(d for c in judged.scope.cells for d in c.doubts)),
    }


def _quantifier_as_data(claim: Claim) -> str:
    q = claim.quantifier
    return q if isinstance(q, str) else f"{q.at_least} of {q.of}"


def _cell(cell: Any) -> dict[str, Json]:
    kept = ("label", "metric", "value", "low", "high", "kind", "units", "bounds")
    return {name: getattr(cell, name) for name in kept} | {"is": place(cell)}
