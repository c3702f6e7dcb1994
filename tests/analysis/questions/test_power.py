"""What `plan` says of power is what `compare` does with such campaigns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.questions import power
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.testing import signflips, verdict
from tests.analysis.comparison.compared_campaigns import made

LEVEL = signflips.look_level(0.05, 1)


def test_one_cell_of_six_blocks_needs_six_signs() -> None:
    """Analytic: p is 2 / 2**6 if all six differences are positive, else above the level."""
    spread, shift = 0.07, 0.1
    exact = stats.norm.cdf(shift / spread) ** 6
    found = power.proven(6, 1, shift, np.array([spread]))
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / power.CELLS))


def test_it_is_the_share_of_verdicts_that_compare_would_give() -> None:
    blocks, cells, shift, spread = 8, 12, math.log(1.15), 0.07
    random = np.random.default_rng(3)
    called = []
    for _ in range(120):
        drawn = spread * random.standard_normal((blocks, cells))
        drawn[:, : cells // 2] += shift
        ratios = [intervals.from_logs((column,)) for column in drawn.T]
        together = signflips.max_t_over_looks(drawn, np.arange(blocks), (blocks,), 0.05)
        said = verdict.verdicts(ratios, 0.05, LEVEL, "max-t", True, together)
        called.append(np.mean([one.kind == "faster" for one in said[: cells // 2]]))
    found = power.proven(blocks, cells, shift, np.array([spread]))
    error = np.std(called) * math.sqrt(1 / len(called) + 1 / (power.CELLS // 6))
    assert found == pytest.approx(np.mean(called), abs=4 * error)


def test_more_blocks_and_larger_differences_prove_more_and_five_blocks_nothing() -> None:
    spread = np.array([0.07])
    shares = [power.proven(n, 16, 0.1, spread) for n in (5, 6, 10, 20)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert power.proven(10, 16, 0.2, spread) > power.proven(10, 16, 0.1, spread)
    assert power.proven(10, 16, 0.1, spread) == power.proven(10, 16, 0.1, spread)


@pytest.mark.parametrize(
    ("detect", "cv", "cells"), [(0.1, 0.05, 48), (0.2, 0.05, 1), (0.3, 0.1, 6)]
)
def test_the_blocks_that_it_takes_are_enough_and_fewer_are_not(
    detect: float, cv: float, cells: int
) -> None:
    words, spreads = power.of_cv(cv)
    found = power.power(detect, words, spreads, cells, 10)
    assert found.needed
    for chance, blocks in found.needed.items():
        assert blocks is not None
        assert power.proven(blocks, cells, math.log1p(detect), np.array(spreads)) >= chance
        fewer = int(0.9 * blocks) - 1
        assert power.proven(fewer, cells, math.log1p(detect), np.array(spreads)) < chance


def test_what_takes_more_blocks_than_a_plan_may_have_is_said() -> None:
    found = power.power(0.01, *power.of_cv(0.2), 4, 6)
    assert found.needed[0.95] is None
    assert "more than 500 blocks for 95 %" in found.says[0]
    assert "--tolerance 0.5%" in found.says[1]


def test_a_pilot_gives_its_own_spread() -> None:
    """`made` varies by `spread` per session and per run: together sqrt(2) times that."""
    words, spreads = power.of_pilot(made({"a": 2.0, "b": 1.0}, blocks=40, spread=0.05))
    assert len(spreads) == 4
    assert np.median(spreads) == pytest.approx(2 * 0.05, rel=0.2)
    assert "as in the pilot" in words
    with pytest.raises(ValueError, match="share two blocks"):
        power.of_pilot(made({"a": 2.0, "b": 1.0}, blocks=1))
