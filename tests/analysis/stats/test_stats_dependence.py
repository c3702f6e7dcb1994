"""Blocks that resemble the one before: found over many cells of few blocks, rarely made up."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.stats.estimates.dependence import dependence, dependent_words
from fsmatrix.analysis.stats.estimates.medians import Floats

TRIALS = 200


def blocks(random: np.random.Generator, n: int, cells: int, correlation: float) -> Floats:
    """Values [block, cell], each with that correlation to the block before."""
    steps = random.standard_normal((n, cells))
    found = steps.copy()
    for i in range(1, n):
        found[i] = correlation * found[i - 1] + np.sqrt(1 - correlation**2) * steps[i]
    return found


@pytest.mark.parametrize(("n", "cells", "least"), [(6, 16, 0.9), (6, 48, 0.97), (12, 8, 0.97)])
def test_six_blocks_of_many_cells_show_it(n: int, cells: int, least: float) -> None:
    random = np.random.default_rng(n)
    found = [dependence(blocks(random, n, cells, 0.8)) for _ in range(TRIALS)]
    assert np.mean([p <= 0.05 for _, p in found]) >= least
    assert np.median([lag for lag, _ in found]) > 0


@pytest.mark.parametrize("n", [5, 6, 8, 20])
@pytest.mark.parametrize("shared", [0.0, 3.0])
def test_independent_blocks_are_rarely_called_so(n: int, shared: float) -> None:
    """Also where a block does the same to all its cells."""
    random = np.random.default_rng(n)
    for limit in (0.05, 0.01):
        called = 0
        for _ in range(TRIALS):
            values = blocks(random, n, 16, 0.0) + shared * random.standard_normal((n, 1))
            called += dependence(values)[1] <= limit
        assert called <= stats.binom.ppf(1 - 1e-4, TRIALS, limit)


def test_it_is_said_in_words_and_only_then() -> None:
    random = np.random.default_rng(1)
    said = dependent_words(blocks(random, 8, 48, 0.8))
    assert said.startswith("Blocks resemble the one before (correlation 0.")
    assert "intervals are too narrow" in said
    assert dependent_words(blocks(random, 8, 48, 0.0)) == ""


def test_what_cannot_be_tested() -> None:
    few = np.random.default_rng(2).standard_normal((4, 10))
    assert np.isnan(dependence(few)).all()
    assert np.isnan(dependence(np.ones((8, 3)))).all()
    assert np.isnan(dependence(np.full((8, 3), np.nan))).all()
    assert dependent_words(few) == ""
