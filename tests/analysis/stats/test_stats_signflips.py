"""Max-T over sign flips of blocks: its level, its power, and what it must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import signflips, tests

ALPHA = 0.05


def differences(
    random: np.random.Generator,
    blocks: int,
    cells: int,
    apart: int = 0,
    by: float = 0.0,
    shared: float = 0.0,
    uneven: float = 0.0,
) -> Floats:
    """Log ratios [block, cell] with a spread of 7 %; the first `apart` cells differ."""
    scale = 0.07 * np.exp(uneven * random.standard_normal(cells))
    found = scale * random.standard_normal((blocks, cells))
    found += shared * random.standard_normal((blocks, 1))
    found[:, :apart] += by
    return np.asarray(found)


@pytest.mark.parametrize("blocks", [6, 8, 30])
@pytest.mark.parametrize(
    ("cells", "apart", "shared", "uneven"),
    [(1, 0, 0.0, 0.0), (3, 0, 0.0, 0.0), (48, 0, 0.0, 0.0), (48, 0, 0.2, 0.0), (48, 0, 0.0, 1.0),
     (48, 24, 0.0, 0.0), (48, 24, 0.1, 1.0)],
)  # fmt: skip
def test_any_false_claim_is_as_rare_as_said(
    blocks: int, cells: int, apart: int, shared: float, uneven: float
) -> None:
    random = np.random.default_rng(1)
    campaigns, wrong = 200, 0
    for _ in range(campaigns):
        drawn = differences(random, blocks, cells, apart, 0.2, shared, uneven)
        wrong += bool((signflips.max_t(drawn, ALPHA).p[apart:] <= ALPHA).any())
    assert wrong <= stats.binom.ppf(0.999, campaigns, ALPHA)


def test_six_blocks_decide_many_cells_where_holm_decides_none() -> None:
    random = np.random.default_rng(2)
    called, holm = [], []
    for _ in range(40):
        drawn = differences(random, 6, 48, 24, math.log(1.2))
        called.append((signflips.max_t(drawn, ALPHA).p <= ALPHA)[:24].mean())
        signs = np.array([stats.binomtest(int((d > 0).sum()), 6).pvalue for d in drawn.T])
        holm.append((tests.correct(signs) <= ALPHA).mean())
    assert np.mean(called) > 0.8
    assert np.mean(holm) == 0


def test_a_hundredfold_difference_is_decided_and_hides_no_small_one() -> None:
    random = np.random.default_rng(3)
    drawn = differences(random, 8, 48, 12, math.log(100))
    drawn[:, 12:24] += math.log(1.25)
    p = signflips.max_t(drawn, ALPHA).p
    assert (p[:24] <= ALPHA).mean() > 0.95
    assert (p[24:] > ALPHA).all()


def test_five_blocks_never_decide_and_six_may() -> None:
    apart = math.log(2) + 0.01 * np.random.default_rng(4).standard_normal((6, 10))
    assert signflips.max_t(apart[:5], ALPHA).p == pytest.approx(2 / 2**5)
    assert (signflips.max_t(apart[:5], ALPHA).p > ALPHA).all()
    assert signflips.max_t(apart, ALPHA).p == pytest.approx(2 / 2**6)


def test_one_cell_is_the_exact_sign_flip_test_of_the_mean() -> None:
    """The moderated t of one cell falls and rises with its mean: scipy lists the same flips."""
    values = np.random.default_rng(5).standard_normal((9, 1)) + 0.5
    exact = stats.permutation_test(
        (values[:, 0],), np.mean, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert signflips.max_t(values, ALPHA).p[0] == pytest.approx(exact)


def test_signs_and_order_of_sides_do_not_matter() -> None:
    drawn = differences(np.random.default_rng(6), 8, 12, 4, 0.1)
    p = signflips.max_t(drawn, ALPHA).p
    assert signflips.max_t(-drawn, ALPHA).p == pytest.approx(p)
    assert signflips.max_t(drawn[::-1, ::-1], ALPHA).p[::-1] == pytest.approx(p)


def test_missing_blocks_count_for_their_cells_only() -> None:
    drawn = differences(np.random.default_rng(7), 8, 5, 2, 1.0)
    drawn[6:, 0] = math.nan
    drawn[1:, 4] = math.nan
    drawn[:, 3] = math.nan
    p = signflips.max_t(drawn, ALPHA).p
    assert p[0] <= ALPHA
    assert p[1] <= ALPHA
    assert np.isnan(p[3:]).all()
    assert np.isnan(signflips.equivalent(drawn, 0.05)[3:]).all()


def test_a_cell_with_five_blocks_does_not_keep_others_from_being_called() -> None:
    """Where its blocks agree, one flip in 16 leaves it as it is: the largest of all cells."""
    drawn = differences(np.random.default_rng(8), 9, 12, 12, math.log(2))
    drawn[5:, 0] = math.nan
    p = signflips.max_t(drawn, ALPHA).p
    assert p[0] == pytest.approx(2 / 2**5)
    assert (p[1:] <= 2 / 2**8).all()


def test_false_claims_stay_rare_where_runs_are_missing() -> None:
    random = np.random.default_rng(9)
    campaigns, wrong = 200, 0
    for _ in range(campaigns):
        drawn = differences(random, 8, 24, 0, 0.0)
        drawn[random.random(drawn.shape) < 0.25] = math.nan
        wrong += bool((signflips.max_t(drawn, ALPHA).p <= ALPHA).any())
    assert wrong <= stats.binom.ppf(0.999, campaigns, ALPHA)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1e-300, 0.3, 1e6])
def test_values_without_any_spread(value: float) -> None:
    p = signflips.max_t(np.full((6, 4), value), ALPHA).p
    assert np.isfinite(p).all()
    assert (p <= ALPHA).all() == (value > 0)
    equal = signflips.equivalent(np.full((6, 4), value), 0.05)
    assert (equal <= ALPHA).all() == (value < 0.05)


@pytest.mark.parametrize("blocks", [6, 10])
def test_equivalence_is_claimed_where_it_holds_and_not_at_its_edge(blocks: int) -> None:
    random = np.random.default_rng(8)
    margin, campaigns, wrong, right = math.log(1.05), 200, 0, []
    for _ in range(campaigns):
        drawn = 0.028 * random.standard_normal((blocks, 48))
        right.append((tests.correct(signflips.equivalent(drawn, margin)) <= ALPHA).mean())
        edge = tests.correct(signflips.equivalent(drawn + margin, margin))
        wrong += bool((edge <= ALPHA).any())
    assert np.mean(right) > 0.85
    assert wrong <= stats.binom.ppf(0.999, campaigns, ALPHA)
