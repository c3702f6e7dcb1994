"""Cells that borrow strength from each other: coverage, width, and what cannot be pooled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import pooled

CAMPAIGNS = 60


def campaign(
    random: np.random.Generator, n: int, truth: Floats, shape: str, uneven: float
) -> Floats:
    """Blocks' log ratios [n, cell] of two targets; what a block does to all cells is in them."""
    size = (n, truth.size)
    runs = simulate.SHAPES[shape](random, size) - simulate.SHAPES[shape](random, size)
    spread = 0.05 * np.exp(uneven * random.standard_normal(truth.size))
    return np.asarray(truth + 0.05 * random.standard_normal((n, 1)) + spread * runs)


def bounds(found: list[pooled.Pooled]) -> tuple[Floats, Floats]:
    return np.log([one.low for one in found]), np.log([one.high for one in found])


@pytest.mark.parametrize("shape", ["log-normal", "skewed logs", "heavy-tailed (t3)"])
@pytest.mark.parametrize("uneven", [0.0, 1.0])
@pytest.mark.parametrize(
    ("cells", "n", "between"),
    [
        (4, 6, 0.5),
        (16, 6, 0.0),
        (16, 10, 1.0),
        (48, 6, 0.5),
        (48, 8, 4.0),
    ],
)
def test_intervals_cover_95_percent_of_the_cells(
    cells: int, n: int, between: float, uneven: float, shape: str
) -> None:
    random = np.random.default_rng(cells + n)
    held = []
    for _ in range(CAMPAIGNS):
        truth = 0.05 * between * random.standard_normal(cells)
        found = pooled.pooled(campaign(random, n, truth, shape, uneven))
        low, high = bounds([one for one in found if one])
        kept = truth[[one is not None for one in found]]
        held.append(np.mean((low <= kept) & (kept <= high)))
    assert np.mean(held) + 3 * np.std(held) / np.sqrt(CAMPAIGNS) >= 0.95


def test_cells_that_are_alike_have_narrower_intervals_than_alone() -> None:
    random = np.random.default_rng(2)
    shares = []
    for _ in range(CAMPAIGNS):
        d = campaign(random, 8, np.full(16, 0.1), "log-normal", 0.0)
        low, high = bounds([one for one in pooled.pooled(d) if one])
        alone = [intervals.from_logs((column,)) for column in d.T]
        shares.append(np.median((high - low) / np.log([r.high / r.low for r in alone])))
    assert np.median(shares) < 0.8


def test_cells_that_differ_stay_where_they_are() -> None:
    truth = np.linspace(-3, 3, 12)
    d = campaign(np.random.default_rng(3), 8, truth, "log-normal", 0.0)
    for own, one in zip(np.exp(d.mean(axis=0)), pooled.pooled(d), strict=True):
        assert one is not None
        assert one.own > 0.99
        assert one.ratio == pytest.approx(own, rel=0.02)


def test_equal_cells_share_one_value_and_what_blocks_do_stays() -> None:
    """48 cells say nothing more of an attachment that is fast as a whole than one does."""
    random = np.random.default_rng(4)
    hits = 0
    for _ in range(CAMPAIGNS):
        d = 0.2 * random.standard_normal((6, 1)) + 0.001 * random.standard_normal((6, 48))
        (one, *_) = pooled.pooled(d)
        assert one is not None
        hits += one.low <= 1 <= one.high
    assert hits >= stats.binom.ppf(1e-3, CAMPAIGNS, 0.95)


@pytest.mark.parametrize("cells", [16, 48])
def test_a_cell_unlike_all_others_is_not_drawn_to_them(cells: int) -> None:
    """Drawn, its interval covered 60 % among 48 cells."""
    random = np.random.default_rng(6)
    left, others = 0, []
    for _ in range(CAMPAIGNS):
        truth = 0.5 * (np.arange(cells) == 0)
        first, *rest = pooled.pooled(campaign(random, 8, truth, "log-normal", 0.0))
        left += first is None
        low, high = bounds([one for one in rest if one])
        assert len(low) >= 0.9 * (cells - 1)
        others.append(np.mean((low <= 0) & (high >= 0)))
    assert left >= 0.95 * CAMPAIGNS
    assert np.mean(others) >= 0.94


def test_what_cannot_be_pooled() -> None:
    random = np.random.default_rng(5)
    d = random.standard_normal((8, 5))
    assert all(one is None for one in pooled.pooled(d[:, :3]))
    assert all(one is None for one in pooled.pooled(d[:2]))
    d[2:, 1] = np.nan
    found = pooled.pooled(d)
    assert [one is None for one in found] == [False, True, False, False, False]
    same = pooled.pooled(np.full((6, 5), 0.1))
    assert [one.ratio for one in same if one] == pytest.approx([np.exp(0.1)] * 5)
