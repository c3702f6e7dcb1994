"""Quantile regression from histograms: against statsmodels, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import quantile_regression as regression
from fsmatrix.analysis.stats.testing.quantile_regression import (
    Contrasts,
    complete,
    contrasts,
    slope,
)
from fsmatrix.results import histogram

Q = 0.99


def log_quantile(counts: histogram.Integers) -> float:
    return math.log(histogram.percentile(counts, Q))


@pytest.mark.parametrize("levels", [(1, 2), (1, 2, 4, 8)])
def test_a_block_s_slope_is_that_of_statsmodels_on_the_operations(levels: tuple[int, ...]) -> None:
    """Two levels: the same number but for the bins; four: another weighting of the same law."""
    random = np.random.default_rng(3)
    operations = 40_000
    x = np.log2(levels)
    nanoseconds = [1e6 * np.exp(0.6 * at + 0.5 * random.standard_normal(operations)) for at in x]
    counts = [
        np.bincount(histogram.bin_of(one.astype(np.int64)), minlength=histogram.BINS)
        for one in nanoseconds
    ]
    logs = np.array([[log_quantile(one) for one in counts]])
    ours = contrasts(logs, [(range(len(x)), regression.weights(x))])
    design = sm.add_constant(np.repeat(x, operations))
    theirs = sm.QuantReg(np.log(np.concatenate(nanoseconds)), design).fit(q=Q).params[1]
    assert abs(ours.values[0, 0] - theirs) < ours.hidden[0] + 0.01 * (len(levels) > 2)
    assert ours.values[0, 0] == pytest.approx(0.6, abs=0.03)


def campaign(
    random: np.random.Generator, blocks: int, kind: str, operations: tuple[int, ...]
) -> Floats:
    """Log p99 [block, level] of levels 1, 2, 4, each twice as slow as the one before."""
    logs = np.empty((blocks, len(operations)))
    for block in range(blocks):
        session = 0.2 * random.standard_normal()
        for level, many in enumerate(operations):
            if kind == "attachments apart":  # as of a target: a session of its own for each level
                session = 0.2 * random.standard_normal()
            slow = 0.01 * math.exp(0.7 * random.standard_normal()) if kind == "slow share" else 0.0
            shift = session + 0.05 * random.standard_normal() + level * math.log(2)
            logs[block, level] = log_quantile(simulate.latencies(random, shift, many, slow))
    return logs


@pytest.mark.parametrize("kind", ["one attachment", "attachments apart", "slow share"])
@pytest.mark.parametrize("blocks", [6, 10])
def test_the_interval_of_growth_per_doubling_covers_the_truth(kind: str, blocks: int) -> None:
    random = np.random.default_rng(blocks)
    trials, held = 200, 0
    series = [(range(3), regression.weights([0, 1, 2]))]
    for _ in range(trials):
        found = slope(contrasts(campaign(random, blocks, kind, (1000, 2000, 4000)), series))
        held += found.low <= 2 <= found.high
    assert held >= stats.binom.ppf(1e-3, trials, 0.95)


def test_steady_values_within_one_bin_have_an_interval_as_wide_as_bins() -> None:
    """All blocks fall into the same two bins, whose middles are 1.6 % apart; the truth is 0.2 %."""
    edge = int(histogram.upper_edges()[20 * histogram.PER_GROUP])
    logs = np.array(
        [
            [
                math.log(
                    histogram.percentile(
                        np.bincount(
                            histogram.bin_of([int(edge * times)] * 1000), minlength=histogram.BINS
                        ),
                        Q,
                    )
                )
                for times in (0.999, 1.001)
            ]
        ]
        * 8
    )
    found = slope(contrasts(logs, [((0, 1), np.array([-1.0, 1.0]))]))
    assert found.ratio > 1.015
    assert found.low <= 1.001 / 0.999 <= found.high
    assert not found.proven


def test_fewer_than_six_blocks_have_a_ratio_and_no_interval() -> None:
    random = np.random.default_rng(1)
    values = math.log(3) + 0.01 * random.standard_normal((6, 1))
    few, enough = (slope(Contrasts(values[:n], np.zeros(1))) for n in (5, 6))
    assert few.ratio == pytest.approx(3, rel=0.05)
    assert math.isnan(few.low)
    assert math.isnan(few.high)
    assert not few.proven
    assert enough.proven


def test_blocks_and_cells_that_are_left_out() -> None:
    known = np.ones((8, 5), dtype=bool)
    assert [places.size for places in complete(known)] == [8, 5]
    known[3, 1] = known[6, 4] = False  # six blocks have all: two are left out
    assert complete(known)[0].tolist() == [0, 1, 2, 4, 5, 7]
    known[7, 2] = False  # five have: one cell is left out
    blocks, cells = complete(known)
    assert (blocks.size, cells.size) == (6, 4)
    other = np.zeros((14, 10), dtype=bool)  # two campaigns: no block has cells of both
    other[:6, :4] = other[6:, 5:] = True
    blocks, cells = complete(other)
    assert (blocks.tolist(), cells.tolist()) == (list(range(6, 14)), list(range(5, 10)))
    assert [places.size for places in complete(np.eye(7, dtype=bool))] == [0, 0]


def test_series_unlike_the_others() -> None:
    """Alike: any is named in 5 % of campaigns; one unlike: that one is."""
    random = np.random.default_rng(5)
    trials, wrong, right = 200, 0, 0
    for _ in range(trials):
        values = 0.7 + 0.1 * random.standard_normal((8, 1)) + 0.05 * random.standard_normal((8, 6))
        wrong += bool(regression.unlike(Contrasts(values, np.zeros(6))))
        values[:, 2] += 0.6
        right += 2 in regression.unlike(Contrasts(values, np.zeros(6)))
    assert wrong <= stats.binom.ppf(1 - 1e-3, trials, 0.05)
    assert right == trials
    steady = np.tile([0.7, 0.7, 0.71], (8, 1))
    assert regression.unlike(Contrasts(steady, np.full(3, regression.HALF_BIN))) == []
    assert regression.unlike(Contrasts(values[:5], np.zeros(6))) == []
