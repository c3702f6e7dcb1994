"""Main effects and interactions of factors in a split plot, on the logs of positive values.

A factor that is constant within every attachment (a whole-plot factor, such as the target) is
analysed between attachments, all others within.  Each term is tested against how much it varies
from block to block (from attachment to attachment without blocks): sessions, and what a session
does to one pattern, are no effects of factors (`anova`; docs/statistics.md).
Source: Montgomery, Design and Analysis of Experiments, section 14.5 (split plot).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import anova
from fsmatrix.analysis.stats.testing.anova import Term
from fsmatrix.analysis.stats.testing.tests import ALPHA, correct
from fsmatrix.analysis.units import brief, p_text
from fsmatrix.results.evidence.stored import Json

Stratum = Literal["between attachments", "within attachments"]
REMEDIES: dict[Stratum, str] = {  # where nothing is left to test against
    "within attachments": "repeat the cases within attachments",
    "between attachments": "every combination needs two attachments or more, in blocks three",
}
Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class FactorEffect:
    """One term.  `span`: largest over smallest level of a main effect, as a ratio, else NaN.

    `span` is NaN too where missing combinations leave the levels undecided.
    `p_holm` is corrected over all terms.
    """

    term: str
    stratum: Stratum
    df: float
    df_error: float
    f: float
    p: float
    p_holm: float
    share: float  # partial eta squared
    span: float

    @property
    def says(self) -> str:
        """What it is, in words."""
        span = (
            "" if np.isnan(self.span) else f", levels differ by a factor up to {brief(self.span)}"
        )
        verdict = "an effect" if self.p_holm <= ALPHA else "no effect shown"
        return f"{self.term}: {verdict} ({p_text(self.p_holm)} corrected, {self.stratum}{span})"


@dataclass(frozen=True)
class Effects:
    """All terms, and what could not be estimated and why."""

    effects: tuple[FactorEffect, ...]
    missing: tuple[tuple[str, str], ...]  # (term or factor, why)

    @property
    def says(self) -> list[str]:
        """Every effect, then what was not estimated and why."""
        lines = [effect.says for effect in self.effects]
        return lines + [f"{name}: not estimated: {why}" for name, why in self.missing]

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return {
            "effects": [asdict(e) | {"says": e.says} for e in self.effects],
            "missing": [list(pair) for pair in self.missing],
            "says": self.says,
        }


def effects(
    values: npt.ArrayLike,
    attachments: npt.ArrayLike,
    factors: Mapping[str, npt.ArrayLike],
    blocks: npt.ArrayLike | None = None,
    order: int = 2,
) -> Effects:
    """Effects of `factors` (labels, shape [run]) and interactions of up to `order` of them.

    `values` [run] must be positive; NaN are left out.  `blocks` [run], if constant within
    attachments, are what is independent, and taken out of the scatter between attachments.
    """
    y = np.asarray(values, dtype=np.float64)
    valued = ~np.isnan(y)
    if np.any(y[valued] <= 0):
        raise ValueError("effects are on logs and need positive values")
    labels = {name: np.asarray(f) for name, f in factors.items()}
    owners = np.asarray(attachments)
    if any(f.shape != y.shape for f in (*labels.values(), owners)):
        raise ValueError("values, attachments and factors must have one shape [run]")
    if not valued.any():
        return Effects((), tuple((name, "no values") for name in labels))
    labels = {name: f[valued] for name, f in labels.items()}
    groups = np.unique(owners[valued], return_inverse=True)[1]
    single = [name for name, f in labels.items() if np.unique(f).size < 2]
    varied = {name: f for name, f in labels.items() if name not in single}
    missing = [(name, "it has one level") for name in single]
    nuisance = None if blocks is None else np.asarray(blocks)[valued]
    if nuisance is not None and not _constant(nuisance, groups):
        nuisance = None
    parts = _strata(np.log(y[valued]), groups, varied, nuisance, order)
    lines = [line for part in parts for line in part.lines]
    corrected = correct([line.p for line, *_ in lines])
    return Effects(
        effects=tuple(
            FactorEffect(
                ":".join(line.term),
                stratum,
                line.df,
                line.df_error,
                line.f,
                line.p,
                float(holm),
                line.share,
                span,
            )
            for (line, stratum, span), holm in zip(lines, corrected, strict=True)
        ),
        missing=(*missing, *(pair for part in parts for pair in part.missing)),
    )


@dataclass(frozen=True)
class _Part:
    lines: list[tuple[anova.AnovaRow, Stratum, float]]
    missing: list[tuple[str, str]]


def _constant(labels: Labels, groups: npt.NDArray[np.int64]) -> bool:
    """Whether a label is the same for all runs of each attachment."""
    pairs = np.unique(np.stack([groups, np.unique(labels, return_inverse=True)[1]]), axis=1)
    return bool(pairs.shape[1] == np.unique(groups).size)


def _strata(
    y: Floats,
    groups: npt.NDArray[np.int64],
    factors: Mapping[str, Labels],
    blocks: Labels | None,
    order: int,
) -> list[_Part]:
    """The analyses within and between attachments."""
    whole = {name for name, labels in factors.items() if _constant(labels, groups)}
    terms = [term for size in range(1, order + 1) for term in itertools.combinations(factors, size)]
    every = {t: anova.columns(t, factors) for t in terms}
    inner = {t: x for t, x in every.items() if not set(t) <= whole}
    first = np.unique(groups, return_index=True)[1]
    if blocks is not None and np.unique(blocks).size < 2:
        blocks = None
    shared = None if blocks is None else np.unique(blocks, return_inverse=True)[1]
    parts, adjusted = [], y
    if inner:
        centred = {t: anova.centred(x, groups) for t, x in inner.items()}
        spent = {t: _spent(t, every, whole) if shared is None else 1 for t in inner}
        table = anova.table(
            anova.centred(y, groups),
            centred,
            np.empty((y.size, 0)),
            int(groups.max()) + 1,
            REMEDIES["within attachments"],
            anova.Clusters(groups if shared is None else shared, spent),
        )
        parts.append(_part(table, "within attachments"))
        x = np.hstack(list(centred.values()))
        beta = np.linalg.lstsq(x, anova.centred(y, groups), rcond=1e-10)[0]
        adjusted = y - np.hstack(list(inner.values())) @ beta
    outer = {t: x[first] for t, x in every.items() if set(t) <= whole}
    if outer:
        means = np.bincount(groups, adjusted) / np.bincount(groups)
        nuisance, clusters = np.ones((means.size, 1)), None
        if shared is not None and blocks is not None:
            nuisance = np.hstack([nuisance, anova.coded(blocks[first])])
            clusters = anova.Clusters(shared[first], dict.fromkeys(outer, 1))
        table = anova.table(means, outer, nuisance, 0, REMEDIES["between attachments"], clusters)
        parts.append(_part(table, "between attachments"))
    return parts


def _spent(term: Term, every: Mapping[Term, Floats], whole: set[str]) -> int:
    """Of the attachments: the term's mean, and how whole-plot factors change it in this model."""
    return 1 + sum(
        int(columns.shape[1]) // int(every[term].shape[1])
        for other, columns in every.items()
        if set(term) < set(other) and set(other) - set(term) <= whole
    )


def _part(table: anova.AnovaTable, stratum: Stratum) -> _Part:
    """The lines of one stratum, each with the span of its levels."""
    lines = []
    for line in table.lines:
        span = float("nan")
        if len(line.term) == 1 and line.term in table.coefficients:
            span = _span(table.coefficients[line.term])
        lines.append((line, stratum, span))
    return _Part(lines, [(":".join(term), reason) for term, reason in table.missing])


def _span(coefficients: Floats) -> float:
    """Largest over smallest level of a factor from its sum-to-zero coefficients, as a ratio."""
    levels = np.append(coefficients, -coefficients.sum())
    return float(np.exp(np.ptp(levels)))
