"""Many cells of one comparison, tested together: max-T over sign flips of whole blocks.

If two targets do not differ, the log ratios of a block (one of every cell) are as likely as their
negatives, all together: flipping the signs of whole blocks gives the distribution of the largest
statistic over the cells, with the dependence of cells that share a block.  Corrected p are those
of the step-down procedure of Westfall and Young, "Resampling-Based Multiple Testing", 1993.  It
tests whether the typical log ratio (the centre of symmetry) is 0; where one target's values are
skewed and the other's are not, a cell can be called although the medians are equal
(docs/statistics.md).

The statistic is a t whose variance is moderated over the cells as in Smyth, Statistical
Applications in Genetics and Molecular Biology 3, 2004.  Its prior comes from the variances of
absolute values, which no flip changes, so that the test stays exact under symmetry for any number
of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats, Integers

MOST_FLIPS = 4096  # of signs; more are drawn at random, with a fixed seed
MOST_STATISTICS = 4_000_000  # flips times cells: some 30 MB
FEWEST_FLIPS = 1024
SURE = 1e6  # degrees of freedom of a prior that all cells agree on
TINY = 1e-24  # of a cell's mean square: below, its variance is rounding


@dataclass(frozen=True)
class MaxTResult:
    """`p`: corrected two-sided p of each cell, shape [cell]; NaN: fewer than two blocks.

    `share`: the p of a t test of its own that a cell which is not called would need.
    `differences`: the log ratios that were tested, shape [block, cell].
    """

    p: Floats
    share: float
    differences: Floats


def max_t(
    differences: Floats, alpha: float, most: int = MOST_FLIPS, groups: Integers | None = None
) -> MaxTResult:
    """Test that the typical difference of each cell is 0, corrected over the cells.

    `differences`: log ratios, shape [block, cell]; NaN: that block lacks the cell.  The smallest p
    is 2 / 2**blocks whatever the number of cells: 6 blocks can decide at 5 %.  `most`: of flips.
    A cell that has too few blocks to be called at `alpha` is none of those that the others are
    corrected for; it is corrected for them.
    `groups`, [cell]: only cells of one group have a variance in common (means of cells have less).
    """
    size = np.count_nonzero(~np.isnan(differences), axis=0).astype(np.float64)
    groups = np.zeros(size.size, dtype=np.int64) if groups is None else groups
    able = 2.0 ** (1 - size) <= alpha
    together = _joint(differences, size, size > 1, alpha, most, groups)
    if able.any() and (able != (size > 1)).any():
        some = _joint(differences, size, able, alpha, most, groups)
        together = MaxTResult(np.where(able, some.p, together.p), some.share, differences)
    return together


def _joint(
    differences: Floats,
    size: Floats,
    tested: npt.NDArray[np.bool_],
    alpha: float,
    most: int,
    groups: Integers,
) -> MaxTResult:
    """The test of some of the cells, shape [cell]."""
    p = np.full(differences.shape[1], math.nan)
    if not tested.any():
        return MaxTResult(p, alpha, differences)
    signs = _signs(len(differences), size.size, most)
    extremity = np.empty((len(signs), np.count_nonzero(tested)))
    for group in np.unique(groups[tested]):
        in_group = tested & (groups == group)
        extremity[:, in_group[tested]] = _extremity(differences[:, in_group], size[in_group], signs)
    p[tested] = _step_down(extremity)
    left = extremity[:, p[tested] > alpha]
    share = (
        2 * scipy.special.ndtr(-np.quantile(left.max(axis=1), 1 - alpha)) if left.size else alpha
    )
    return MaxTResult(p, float(share), differences)


def equivalent(differences: Floats, margin: float) -> Floats:
    """p that a cell's typical log ratio is `margin` or more away from 0, shape [cell].

    Two one-sided t tests (Schuirmann 1987) with the moderated variance; the larger
    p, not corrected.
    """
    size = np.count_nonzero(~np.isnan(differences), axis=0).astype(np.float64)
    mean, moderated, freedom = _moderated(differences, size)
    distance = margin - np.abs(mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = scipy.special.stdtr(freedom, -distance / np.sqrt(moderated / size))
    return np.where(size > 1, p, math.nan)


def spreads(differences: Floats) -> Floats:
    """Standard deviation of each cell's log ratios over the blocks, moderated, shape [cell].

    NaN: fewer than two blocks have the cell.
    """
    size = np.count_nonzero(~np.isnan(differences), axis=0).astype(np.float64)
    _, moderated, _ = _moderated(differences, size)
    return np.where(size > 1, np.sqrt(moderated), math.nan)


def _moderated(differences: Floats, size: Floats) -> tuple[Floats, Floats, Floats]:
    """(means, moderated variances, their degrees of freedom), [cell]."""
    mean, square = _moments(differences, np.ones((1, len(differences))), size)
    variance = _variance(mean[0], square, size)
    prior, freedom = _prior(variance, size - 1)
    degrees = np.maximum(freedom + size - 1, np.finfo(float).tiny)
    return mean[0], (freedom * prior + (size - 1) * variance) / degrees, degrees


def _signs(blocks: int, cells: int, most: int) -> Floats:
    """Signs [flip, block], the data's own first; a flip and its mirror image count as one."""
    most = min(most, max(FEWEST_FLIPS, MOST_STATISTICS // cells))
    if 2 ** (blocks - 1) <= most:
        number = np.arange(2 ** (blocks - 1))
        return np.asarray(1.0 - 2.0 * (number[:, np.newaxis] >> np.arange(blocks) & 1))
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], (most, blocks))
    drawn[0] = 1.0
    return np.asarray(drawn)


