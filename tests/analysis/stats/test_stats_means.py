"""The geometric mean over cells: it covers, and it says no more than the ratios that are shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.comparison.family import Question, Subject, answers, together
from fsmatrix.analysis.stats.estimates.intervals import from_logs, geometric_mean
from fsmatrix.analysis.stats.estimates.medians import Floats

ALPHA, TRIALS = 0.05, 300
CELLS = 24
ASKED = [
    Subject("", tuple(range(CELLS))),
    Subject("read", tuple(range(CELLS // 2))),
    Subject("write", tuple(range(CELLS // 2, CELLS))),
]


def slow_runs(random: np.random.Generator, blocks: int, share: float = 0.1) -> Floats:
    """Log ratios of two targets alike, but one has some runs at a third, [block, cell]."""
    drawn: Floats = 0.05 * random.standard_normal((blocks, CELLS))
    return np.where(random.random(drawn.shape) < share, drawn - math.log(3), drawn)


def asked(differences: Floats) -> list[Question]:
    _, p = together(differences, np.arange(len(differences)), ASKED, (), ALPHA)
    return answers(ASKED, differences, p, 0.05, ALPHA, 1 - ALPHA, True)


def test_one_target_s_slow_runs_prove_nothing_of_the_ratios_shown() -> None:
    """The blocks' means fall by 10 %, the ratios shown by 0.7 %."""
    random = np.random.default_rng(1)
    campaigns, of_means, claimed = 60, 0, 0
    for _ in range(campaigns):
        drawn = slow_runs(random, 10)
        _, p = together(drawn, np.arange(10), ASKED, (), ALPHA)
        of_means += p[0] <= ALPHA
        claimed += any(one.kind in ("faster", "slower") for one in asked(drawn))
    assert of_means > 0.9 * campaigns
    assert claimed <= 0.15 * campaigns


def test_equivalence_of_groups_has_its_share_of_all_cells_and_questions() -> None:
    random, between = np.random.default_rng(4), 0
    for _ in range(40):
        for one in asked(0.03 + 0.1 * random.standard_normal((8, CELLS))):
            p = one.ratio.p_equal(0.05)
            between += len(ASKED) * p <= ALPHA < (CELLS + len(ASKED)) * p
            if one.kind == "no difference":
                assert (CELLS + len(ASKED)) * p <= ALPHA
    assert between > 10


def test_the_mean_is_that_of_the_ratios_shown() -> None:
    drawn = slow_runs(np.random.default_rng(2), 9)
    shown = np.exp(np.median(drawn, axis=0))
    assert asked(drawn)[0].ratio.ratio == pytest.approx(stats.gmean(shown))


def test_a_difference_of_every_cell_is_still_found_beside_slow_runs() -> None:
    random = np.random.default_rng(3)
    found = [asked(slow_runs(random, 10) + math.log(1.3))[0].kind for _ in range(40)]
    assert found.count("faster") >= 36


@pytest.mark.parametrize("is_paired", [False, True])
@pytest.mark.parametrize("rows", [6, 12])
def test_it_covers_although_cells_share_attachments(is_paired: bool, rows: int) -> None:
    random = np.random.default_rng(9)
    truth = np.array([0.0, 0.5, 1.0, -0.3])
    hits = 0
    for _ in range(TRIALS):
        shared = random.standard_normal((2, rows, 1))
        a, b = shared + 0.3 * random.standard_normal((2, rows, 4))
        a = a + truth
        found = geometric_mean((a - b,) if is_paired else (a, b)).mean
        hits += found.low <= math.exp(truth.mean()) <= found.high
    assert hits >= stats.binom.ppf(0.001, TRIALS, 1 - ALPHA)


def test_what_lacks_a_cell_is_left_out() -> None:
    logs = np.full((8, 3), math.log(2))
    logs[0, 1] = np.nan
    found = geometric_mean((logs,))
    assert (found.mean.ratio, found.cells, found.left_out) == (pytest.approx(2.0), 3, 1)
    assert found.mean.units == (7,)


def test_equal_values_beside_others_are_not_taken_for_certain() -> None:
    """Four of six blocks measured the same to the last digit; the other two say how much varies."""
    logs = np.zeros((6, 2))
    logs[4:] = [[0.3, 0.1], [-0.2, 0.4]]
    found = geometric_mean((logs,)).mean
    assert found.low < 1 < found.high
    assert found.p > ALPHA


def test_fewer_than_six_blocks_decide_nothing() -> None:
    logs = np.random.default_rng(4).normal(1.0, 0.01, (5, 4))
    found = geometric_mean((logs,)).mean
    assert (found.kind, found.decides) == ("range", False)
    assert found.coverage == pytest.approx(1 - 2 / 2**5)


def test_one_cell_has_the_interval_that_it_is_shown_with() -> None:
    logs = np.random.default_rng(5).normal(0.1, 0.05, (8, 1))
    assert geometric_mean((logs,)).mean == from_logs((logs[:, 0],))
