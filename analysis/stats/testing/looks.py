"""Several looks at a campaign whose blocks become more: how much of alpha each look may spend.

Blocks that are added because the first ones did not decide give every false claim another chance:
at 5 % a look, two looks err in 6 to 11 %, three in 9 to 12 % (docs/statistics.md).  So alpha is
spent over the looks (alpha spending: Lan and DeMets, Biometrika 70, 1983): each has two thirds of
what those before it left, and all together never more than alpha, whatever the tests and their
dependence (Bonferroni's bound), with no last look that must be planned.  Two thirds, since six
blocks decide at 2 / 2**6 = 3.1 % or not at all: 3.3 % of 5 % still lets them.

What a look called is not lost by being tested at less later; only values can take it back.

A look is a number of blocks that was planned: what a campaign's record holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats, Integers
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.stats.testing.signflips import Together

SHARE = 2 / 3  # of what is left


def level(alpha: float, number: int) -> float:
    """What the look of that number, from 1, may spend of `alpha`; 0: no look is recorded."""
    return alpha * SHARE * (1 - SHARE) ** (number - 1) if number else alpha


def spending(planned: Sequence[int]) -> tuple[int, ...]:
    """Of the numbers of blocks that were planned in turn those that spend some of alpha.

    Below `SMALLEST` blocks there is no verdict at all, so a look cannot err; a campaign that
    became shorter was looked at before.
    """
    kept: list[int] = []
    for blocks in planned:
        if blocks >= SMALLEST and (not kept or blocks > kept[-1]):
            kept.append(blocks)
    return tuple(kept)


def max_t(
    differences: Floats,
    last: Integers,
    turns: Sequence[int],
    alpha: float,
    groups: Integers | None = None,
) -> Together:
    """`signflips.max_t` at the last of these looks, with what the looks before it called.

    `last`: the highest block number of each row of `differences`, shape [block]; `turns`: blocks at
    each look, none: one look that may spend all of `alpha`.  p is at most this look's level where
    any look called the cell at its own: the smallest of p_k times level / level_k.  An earlier p
    counts only if the typical difference still has its sign.
    """
    number = len(turns)
    own = level(alpha, number)
    together = signflips.max_t(differences, own, groups=groups)
    p = together.p.copy()
    for k, blocks in enumerate(turns[:-1], 1):
        before = differences[last < blocks]
        if not len(before):
            continue
        earlier = level(alpha, k)
        scaled = signflips.max_t(before, earlier, groups=groups).p * (own / earlier)
        same = _sign(before) == _sign(differences)
        p = np.where(same, np.fmin(p, scaled), p)
    return Together(p, together.share, differences)


def _sign(differences: Floats) -> Floats:
    """Of each cell's mean, [cell]; 0 without values."""
    return np.asarray(np.sign(np.nansum(differences, axis=0)))