def _extremity(differences: Floats, size: Floats, signs: Floats) -> Floats:
    """How far each cell is from 0 under each flip, [flip, cell], as a standard normal value."""
    return _as_normal(*_students_t(differences, size, signs))


def _students_t(differences: Floats, size: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """(moderated t >= 0 of each cell under each flip, [flip, cell]; degrees of freedom, [cell])."""
    mean, square = _moments(differences, signs, size)
    folded = np.abs(differences)
    invariant = np.nanvar(folded, axis=0) * size / (size - 1)
    floor = np.maximum(TINY * square, np.finfo(float).tiny)
    prior, freedom = _prior(np.maximum(invariant, floor), size - 1)
    moderated = freedom * prior + (size - 1) * _variance(mean, square, size)
    moderated /= freedom + size - 1
    return np.abs(mean) / np.sqrt(moderated / size), freedom + size - 1


def _as_normal(t: Floats, freedom: Floats) -> Floats:
    """Values t >= 0 of Student's distribution as those of a standard normal one.

    Wallace's approximation, Annals of Mathematical Statistics 30, 1959; finite where p underflows.
    """
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return np.asarray(scale * np.sqrt(freedom * np.log1p(t**2 / freedom)))


def _moments(differences: Floats, signs: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(means [flip, cell], mean squares [cell], which no flip changes)."""
    filled = np.nan_to_num(differences)
    with np.errstate(invalid="ignore", divide="ignore"):
        return signs @ filled / size, (filled**2).sum(axis=0) / size


def _variance(mean: Floats, square: Floats, size: Floats) -> Floats:
    """Unbiased variances; at least what rounding leaves of equal values."""
    floor = np.maximum(TINY * square, np.finfo(float).tiny)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum((square - mean**2) * size / (size - 1), floor)


def _prior(variance: Floats, freedom: Floats) -> tuple[float, float]:
    """(variance, degrees of freedom) that the cells have in common; freedom 0: nothing.

    From mean and spread of the logs of their variances (Smyth 2004, section 6.2).
    """
    use = freedom > 0
    if np.count_nonzero(use) < 2:
        return 0.0, 0.0
    half = freedom[use] / 2
    logs = np.log(variance[use]) - scipy.special.digamma(half) + np.log(half)
    excess = float(np.var(logs, ddof=1) - np.mean(scipy.special.polygamma(1, half)))
    degrees = 2 * _trigamma_inverse(excess) if excess > 2 / SURE else SURE
    centre = float(np.mean(logs)) + scipy.special.digamma(degrees / 2) - math.log(degrees / 2)
    return math.exp(centre), degrees


def moderate(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """(variances of cells drawn towards what they have in common, their degrees of freedom)."""
    common, prior_freedom = _prior(variance, freedom)
    return (prior_freedom * common + freedom * variance) / (
        prior_freedom + freedom
    ), prior_freedom + freedom


def _trigamma_inverse(value: float) -> float:
    """The argument at which the trigamma function is `value` > 0."""

    def off(log: float) -> float:
        return math.log(float(scipy.special.polygamma(1, math.exp(log)))) - math.log(value)

    return math.exp(scipy.optimize.brentq(off, -20.0, 20.0))


def _step_down(extremity: Floats) -> Floats:
    """Corrected p [cell] from statistics [flip, cell] whose first row is the data."""
    order = np.argsort(-extremity[0], kind="stable")
    ordered = extremity[:, order]
    largest = np.maximum.accumulate(ordered[:, ::-1], axis=1)[:, ::-1]
    reached = largest >= ordered[0] * (1 - 1e-12)
    corrected = np.empty(order.size)
    corrected[order] = np.maximum.accumulate(reached.mean(axis=0))
    return corrected


# Several looks at a campaign whose blocks become more: how much of alpha each look may spend.
#
# Blocks that are added because the first ones did not decide give every false claim another
# chance: at 5 % a look, two looks err in 6 to 11 %, three in 9 to 12 % (docs/statistics.md).  So
# alpha is spent over the looks (alpha spending: Lan and DeMets, Biometrika 70, 1983): each has two
# thirds of what those before it left, and all together never more than alpha, whatever the tests
# and their dependence (Bonferroni's bound), with no last look that must be planned.  Two thirds,
# since six blocks decide at 2 / 2**6 = 3.1 % or not at all: 3.3 % of 5 % still lets them.
#
# What a look called is not lost by being tested at less later; only values can take it back.
#
# A look is a number of blocks that was planned: what a campaign's record holds.


SHARE = 2 / 3  # of what is left


def look_level(alpha: float, number: int) -> float:
    """What the look of that number, from 1, may spend of `alpha`; 0: no look is recorded."""
    return alpha * SHARE * (1 - SHARE) ** (number - 1) if number else alpha


def spending_looks(planned: Sequence[int]) -> tuple[int, ...]:
    """Of the numbers of blocks that were planned in turn those that spend some of alpha.

    Below `SMALLEST` blocks there is no verdict at all, so a look cannot err; a campaign that
    became shorter was looked at before.
    """
    kept: list[int] = []
    for blocks in planned:
        if blocks >= SMALLEST and (not kept or blocks > kept[-1]):
            kept.append(blocks)
    return tuple(kept)


def max_t_over_looks(
    differences: Floats,
    last: Integers,
    turns: Sequence[int],
    alpha: float,
    groups: Integers | None = None,
) -> MaxTResult:
    """`signflips.max_t` at the last of these looks, with what the looks before it called.

    `last`: the highest block number of each row of `differences`, shape [block]; `turns`: blocks at
    each look, none: one look that may spend all of `alpha`.  p is at most this look's level where
    any look called the cell at its own: the smallest of p_k times level / level_k.  An earlier p
    counts only if the typical difference still has its sign.
    """
    number = len(turns)
    own = look_level(alpha, number)
    together = max_t(differences, own, groups=groups)
    p = together.p.copy()
    for k, blocks in enumerate(turns[:-1], 1):
        before = differences[last < blocks]
        if not len(before):
            continue
        earlier = look_level(alpha, k)
        scaled = max_t(before, earlier, groups=groups).p * (own / earlier)
        same = _sign(before) == _sign(differences)
        p = np.where(same, np.fmin(p, scaled), p)
    return MaxTResult(p, together.share, differences)


def _sign(differences: Floats) -> Floats:
    """Of each cell's mean, [cell]; 0 without values."""
    return np.asarray(np.sign(np.nansum(differences, axis=0)))
