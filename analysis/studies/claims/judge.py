"""From the cells of a claim to p that it holds and p that it does not, and to a verdict.

"k of m cells" is a partial conjunction (Benjamini and Heller, Biometrics 64, 2008): the p that
fewer than k of m statements are true is (m - k + 1) times the k-th smallest p.  k = m is the
intersection-union test, k = 1 Bonferroni's.  Every cell inside needs k = m; that it fails needs
one cell outside, k = 1, or the mean of all cells outside (claim_cells.py).  Nothing is assumed
about how the cells depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fsmatrix.analysis.stats import repetitions
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats
from fsmatrix.analysis.stats.repetitions import Repetitions
from fsmatrix.analysis.stats.testing.tests import correct
from fsmatrix.analysis.studies.claims import claim_cells
from fsmatrix.analysis.studies.claims.claim_cells import ClaimCell, Scope
from fsmatrix.analysis.studies.claims.claims_file import Claim, Quantifier

Kind = Literal["holds", "does not hold", "cannot be told", "cannot be tested"]
Where = Literal["inside", "outside", "open"]
CERTAINTY: dict[Kind, Certainty] = {
    "holds": Certainty.PROVEN, "does not hold": Certainty.PROVEN,
    "cannot be told": Certainty.UNDECIDED, "cannot be tested": Certainty.INVALID,
}  # fmt: skip


@dataclass(frozen=True)
class PValues:
    """p against "it does not hold" and against "it holds"; NaN where nothing was tested."""

    holds: float
    fails: float


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdict.  Parts are judged apart; p are corrected over the claims."""

    claim: Claim
    kind: Kind
    why: str  # why it cannot be tested; otherwise empty
    scope: Scope
    magnitude: Kind
    reach: Kind | None  # of a range over cells: whether its ends are reached; None: not asked
    direction: Kind | None  # None: the claim has none
    p: PValues
    needed: int  # cells that must lie inside
    counts: dict[Where, int]  # cells by their own 95 % interval
    apparent: bool | None  # whether the bare estimates agree with the claim; None without cells
    more: Repetitions | None

    @property
    def certainty(self) -> Certainty:
        """How sure the verdict is; `invalid`: the data cannot test it."""
        return CERTAINTY[self.kind]


def p_magnitude(claim: Claim, cells: Sequence[ClaimCell]) -> PValues:
    """p that as many cells lie inside the claimed range as the quantifier needs."""
    low, high = _sides(claim, cells)
    m, k = len(cells), needed_of(claim, len(cells))
    if claim.quantifier == "median":
        holds = max(_some(low[0], k), _some(high[0], k))
        fails = _either(claim, np.array([_some(low[1], k)]), np.array([_some(high[1], k)]))[0]
        return PValues(holds, float(fails))
    outside = _either(claim, low[1], high[1])
    return PValues(_some(np.maximum(low[0], high[0]), k), _some(outside, m - k + 1))


def p_reach(claim: Claim, cells: Sequence[ClaimCell], whole: bool) -> PValues:
    """p that cells reach both ends of the range that is claimed over cells; NaN if not claimed.

    With a part of the scope (not `whole`), or one cell, it cannot be asked.
    """
    ends = _ends(claim, cells)
    if claim.quantifier != "range" or not whole or len(cells) < 2 or not ends:
        return PValues(math.nan, math.nan)
    fails = min(1.0, len(ends) * min(end.fails for end in ends))
    return PValues(max(end.holds for end in ends), fails)


def both(size: PValues, reach: PValues) -> PValues:
    """p of a claim that needs its magnitude and, if it has one, its reach."""
    if math.isnan(reach.holds):
        return size
    return PValues(max(size.holds, reach.holds), min(1.0, 2 * min(size.fails, reach.fails)))


def p_direction(claim: Claim, cells: Sequence[ClaimCell]) -> PValues:
    """p that cells lie on the claimed side of no effect, with the claim's quantifier."""
    if claim.direction == "none" or not cells:
        return PValues(math.nan, math.nan)
    up = np.array([cell.p_above(0.0) for cell in cells])
    down = np.array([cell.p_below(0.0) for cell in cells])
    if claim.direction == "lower":
        up, down = down, up
    k = needed_of(claim, len(cells))
    against = k if claim.quantifier == "median" else len(cells) - k + 1
    return PValues(_some(up, k), _some(down, against))


