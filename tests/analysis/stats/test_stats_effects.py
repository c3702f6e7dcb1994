"""Effects in a split plot: against statsmodels on balanced data, and by simulation."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing.effects import Effects, FactorEffect, effects

TARGETS, ATTACHMENTS, PATTERNS, REPEATS = 2, 6, 3, 2


def design() -> dict[str, np.ndarray]:
    """Labels of a balanced split plot, shape [run]: target is the whole-plot factor."""
    grid = np.meshgrid(
        np.arange(TARGETS),
        np.arange(ATTACHMENTS),
        np.arange(PATTERNS),
        np.arange(REPEATS),
        indexing="ij",
    )
    target, number, pattern, _ = (axis.ravel() for axis in grid)
    return {
        "target": target,
        "pattern": pattern,
        "attachment": target * ATTACHMENTS + number,
        "block": number,
    }


def draw(
    random: np.random.Generator, labels: dict[str, np.ndarray], session: float, heavy: bool = False
) -> Floats:
    """Logs of runs: session effects plus run to run, no effect of a factor."""
    one = (lambda n: random.standard_t(3, n)) if heavy else random.standard_normal
    sessions = session * one(labels["attachment"].max() + 1)
    return np.asarray(sessions[labels["attachment"]] + one(labels["target"].size))


def analysed(y: Floats, labels: dict[str, np.ndarray], **options: object) -> Effects:
    factors = {name: labels[name] for name in ("target", "pattern")}
    return effects(np.exp(y), labels["attachment"], factors, **options)  # type: ignore[arg-type]


def named(found: Effects, term: str) -> FactorEffect:
    return next(e for e in found.effects if e.term == term)


def test_balanced_blocks_are_those_of_statsmodels_repeated_measures() -> None:
    """F is its F; its degrees of freedom are those of Greenhouse and Geisser, at most its own."""
    labels = design()
    y = draw(np.random.default_rng(1), labels, 1.0) + 0.5 * labels["pattern"] * labels["target"]
    found = analysed(y, labels, blocks=labels["block"])
    frame = pd.DataFrame({**labels, "y": y})
    other = (
        AnovaRM(frame, "y", "block", within=["target", "pattern"], aggregate_func="mean")
        .fit()
        .anova_table
    )
    for term in ("target", "pattern", "target:pattern"):
        mine = named(found, term)
        assert mine.f == pytest.approx(other.loc[term, "F Value"])
        assert mine.df <= other.loc[term, "Num DF"] * (1 + 1e-9)
        assert mine.df_error == pytest.approx(mine.df * (ATTACHMENTS - 1))
    assert named(found, "target").p == pytest.approx(other.loc["target", "Pr > F"])
    assert named(found, "target").stratum == "between attachments"
    json.dumps(found.to_dict())


def test_degrees_of_freedom_are_those_of_greenhouse_and_geisser() -> None:
    """Epsilon from the covariance of the patterns (their 1959 paper, formula of the abstract)."""
    labels = design()
    one = labels["target"] == 0
    mine = {name: values[one] for name, values in labels.items()}
    y = draw(np.random.default_rng(2), labels, 1.0)[one]
    table = pd.DataFrame({**mine, "y": y}).pivot_table("y", "block", "pattern").to_numpy()
    covariance = np.cov(table.T)
    centre = np.eye(PATTERNS) - 1 / PATTERNS
    double = centre @ covariance @ centre
    epsilon = np.trace(double) ** 2 / ((PATTERNS - 1) * np.square(double).sum())
    factors = {"pattern": mine["pattern"]}
    (found,) = effects(np.exp(y), mine["attachment"], factors, mine["block"]).effects
    assert found.df == pytest.approx(epsilon * (PATTERNS - 1))


def test_attachments_without_blocks_are_compared_as_they_are() -> None:
    labels = design()
    y = draw(np.random.default_rng(1), labels, 1.0)
    means = pd.DataFrame({**labels, "y": y}).groupby("attachment")[["y", "target"]].mean()
    outer = sm.stats.anova_lm(ols("y ~ C(target)", means).fit())
    found = named(analysed(y, labels), "target")
    assert found.f == pytest.approx(outer.loc["C(target)", "F"])
    assert found.df_error == 2 * ATTACHMENTS - 2


def test_sizes_of_effects_are_ratios() -> None:
    labels = design()
    y = np.log(2.0) * labels["target"] + np.log(3.0) * (labels["pattern"] == 1)
    y = y + 1e-3 * draw(np.random.default_rng(2), labels, 1.0)
    found = analysed(y, labels)
    assert named(found, "target").span == pytest.approx(2.0, rel=0.01)
    assert named(found, "pattern").span == pytest.approx(3.0, rel=0.01)
    assert named(found, "target").p_holm < 1e-6


@pytest.mark.parametrize("unbalanced", [False, True])
def test_false_effects_stay_at_the_level_with_session_effects(unbalanced: bool) -> None:
    """A target without effect, session effects as large as the run-to-run spread."""
    random = np.random.default_rng(3)
    trials, terms = 300, ("target", "pattern", "target:pattern")
    hits, naive = dict.fromkeys(terms, 0), 0
    for _ in range(trials):
        labels = design()
        if unbalanced:
            kept = random.random(labels["target"].size) < 0.8
            labels = {name: values[kept] for name, values in labels.items()}
        y = draw(random, labels, 1.0)
        found = analysed(y, labels)
        for term in terms:
            hits[term] += named(found, term).p <= 0.05
        sides = [y[labels["target"] == t] for t in range(TARGETS)]
        naive += stats.ttest_ind(*sides).pvalue <= 0.05
    most = stats.binom.ppf(1 - 1e-4, trials, 0.05)
    assert max(hits.values()) <= most
    assert naive > 2 * most  # what testing against runs would claim


def noise(random: np.random.Generator, wild: str, labels: dict[str, np.ndarray]) -> Floats:
    """What varies beside the factors, [run]."""
    pattern, attachment = labels["pattern"], labels["attachment"]
    y = draw(random, labels, 0.5, heavy=wild == "heavy")
    if wild == "session and pattern":  # a session serves one pattern better than another
        return (
            y + 3.0 * random.standard_normal((attachment.max() + 1, PATTERNS))[attachment, pattern]
        )
    if wild == "block and pattern":
        return y + 3.0 * random.standard_normal((ATTACHMENTS, PATTERNS))[labels["block"], pattern]
    if wild != "heavy":
        factor = wild.split()[1]
        y = y + 5.0 * (labels[factor] == labels[factor][0]) * random.standard_normal(y.size)
    return np.asarray(y)


@pytest.mark.parametrize(
    "wild", ["heavy", "one pattern", "one target", "session and pattern", "block and pattern"]
)
def test_it_holds_whatever_a_session_does_and_where_spreads_differ(wild: str) -> None:
    """An F test against the scatter of runs calls up to 57 % of patterns here."""
    random = np.random.default_rng(4)
    trials, labels = 150, design()
    hits = dict.fromkeys(("pattern", "target:pattern"), 0)
    for _ in range(trials):
        found = analysed(noise(random, wild, labels), labels, blocks=labels["block"])
        for term in hits:
            hits[term] += named(found, term).p <= 0.05
    assert max(hits.values()) <= stats.binom.ppf(1 - 1e-3, trials, 0.06)


def test_a_wild_value_hides_no_effect() -> None:
    labels = design()
    y = draw(np.random.default_rng(6), labels, 0.5)
    y = y + 3 * labels["pattern"] + 10 * (np.arange(y.size) == 5)
    found = analysed(y, labels, blocks=labels["block"])
    assert named(found, "pattern").p_holm < 0.01
    assert named(found, "target:pattern").p_holm > 0.05


def test_one_attachment_of_each_target_is_tested_against_the_scatter_of_its_runs() -> None:
    labels = design()
    y = draw(np.random.default_rng(8), labels, 0.5) + 3 * labels["pattern"]
    first = labels["block"] == 0
    found = analysed(y[first], {name: values[first] for name, values in labels.items()})
    assert named(found, "pattern").df_error == np.count_nonzero(first) - TARGETS * PATTERNS
    assert named(found, "pattern").p < 0.01


def test_blocks_are_taken_out_of_the_scatter_between_attachments() -> None:
    labels = design()
    random = np.random.default_rng(5)
    y = draw(random, labels, 0.2) * 0.1 + 3 * random.standard_normal(ATTACHMENTS)[labels["block"]]
    y = y + 0.2 * labels["target"]
    assert named(analysed(y, labels), "target").p > 0.2
    assert named(analysed(y, labels, blocks=labels["block"]), "target").p < 0.001


def test_what_cannot_be_estimated_is_said() -> None:
    labels = design()
    y = draw(np.random.default_rng(7), labels, 1.0)
    one = effects(
        np.exp(y), labels["attachment"], {"target": labels["target"], "disk": np.zeros(y.size)}
    )
    assert ("disk", "it has one level") in one.missing
    few = labels["block"] == 0  # one attachment of each target
    lonely = analysed(y[few], {name: values[few] for name, values in labels.items()})
    assert [name for name, _ in lonely.missing] == ["target"]
    assert "two attachments" in lonely.missing[0][1]
    empty = ~((labels["target"] == 1) & (labels["pattern"] > 0))  # a combination is missing
    gap = analysed(y[empty], {name: values[empty] for name, values in labels.items()})
    assert "target:pattern" in [name for name, _ in gap.missing]
    constant = analysed(np.zeros(y.size), labels)
    assert not constant.effects
    assert "do not scatter" in constant.missing[0][1]
    nothing = analysed(np.full(y.size, np.nan), labels)
    assert ("target", "no values") in nothing.missing
    with pytest.raises(ValueError, match="positive"):
        effects(np.zeros(y.size), labels["attachment"], {"target": labels["target"]})


def test_levels_that_missing_combinations_leave_undecided_have_no_size() -> None:
    random = np.random.default_rng(5)
    a, b, c, _ = (axis.ravel() for axis in np.meshgrid(*[range(2)] * 3, range(6)))
    there = (a == 1) | (b == 0)  # b has its second level with one level of a only
    a, b, c = a[there], b[there], c[there]
    y = 20 + 0.5 * a + 0.1 * random.standard_normal(a.size)
    found = effects(np.exp(y), np.arange(a.size), {"a": a, "b": b, "c": c}, blocks=b)
    assert np.isnan(named(found, "a").span)
    assert named(found, "c").span == pytest.approx(1.0, abs=0.1)
    assert "b" in dict(found.missing)


def test_no_p_is_zero() -> None:
    """30 000 times the scatter in 720 runs."""
    labels = {name: np.tile(label, 10) for name, label in design().items()}
    y = 1e-3 * draw(np.random.default_rng(7), labels, 0.1) + 30.0 * labels["pattern"]
    found = named(analysed(y, labels), "pattern")
    assert 0 < found.p < 1e-50
    assert 0 < found.p_holm < 1e-50
    assert "(p < 1e-12 corrected" in found.says
