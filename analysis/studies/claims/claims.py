"""`fsmatrix claims`: what a study claims, tested on a campaign.

A verdict needs evidence either way: "holds" if the data exclude, after correction over all
claims, that it does not, and "does not hold" likewise.  Between them it cannot be told yet.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import xarray as xr

from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.analysis.studies.claims import claims_figure
from fsmatrix.analysis.studies.claims.claim_cells import data_of, scope_of
from fsmatrix.analysis.studies.claims.claims_file import Claim, StudyFile
from fsmatrix.analysis.studies.claims.claims_result import Claims
from fsmatrix.analysis.studies.claims.judge import (
    JudgedClaim,
    PValues,
    apparent,
    both,
    corrected,
    kind_of,
    more,
    needed_of,
    p_direction,
    p_magnitude,
    p_means,
    p_reach,
    place,
    untestable,
)

if TYPE_CHECKING:
    from fsmatrix.analysis.studies.claims.claim_cells import Data, Scope


def claims(ds: xr.Dataset, study: StudyFile, alpha: float = ALPHA) -> Claims:
    """A study's claims tested on a campaign (`analysis.open`).

    ValueError if `ds` is no campaign, or has no runs.
    """
    return judge(data_of(ds, study), study, alpha)


def judge(data: Data, study: StudyFile, alpha: float = ALPHA) -> Claims:
    """The same, of cells that are at hand."""
    scopes = [scope_of(data, study, claim) for claim in study.claims]
    reasons = [untestable(s, c) for s, c in zip(scopes, study.claims, strict=True)]
    nothing = PValues(float("nan"), float("nan"))
    triples = list(zip(study.claims, scopes, reasons, strict=True))
    sizes = [nothing if why else p_magnitude(c, s.cells) for c, s, why in triples]
    ends = [nothing if why else p_reach(c, s.cells, not s.missing) for c, s, why in triples]
    ways = [nothing if why else p_direction(c, s.cells) for c, s, why in triples]
    can = [not why for why in reasons]
    means = p_means(study.claims, scopes, can, alpha)
    sides = p_means(study.claims, scopes, can, alpha, direction=True)
    whole = corrected([both(size, end) for size, end in zip(sizes, ends, strict=True)], means)
    tested = sum(can)
    parts = zip(
        whole, corrected(sizes, means), corrected(ends), corrected(ways, sides), strict=True
    )
    judged = tuple(
        _judged(*triple, p, alpha, tested) for triple, p in zip(triples, parts, strict=True)
    )
    remarks = next(iter(data.studies.values())).remarks if data.studies else []
    return Claims(study, judged, alpha, tested, tuple(remarks), chart=claims_figure)


def _judged(
    claim: Claim,
    scope: Scope,
    why: str,
    p: tuple[PValues, PValues, PValues, PValues],
    alpha: float,
    tested: int,
) -> JudgedClaim:
    whole, size, end, way = p
    kind = kind_of(whole, alpha)
    open_ = kind == "cannot be told"
    places = Counter(place(cell) for cell in scope.cells)
    return JudgedClaim(
        claim=claim,
        kind=kind,
        why=why,
        scope=scope,
        magnitude=kind_of(size, alpha),
        reach=None if math.isnan(end.holds) else kind_of(end, alpha),
        direction=None if claim.direction == "none" else kind_of(way, alpha),
        p=whole,
        needed=needed_of(claim, len(scope.cells)),
        counts={"inside": places["inside"], "outside": places["outside"], "open": places["open"]},
        apparent=apparent(claim, scope.cells),
        more=more(claim, scope.cells, alpha / max(tested, 1)) if open_ else None,
    )