def needed_of(claim: Claim, m: int) -> int:
    """How many of m cells a quantifier needs; of the median: more than half."""
    if isinstance(claim.quantifier, Quantifier):
        return min(claim.quantifier.at_least, m)
    return m // 2 + 1 if claim.quantifier == "median" else m


def _some(p: Floats, k: int) -> float:
    """p that fewer than k of these statements are true."""
    return min(1.0, float((p.size - k + 1) * np.sort(p)[k - 1]))


def _either(
    claim: Claim,
    below: Floats,
    above: Floats,
) -> Floats:
    """p of lying below or above; twice where the claim has two ends."""
    two = claim.claimed.low is not None and claim.claimed.high is not None
    return np.asarray(
        np.minimum(np.minimum(below, above) * (2 if two else 1), 1.0), dtype=np.float64
    )


def on_curve(claim: Claim, value: float) -> float:
    """A ratio or r on the scale of its curve."""
    if claim.scale == "r":
        return math.atanh(value) if abs(value) < 1 else math.copysign(math.inf, value)
    return math.log(value) if value > 0 else -math.inf


def _sides(claim: Claim, cells: Sequence[ClaimCell]) -> list[list[Floats]]:
    """[[above low, below low], [below high, above high]], each [cell]; no end: 0 and 1."""
    p_values: list[list[list[float]]] = [[[], []], [[], []]]
    for cell in cells:
        low, high = cell.bounds
        a, b = on_curve(claim, low), on_curve(claim, high)
        # an end at infinity holds for certain, if the cell has an interval at all
        sure = 0.0 if cell.decides else 1.0
        p_values[0][0].append(cell.p_above(a) if math.isfinite(a) else sure)
        p_values[0][1].append(cell.p_below(a) if math.isfinite(a) else 1.0)
        p_values[1][0].append(cell.p_below(b) if math.isfinite(b) else sure)
        p_values[1][1].append(cell.p_above(b) if math.isfinite(b) else 1.0)
    return [[np.array(part) for part in side] for side in p_values]


def _ends(claim: Claim, cells: Sequence[ClaimCell]) -> list[PValues]:
    """Whether some cell reaches the lower, and some the upper end of a claimed range."""
    ends: list[PValues] = []
    for value, lower in zip(reaches(claim), (True, False), strict=False):
        at = on_curve(claim, value)
        near = np.array([cell.p_below(at) if lower else cell.p_above(at) for cell in cells])
        far = np.array([cell.p_above(at) if lower else cell.p_below(at) for cell in cells])
        ends.append(PValues(_some(near, 1), _some(far, len(cells))))
    return ends


def corrected(raw: Sequence[PValues], means: Sequence[float] = ()) -> list[PValues]:
    """Holm over the claims, apart for holding and failing; NaN is not tested.

    `means`: p of failing by the means of cells, corrected already; Bonferroni over both ways.
    """
    holds = correct([p.holds for p in raw]).tolist()
    fails = correct([p.fails for p in raw])
    values = np.array(means)
    if values.size and not np.isnan(values).all():
        fails = np.where(np.isnan(fails), fails, np.minimum(2 * np.fmin(fails, values), 1.0))
    return [PValues(a, b) for a, b in zip(holds, fails.tolist(), strict=True)]


def p_means(
    claims: Sequence[Claim],
    scopes: Sequence[Scope],
    tested: Sequence[bool],
    alpha: float,
    *,
    direction: bool = False,
) -> list[float]:
    """p that claims about every cell hold for the means of their cells; NaN: not asked."""
    whole = [
        ok
        and claim.quantifier in ("every", "range")
        and not (direction and claim.direction == "none")
        for claim, ok in zip(claims, tested, strict=True)
    ]
    sides = {"higher": (1.0, math.inf), "lower": (0.0, 1.0)}
    return claim_cells.refuted(
        [scope.cells if ask else () for scope, ask in zip(scopes, whole, strict=True)],
        alpha,
        [sides.get(claim.direction) if direction else None for claim in claims],
    )


