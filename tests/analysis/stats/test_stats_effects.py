"""Effects in a split plot: against statsmodels on balanced data, and by simulation."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.formula.api import ols

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


def test_balanced_split_plot_is_that_of_statsmodels() -> None:
    labels = design()
    y = draw(np.random.default_rng(1), labels, 1.0) + 0.5 * labels["pattern"] * labels["target"]
    found = analysed(y, labels)
    frame = pd.DataFrame({**labels, "y": y})
    # C(pattern):C(target) beside C(attachment) is rank-deficient: its columns without redundance
    sign = np.where(labels["target"] == 0, 1, -1)
    for level in (0, 1):
        third = (labels["pattern"] == level) * 1 - (labels["pattern"] == 2)
        frame[f"both{level}"] = sign * third
    additive = ols("y ~ C(attachment) + C(pattern)", frame).fit()
    whole = ols("y ~ C(attachment) + C(pattern) + both0 + both1", frame).fit()
    inner = sm.stats.anova_lm(whole)
    nested = sm.stats.anova_lm(additive, whole).iloc[1]
    assert named(found, "pattern").f == pytest.approx(inner.loc["C(pattern)", "F"])
    assert named(found, "pattern").p == pytest.approx(inner.loc["C(pattern)", "PR(>F)"])
    assert named(found, "target:pattern").f == pytest.approx(nested["F"])
    assert named(found, "target:pattern").p == pytest.approx(nested["Pr(>F)"])
    assert named(found, "pattern").df_error == inner.loc["Residual", "df"]
    means = frame.groupby("attachment")[["y", "target"]].mean()
    outer = sm.stats.anova_lm(ols("y ~ C(target)", means).fit())
    assert named(found, "target").f == pytest.approx(outer.loc["C(target)", "F"])
    assert named(found, "target").stratum == "between attachments"
    assert named(found, "target").df_error == 2 * ATTACHMENTS - 2
    json.dumps(found.to_dict())


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


@pytest.mark.parametrize("wild", ["heavy", "one pattern", "one target"])
def test_sign_flips_hold_where_residuals_are_heavy_or_spreads_differ(wild: str) -> None:
    """Aligned ranks called 20 to 65 % where one target or pattern alone varies."""
    random = np.random.default_rng(4)
    trials = 150
    hits: dict[str, list[bool]] = {"pattern": [], "target:pattern": []}
    for _ in range(trials):
        labels = design()
        y = draw(random, labels, 0.5, heavy=wild == "heavy")
        if wild != "heavy":
            factor = wild.split()[1]
            restless = labels[factor] == labels[factor][0]
            y = y + 5.0 * restless * random.standard_normal(y.size)
        found = analysed(y, labels)
        for term, called in hits.items():
            p = named(found, term).p_flips
            called += [] if np.isnan(p) else [p <= 0.05]
    for called in hits.values():
        assert len(called) > 0.2 * trials
        assert sum(called) <= stats.binom.ppf(1 - 1e-3, len(called), 0.07)


def test_sign_flips_find_an_effect() -> None:
    labels = design()
    y = draw(np.random.default_rng(6), labels, 0.5)
    y = y + 1.5 * labels["pattern"] + 40 * (np.arange(y.size) == 5)
    found = analysed(y, labels)
    assert any("use the sign flips" in line for line in found.says)
    assert named(found, "pattern").p_flips < 0.002 < named(found, "pattern").p
    assert named(found, "target:pattern").p_flips > 0.01


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
    """30 000 times the scatter in 720 runs: p is too small for a float, and still not 0."""
    labels = {name: np.tile(label, 10) for name, label in design().items()}
    y = 1e-3 * draw(np.random.default_rng(7), labels, 0.1) + 30.0 * labels["pattern"]
    found = named(analysed(y, labels), "pattern")
    assert 0 < found.p < 1e-300
    assert 0 < found.p_holm < 1e-300
    assert "(p < 1e-12 corrected" in found.says
