"""Analysis of variance in one stratum: F of each term by comparing nested least squares fits.

Type II: a term is tested after all terms that do not contain it.  Factors are coded so that
their columns sum to zero over levels.  Source: Langsrud, Statistics and Computing 13, 2003.

A term is tested against how much it varies from cluster to cluster (block, or attachment), not
against the scatter of values: what one session does to one pattern is no effect of the pattern.
The cluster's residuals may depend on each other and differ in spread: both degrees of freedom are
those of Greenhouse and Geisser, Psychometrika 24, 1959 (for data without gaps it is their test; in
general Liang and Zeger's covariance of the scores, Biometrika 73, 1986).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats

Term = tuple[str, ...]
TOLERANCE = 1e-10  # share of the total sum of squares below which a sum is rounding


@dataclass(frozen=True)
class AnovaRow:
    """One line of the table: numerator and error degrees of freedom, F, p, partial eta squared."""

    term: Term
    df: float
    df_error: float
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


@dataclass(frozen=True)
class Clusters:
    """What is independent in a stratum: `of` each value [value], from 0.

    `spent`: degrees of freedom over the clusters that the model takes for each term.
    """

    of: npt.NDArray[np.int64]
    spent: Mapping[Term, int]


def table(
    y: Floats,
    blocks: Mapping[Term, Floats],
    nuisance: Floats,
    lost: int,
    why: str,
    clusters: Clusters | None = None,
) -> AnovaTable:
    """The analysis of y [value] by the columns of each term.

    `nuisance`: columns that are in every fit, not tested.  `lost`: degrees of freedom that
    centring took.  `why`: what to say when there is no error left to test against.  `clusters`:
    None, or too few of them for a term: it is tested against the scatter of values.
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
        base = np.hstack([nuisance, *(blocks[u] for u in blocks if not set(term) <= set(u))])
        line = _line(term, y, base, blocks[term], (residuals, df_error), clusters)
        if line is None:
            missing.append((term, "it cannot be told from other terms: combinations are missing"))
        else:
            lines.append(line)
    return AnovaTable(tuple(lines), tuple(missing), residuals, parts, df_error)


def _basis(x: Floats, scale: float = 0.0) -> Floats:
    """Orthonormal columns that span those of x; what is rounding of values of `scale` is none."""
    u, size, _ = np.linalg.svd(x, full_matrices=False)
    return np.asarray(u[:, size > 1e-10 * max(float(size.max(initial=0)), scale, 1e-300)])


def _line(
    term: Term,
    y: Floats,
    base: Floats,
    own: Floats,
    error: tuple[Floats, int],
    clusters: Clusters | None,
) -> AnovaRow | None:
    """The line of a term; `error`: residuals of the whole model, their degrees of freedom."""
    residuals, df_error = error
    before = _basis(base) if base.shape[1] else base
    directions = _basis(own - before @ (before.T @ own), float(np.abs(own).max()))
    df = directions.shape[1]
    if df < 1:
        return None
    explained = float(np.square(directions.T @ y).sum())
    rss = float(residuals @ residuals)
    chance, df, freedom = float(df * rss / df_error), float(df), float(df_error)
    if clusters is not None:
        scores = np.zeros((int(clusters.of.max()) + 1, directions.shape[1]))
        np.add.at(scores, clusters.of, directions * residuals[:, np.newaxis])
        touched = np.unique(clusters.of[(np.abs(directions) > TOLERANCE).any(axis=1)]).size
        left = touched - clusters.spent[term]
        if left > 0:
            covariance = scores.T @ scores * (touched / left)
            chance = float(np.trace(covariance))
            df = chance**2 / max(float(np.square(covariance).sum()), np.finfo(float).tiny)
            freedom = df * left
    f = explained / max(chance, TOLERANCE * explained, np.finfo(float).tiny)
    p = max(float(scipy.special.fdtrc(max(df, 1.0), max(freedom, 1.0), f)), np.finfo(float).tiny)
    return AnovaRow(term, df, freedom, f, p, explained / (explained + rss))