def kind_of(p: PValues, alpha: float) -> Kind:
    """A verdict needs evidence, either way."""
    if math.isnan(p.holds):
        return "cannot be tested"
    if p.holds <= alpha:
        return "holds"
    return "does not hold" if p.fails <= alpha else "cannot be told"


def place(cell: ClaimCell) -> Where:
    """Where a cell's own 95 % interval lies."""
    low, high = cell.bounds
    if not cell.decides:
        return "open"
    if low <= cell.low and cell.high <= high:
        return "inside"
    return "outside" if cell.high < low or cell.low > high else "open"


def apparent(claim: Claim, cells: Sequence[ClaimCell]) -> bool | None:
    """Whether the estimates alone, without noise, agree with the claim's range and quantifier."""
    if not cells:
        return None
    values = np.array([cell.value for cell in cells])
    if claim.quantifier == "median":
        low, high = cells[0].bounds
        return bool(low <= np.median(values) <= high)
    good = sum(as_claimed(claim, cell) for cell in cells)
    return good >= needed_of(claim, len(cells)) and _ends_seen(claim, values)


def as_claimed(claim: Claim, cell: ClaimCell) -> bool:
    """Whether the estimate of a cell alone, without noise, lies in the claimed range."""
    low, high = cell.bounds
    if claim.claimed.slack == 0 and claim.direction != "none":
        return low < cell.value < high
    return low <= cell.value <= high


def _ends_seen(claim: Claim, values: Floats) -> bool:
    """Whether the bare estimates reach both ends of a range over cells; else nothing is asked."""
    ends = reaches(claim)
    if claim.quantifier != "range" or values.size < 2 or not ends:
        return True
    return bool(values.min() <= ends[0] and values.max() >= ends[1])


def reaches(claim: Claim) -> tuple[float, float] | tuple[()]:
    """(at most this, at least this): what the smallest and the largest cell must come to."""
    low, high, slack = claim.claimed.low, claim.claimed.high, claim.claimed.slack
    if low is None or high is None:
        return ()
    return (
        (low + slack, high - slack)
        if claim.scale == "r"
        else (low * (1 + slack), high / (1 + slack))
    )


def untestable(scope: Scope, claim: Claim) -> str:
    """Why a claim cannot be tested at all; empty if it can."""
    cells = scope.cells
    if not cells:
        return scope.absent
    if isinstance(claim.quantifier, Quantifier) and len(cells) < claim.quantifier.of:
        return f"it is about {claim.quantifier.of} cells, there are {len(cells)}"
    if any(cell.decides for cell in cells):
        return ""
    most = max(min(cell.units) for cell in cells)
    if most < 2:
        return "one value per cell, or one attachment: how much of it is chance is not known"
    return f"at most {most} attachments of a cell, and {SMALLEST} are the fewest that can show it"


def more(claim: Claim, cells: Sequence[ClaimCell], share: float) -> Repetitions | None:
    """Attachments that would settle the cell which is hardest to tell, at its present spread.

    For each cell the nearest end of the claimed range; of the correlations none (no plan).
    """
    hardest, least = None, math.inf
    for cell in cells:
        ends = [on_curve(claim, end) for end in cell.bounds]
        distance = min(abs(cell.curve.estimate - end) for end in ends)
        width = on_curve(claim, cell.high) - on_curve(claim, cell.low) if cell.decides else math.inf
        inside = max(_sure(cell, ends[0], above=True), _sure(cell, ends[1], above=False))
        outside = min(cell.p_below(ends[0]), cell.p_above(ends[1]))
        settled = min(inside, outside) <= share
        if cell.parts and not settled and distance > 0 and distance / width < least:
            hardest, least = (cell.parts, distance), distance / width
    if hardest is None:
        return None
    return repetitions.for_parts(hardest[0], hardest[1], max(1 - 2 * share, 0.5))


def _sure(cell: ClaimCell, bound: float, *, above: bool) -> float:
    """p that a cell does not lie above (below) a bound; an end at infinity is no bound."""
    if math.isinf(bound):
        return 0.0
    return cell.p_above(bound) if above else cell.p_below(bound)
