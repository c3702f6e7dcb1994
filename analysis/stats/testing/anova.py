"""Analysis of variance in one stratum: F of each term by comparing nested least squares fits.

Type II: a term is tested after all terms that do not contain it.  Factors are coded so that
their columns sum to zero over levels.  Source: Langsrud, Statistics and Computing 13, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats

Term = tuple[str, ...]
MOST_FLIPS, FEWEST_FLIPS = 1999, 199
MOST_EFFORT = 100_000_000  # multiplications of a term's flips
TOLERANCE = 1e-10  # share of the total sum of squares below which a sum is rounding


@dataclass(frozen=True)
class AnovaRow:
    """One line of the table: numerator and error degrees of freedom, F, p, partial eta squared."""

    term: Term
    df: int
    df_error: int
    f: float
    p: float
    share: float


@dataclass(frozen=True)
class AnovaTable:
    """The lines of a stratum, the terms without a line and why, residuals and fitted parts."""

    lines: tuple[AnovaRow, ...]
    missing: tuple[tuple[Term, str], ...]
    residuals: Floats  # shape [value]
    coefficients: Mapping[Term, Floats]  # of each term's columns; only terms that the fit decides
    df_error: int


def coded(labels: npt.NDArray[Any]) -> Floats:
    """Sum-to-zero columns of a factor, shape [value, levels - 1]."""
    levels, which = np.unique(labels, return_inverse=True)
    contrasts = np.vstack([np.eye(levels.size - 1), -np.ones(levels.size - 1)])
    return np.asarray(contrasts[which], dtype=np.float64)


def columns(term: Term, factors: Mapping[str, npt.NDArray[Any]]) -> Floats:
    """The columns of an interaction: all products of its factors' columns."""
    product = np.ones((factors[term[0]].size, 1))
    for name in term:
        product = (product[:, :, np.newaxis] * coded(factors[name])[:, np.newaxis, :]).reshape(
            product.shape[0], -1
        )
    return product


def centred(array: Floats, groups: npt.NDArray[np.int64]) -> Floats:
    """`array` [value] or [value, column] minus the mean of each group."""
    counts = np.bincount(groups)
    flat = array if array.ndim == 2 else array[:, np.newaxis]
    means = np.stack([np.bincount(groups, column) for column in flat.T]) / counts
    return array - means[:, groups].T.reshape(array.shape)


def _fit(y: Floats, x: Floats) -> tuple[Floats, float, int]:
    """Coefficients, residual sum of squares and rank of a least squares fit."""
    if x.shape[1] == 0:
        return np.empty(0), float(y @ y), 0
    coefficients, _, rank, _ = np.linalg.lstsq(x, y, rcond=1e-10)
    left = y - x @ coefficients
    return np.asarray(coefficients, dtype=np.float64), float(left @ left), int(rank)


def _decided(x: Floats, begin: int, end: int, rank: int) -> bool:
    """Whether least squares have one solution for the columns from `begin` to `end` of x."""
    if rank == x.shape[1]:
        return True
    others = np.delete(x, np.s_[begin:end], axis=1)
    return rank - _fit(np.zeros(x.shape[0]), others)[2] == end - begin


def table(
    y: Floats, blocks: Mapping[Term, Floats], nuisance: Floats, lost: int, why: str
) -> AnovaTable:
    """The analysis of y [value] by the columns of each term.

    `nuisance`: columns that are in every fit, not tested.  `lost`: degrees of freedom that
    centring took.  `why`: what to say when there is no error left to test against.
    """
    terms = list(blocks)
    whole = np.hstack([nuisance, *blocks.values()])
    coefficients, rss, rank = _fit(y, whole)
    residuals = y - whole @ coefficients
    df_error = y.size - lost - rank
    ends = np.cumsum([nuisance.shape[1], *(blocks[t].shape[1] for t in terms)])
    parts = {
        t: coefficients[ends[i] : ends[i + 1]]
        for i, t in enumerate(terms)
        if _decided(whole, ends[i], ends[i + 1], rank)
    }
    if df_error < 1:
        return AnovaTable((), tuple((t, why) for t in terms), residuals, parts, 0)
    total = float(y @ y)
    if rss <= TOLERANCE * max(total, np.finfo(float).tiny):
        reason = "the values do not scatter at all, so there is no error to test against"
        return AnovaTable((), tuple((t, reason) for t in terms), residuals, parts, df_error)
    lines, missing = [], []
    for term in terms:
        line = _line(term, y, blocks, nuisance, (rss, df_error))
        if line is None:
            missing.append((term, "it cannot be told from other terms: combinations are missing"))
        else:
            lines.append(line)
    return AnovaTable(tuple(lines), tuple(missing), residuals, parts, df_error)


def flipped_p(
    term: Term,
    y: Floats,
    blocks: Mapping[Term, Floats],
    nuisance: Floats,
    groups: npt.NDArray[np.int64],
) -> float:
    """p of one term in `table` from sign flips of residuals; NaN without a line of it.

    The residuals of the model without the term change their sign, those of a group (a label from 0
    in `groups`, [value]) all together; its fit is added, and F is that of `table` (Cameron,
    Gelbach and Miller, Review of Economics and Statistics 90, 2008).  It takes for granted that
    what remains of a group is as likely as its negative, not that all values scatter alike.
    """
    base = np.hstack([nuisance, *(blocks[u] for u in blocks if not set(term) <= set(u))])
    spaces = [
        _basis(x)
        for x in (base, np.hstack([base, blocks[term]]), np.hstack([nuisance, *blocks.values()]))
    ]
    if spaces[1].shape[1] == spaces[0].shape[1] or y.size <= spaces[2].shape[1]:
        return math.nan
    others = _basis(np.hstack([nuisance, *(x for u, x in blocks.items() if u != term)]))
    fitted = others @ (others.T @ y)
    left = y - fitted
    effort = y.size * sum(space.shape[1] for space in spaces)
    most = int(min(MOST_FLIPS, max(FEWEST_FLIPS, MOST_EFFORT // effort)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (int(groups.max()) + 1, most))
    drawn = fitted[:, np.newaxis] + left[:, np.newaxis] * signs[groups]
    values = np.column_stack([y, drawn])
    without, with_, full = (np.square(space.T @ values).sum(axis=0) for space in spaces)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (with_ - without) / (np.square(values).sum(axis=0) - full)
    return float(np.mean(ratio >= ratio[0] * (1 - TOLERANCE)))


def _basis(x: Floats) -> Floats:
    """Orthonormal columns that span those of x."""
    u, size, _ = np.linalg.svd(x, full_matrices=False)
    return np.asarray(u[:, size > 1e-10 * max(float(size.max(initial=0)), 1e-300)])


def _line(
    term: Term,
    y: Floats,
    blocks: Mapping[Term, Floats],
    nuisance: Floats,
    error: tuple[float, int],
) -> AnovaRow | None:
    """The line of a term against (sum of squares, degrees of freedom) of the error."""
    rss, df_error = error
    base = np.hstack([nuisance, *(blocks[u] for u in blocks if not set(term) <= set(u))])
    _, rss_base, rank_base = _fit(y, base)
    _, rss_with, rank_with = _fit(y, np.hstack([base, blocks[term]]))
    df = rank_with - rank_base
    if df < 1:
        return None
    explained = max(rss_base - rss_with, 0.0)
    f = explained / df / (rss / df_error)
    p = max(float(scipy.special.fdtrc(df, df_error, f)), np.finfo(float).tiny)
    return AnovaRow(term, df, df_error, f, p, explained / (explained + rss))
