"""Main effects and interactions of factors in a split plot, on the logs of positive values.

A factor that is constant within every attachment (a whole-plot factor, such as the target) is
tested against the scatter between attachments, all others against the scatter of runs within
attachments; tested against the wrong one, session effects look like effects of factors.  If the
residuals are not normal or not of equal spread, a test by sign flips stands beside: the residuals
of whole attachments, or of whole blocks, change their sign (`anova.flipped_p`).  Where spreads
differ, aligned ranks and permutations inside blocks err more (docs/statistics.md).
Source: Montgomery, Design and Analysis of Experiments, section 14.5 (split plot).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.estimates.variability import ROUNDING, above_zero, equal_spread
from fsmatrix.analysis.stats.testing import anova
from fsmatrix.analysis.stats.testing.anova import Term
from fsmatrix.analysis.stats.testing.tests import ALPHA, correct
from fsmatrix.analysis.units import brief, p_text
from fsmatrix.results.evidence.values import Json

Stratum = Literal["between attachments", "within attachments"]
REMEDIES: dict[Stratum, str] = {  # where nothing is left to test against
    "within attachments": "repeat the cases within attachments",
    "between attachments": "every combination needs two attachments or more, in blocks three",
}
Labels = npt.NDArray[Any]
SUSPICIOUS = 0.01  # p of a diagnostic below which sign flips are shown
MOST_SHAPIRO = 5000


@dataclass(frozen=True)
class FactorEffect:
    """One term.  `span`: largest over smallest level of a main effect, as a ratio, else NaN.

    `span` is NaN too where missing combinations leave the levels undecided.
    `p_holm` is corrected over all terms; `p_flips` is not corrected, and NaN without doubt.
    """

    term: str
    stratum: Stratum
    df: int
    df_error: int
    f: float
    p: float
    p_holm: float
    p_flips: float
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
class Residuals:
    """p of normal residuals (Shapiro and Wilk) and of equal spread (Brown and Forsythe).

    Equal spread: the smallest over factors, times their number.  NaN: too few.
    """

    stratum: Stratum
    n: int
    normal: float
    equal: float

    @property
    def suspicious(self) -> bool:
        """Whether the F tests are in doubt."""
        return self.normal < SUSPICIOUS or self.equal < SUSPICIOUS


@dataclass(frozen=True)
class Effects:
    """All terms, what could not be estimated and why, and the state of the residuals."""

    effects: tuple[FactorEffect, ...]
    missing: tuple[tuple[str, str], ...]  # (term or factor, why)
    residuals: tuple[Residuals, ...]

    @property
    def says(self) -> list[str]:
        """Every effect, then what was not estimated and why."""
        lines = [effect.says for effect in self.effects]
        lines += [f"{name}: not estimated: {why}" for name, why in self.missing]
        lines += [
            f"residuals {r.stratum} are not as the F test wants them: use the sign flips"
            for r in self.residuals
            if r.suspicious
        ]
        return lines

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return {
            "effects": [asdict(e) | {"says": e.says} for e in self.effects],
            "missing": [list(pair) for pair in self.missing],
            "residuals": [asdict(r) | {"suspicious": r.suspicious} for r in self.residuals],
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
    attachments, are taken out of the scatter between attachments.
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
        return Effects((), tuple((name, "no values") for name in labels), ())
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
                flipped,
                line.share,
                span,
            )
            for (line, stratum, flipped, span), holm in zip(lines, corrected, strict=True)
        ),
        missing=(*missing, *(pair for part in parts for pair in part.missing)),
        residuals=tuple(part.residuals for part in parts if part.residuals.n),
    )


@dataclass(frozen=True)
class _Part:
    lines: list[tuple[anova.AnovaRow, Stratum, float, float]]
    missing: list[tuple[str, str]]
    residuals: Residuals


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
    inner = {t: anova.columns(t, factors) for t in terms if not set(t) <= whole}
    count = int(groups.max()) + 1
    parts, adjusted = [], y
    if inner:
        centred = {t: anova.centred(x, groups) for t, x in inner.items()}
        analysis = _analyse(
            anova.centred(y, groups),
            centred,
            np.empty((y.size, 0)),
            count,
            groups,
            "within attachments",
            factors,
        )
        parts.append(analysis)
        x = np.hstack(list(centred.values()))
        beta = np.linalg.lstsq(x, anova.centred(y, groups), rcond=1e-10)[0]
        adjusted = y - np.hstack(list(inner.values())) @ beta
    outer = [t for t in terms if set(t) <= whole]
    if outer:
        first = np.unique(groups, return_index=True)[1]
        means = np.bincount(groups, adjusted) / np.bincount(groups)
        levels = {name: labels[first] for name, labels in factors.items() if name in whole}
        nuisance, shared = np.ones((count, 1)), np.arange(count)
        if blocks is not None and np.unique(blocks[first]).size > 1:
            nuisance = np.hstack([nuisance, anova.coded(blocks[first])])
            shared = np.unique(blocks[first], return_inverse=True)[1]
        columns = {t: anova.columns(t, levels) for t in outer}
        parts.append(_analyse(means, columns, nuisance, 0, shared, "between attachments", levels))
    return parts


def _analyse(
    y: Floats,
    columns: Mapping[Term, Floats],
    nuisance: Floats,
    lost: int,
    groups: npt.NDArray[np.int64],
    stratum: Stratum,
    factors: Mapping[str, Labels],
) -> _Part:
    """One stratum: table, diagnostics, and sign flips if they are in doubt."""
    table = anova.table(y, columns, nuisance, lost, REMEDIES[stratum])
    state = _state(table, stratum, factors)
    lines = []
    for line in table.lines:
        flipped = span = float("nan")
        if state.suspicious:
            flipped = anova.flipped_p(line.term, y, columns, nuisance, groups)
        if len(line.term) == 1 and line.term in table.coefficients:
            span = _span(table.coefficients[line.term])
        lines.append((line, stratum, flipped, span))
    missing = [(":".join(term), reason) for term, reason in table.missing]
    return _Part(lines, missing, state)


def _span(coefficients: Floats) -> float:
    """Largest over smallest level of a factor from its sum-to-zero coefficients, as a ratio."""
    levels = np.append(coefficients, -coefficients.sum())
    return float(np.exp(np.ptp(levels)))


def _state(table: anova.AnovaTable, stratum: Stratum, factors: Mapping[str, Labels]) -> Residuals:
    """Diagnostics of the residuals of one stratum."""
    left = table.residuals
    if table.df_error < 3 or np.ptp(left) ** 2 <= ROUNDING:
        return Residuals(stratum, left.size if table.df_error else 0, float("nan"), float("nan"))
    sample = left
    if left.size > MOST_SHAPIRO:
        sample = np.random.default_rng(0).choice(left, MOST_SHAPIRO, replace=False)
    spreads = []
    for labels in factors.values():
        parts = [left[labels == level] for level in np.unique(labels)]
        if min(part.size for part in parts) >= 3:
            spreads.append(equal_spread(parts))
    equal = min(1.0, min(spreads) * len(spreads)) if spreads else float("nan")
    return Residuals(stratum, left.size, above_zero(scipy.stats.shapiro(sample).pvalue), equal)
