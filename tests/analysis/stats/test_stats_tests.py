"""Tests of two targets, corrections and effect sizes, against tables, scipy and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.testing import tests


@pytest.mark.parametrize(
    ("n", "m", "p"),
    [(3, 3, 0.1), (4, 4, 2 / 70), (3, 5, 2 / 56), (5, None, 0.0625), (6, None, 0.03125)],
)  # fmt: skip
def test_smallest_p(n: int, m: int | None, p: float) -> None:
    assert tests.smallest_p(n, m) == pytest.approx(p)


def test_three_against_three_can_never_decide() -> None:
    found = tests.mann_whitney([1.0, 2.0, 3.0], [10.0, 11.0, 12.0])
    assert found.p == pytest.approx(0.1)
    assert "cannot decide" in found.says


@given(st.integers(1, 10_000), st.sampled_from([0.01, 0.05, 0.1]))
def test_fewest_is_the_smallest_number_that_can_decide(count: int, alpha: float) -> None:
    n = tests.fewest(count, alpha)
    assert tests.smallest_p(n) <= alpha / count * (1 + 1e-9)
    assert tests.smallest_p(n - 1) > alpha / count


def test_mann_whitney_is_exact_without_and_with_ties() -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal(7), random.standard_normal(9) + 1
    assert tests.mann_whitney(a, b).p == stats.mannwhitneyu(a, b, method="exact").pvalue
    tied = tests.mann_whitney([1, 2, 2, 3], [2, 4, 4, 5])
    assert tied.exact
    # by hand: all 70 splits of the ranks, of which the first four sum to 12, 18 expected
    ranks = np.array([1, 3, 3, 5, 3, 6.5, 6.5, 8])
    sums = [ranks[list(c)].sum() for c in itertools.combinations(range(8), 4)]
    assert tied.p == pytest.approx(np.mean([abs(s - 18) >= abs(12 - 18) - 1e-9 for s in sums]))
    assert tests.mann_whitney(np.ones(5), np.ones(5)).p == 1.0
    assert not tests.mann_whitney(random.random(60), random.random(60)).exact


def test_signed_rank_agrees_with_scipy() -> None:
    random = np.random.default_rng(2)
    for n in (6, 10, 14, 40):
        d = random.standard_normal(n) + 0.3
        assert tests.signed_rank(d).p == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    assert tests.signed_rank(np.zeros(8)).p == 1.0


@pytest.mark.parametrize("shape", simulate.SHAPES)
def test_tests_hold_their_level(shape: str) -> None:
    random = np.random.default_rng(3)
    trials, n = 400, 6
    a, b = (np.median(simulate.logs(random, shape, (trials, n, 5)), axis=2) for _ in "ab")
    most = stats.binom.ppf(1 - 1e-4, trials, 0.05)
    assert sum(tests.mann_whitney(x, y).p <= 0.05 for x, y in zip(a, b, strict=True)) <= most
    assert sum(tests.signed_rank(d).p <= 0.05 for d in a - b) <= most


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_corrections_are_those_of_statsmodels(p: list[float]) -> None:
    assert tests.correct(p) == pytest.approx(multipletests(p, method="holm")[1])
    found = tests.correct(p, "benjamini-hochberg")
    assert found == pytest.approx(multipletests(p, method="fdr_bh")[1])
    assert tests.correct(p, "none").tolist() == p


def test_cells_without_a_test_do_not_count() -> None:
    found = tests.correct([0.02, math.nan, 0.5])
    assert found[0] == pytest.approx(0.04)
    assert math.isnan(found[1])
    assert np.isnan(tests.correct([math.nan])).all()


@pytest.mark.parametrize("spread", [1.0, 0.01, 5.0])
@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_effect_size_interval_covers(spread: float, shift: float) -> None:
    random = np.random.default_rng(4)
    trials, n, m = 800, 8, 12
    truth = stats.norm.cdf(shift / math.hypot(1, spread))
    a, b = random.standard_normal((trials, n)) + shift, spread * random.standard_normal((trials, m))
    found = [tests.effect(x, y) for x, y in zip(a, b, strict=True)]
    hits = sum(e.low <= truth <= e.high for e in found)
    assert hits >= stats.binom.ppf(1e-4, trials, 0.95)
    assert np.mean([e.a for e in found]) == pytest.approx(truth, abs=0.03)


def test_effect_size_of_full_separation_is_not_certain() -> None:
    found = tests.effect(np.arange(6.0), np.arange(10.0, 16.0))
    assert (found.a, found.cliff, found.size) == (0.0, -1.0, "large")
    assert 0.4 < found.high < 0.5
    assert tests.effect([], [1.0]).size == "unknown"


def test_single_values_have_no_effect_size() -> None:
    """One value is always above another: A was 1.00."""
    for sides in (([2.0], [1.0]), ([2.0], [1.0, 1.1, 1.2]), ([3.0, 2.0], [1.0])):
        found = tests.effect(*sides)
        assert np.isnan([found.a, found.low, found.high]).all()
        assert found.says == "no effect size of single values"
