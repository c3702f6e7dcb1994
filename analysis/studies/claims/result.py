"""The verdicts on a study's claims: as sentences, tables, plain data and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.studies.claims import words
from fsmatrix.analysis.studies.claims.judge import (
    JudgedClaim,
    place,
)
from fsmatrix.analysis.studies.claims.study import Claim, StudyFile
from fsmatrix.analysis.studies.claims.words import measured
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd


KINDS = ("holds", "does not hold", "cannot be told", "cannot be tested")
MANY = {"holds": "hold", "does not hold": "do not hold"}
WORDS = {"cannot be told": Certainty.UNDECIDED}


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
        parts.append(f"Measured: {measured(judged)}; claimed: {words.claimed(claim)}.")
    if judged.kind == "cannot be tested" and judged.apparent is not None:
        parts.append(words.untested_numbers(judged))
    if judged.kind != "cannot be tested":
        parts += words.parts(judged)
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
    short = words.labels(judged)
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
        "quantifier": _quantifier(judged.claim),
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


def _quantifier(claim: Claim) -> str:
    q = claim.quantifier
    return q if isinstance(q, str) else f"{q.at_least} of {q.of}"


def _cell(cell: Any) -> dict[str, Json]:
    kept = ("label", "metric", "value", "low", "high", "kind", "units", "bounds")
    return {name: getattr(cell, name) for name in kept} | {"is": place(cell)}
