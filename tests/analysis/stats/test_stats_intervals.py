"""Intervals of ratios and geometric means: their coverage on simulated campaigns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates import intervals, medians
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.estimates.runs import Runs, paired, runs

TRIALS = 600


def at_least(hits: int, trials: int, nominal: float = 0.95) -> bool:
    """Whether so few hits are no surprise (one-sided, 1e-4) for a coverage of `nominal`."""
    return bool(hits >= stats.binom.ppf(1e-4, trials, nominal))


def covered(found: list[intervals.Ratio], truth: float = 1.0) -> int:
    return sum(r.low <= truth <= r.high for r in found)


@pytest.mark.parametrize("shape", simulate.SHAPES)
@pytest.mark.parametrize("n", [6, 7, 12, 30])
def test_coverage_with_sessions_that_differ(shape: str, n: int) -> None:
    """Session-to-session spread equal to run-to-run spread, 5 runs in an attachment."""
    random = np.random.default_rng(100 + n)
    a, b = (np.median(simulate.logs(random, shape, (TRIALS, n, 5)), axis=2) for _ in "ab")
    independent = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    assert at_least(covered(independent), TRIALS)
    pairs = [intervals.from_logs((d,)) for d in a - b]
    assert at_least(covered(pairs), TRIALS)
    assert {r.kind for r in independent + pairs} == {"interval"}
    assert covered(pairs) <= stats.binom.ppf(1 - 1e-4, TRIALS, pairs[0].coverage)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (7, 7), (6, 20), (20, 6), (30, 30)])
@pytest.mark.parametrize(
    ("first", "second", "scale"),
    [("log-normal", "log-normal", 0.01), ("bimodal 30:70", "log-normal", 1.0),
     ("skewed logs", "skewed logs", -1.0)],
)  # fmt: skip
def test_coverage_where_spreads_and_shapes_differ(
    first: str, second: str, scale: float, n: int, m: int
) -> None:
    random = np.random.default_rng(n + 100 * m)
    a = simulate.SHAPES[first](random, (TRIALS, n))
    b = scale * simulate.SHAPES[second](random, (TRIALS, m))
    found = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    assert at_least(covered(found), TRIALS)


def test_drift_that_blocks_share_is_taken_out_by_pairing() -> None:
    """Attachments that depend on the one before (correlation 0.8), the same for both targets."""
    random = np.random.default_rng(11)
    trials, n = TRIALS, 12
    drift = simulate.SHAPES["autocorrelated"](random, (trials, n))
    a, b = (3 * drift + random.standard_normal((trials, n)) for _ in "ab")
    pairs = [intervals.from_logs((d,)) for d in a - b]
    assert at_least(covered(pairs), trials)
    apart = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    assert at_least(covered(apart), trials)  # wide, but not wrong
    width = [np.median([np.log(r.high / r.low) for r in found]) for found in (pairs, apart)]
    assert width[0] < 0.6 * width[1]


def test_runs_taken_as_independent_would_not_cover() -> None:
    """The reason to reduce to attachments first."""
    random = np.random.default_rng(3)
    a, b = (simulate.logs(random, "log-normal", (300, 8, 20)).reshape(300, -1) for _ in "ab")
    naive = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    assert covered(naive) < 0.8 * 300


def test_p_holds_at_all_levels_and_the_interval_leaves_out_what_p_does() -> None:
    random = np.random.default_rng(4)
    n, trials = 14, 3000
    a, b = random.standard_normal((2, trials, n))
    found = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    for r in found[:200]:
        assert r.p > 0.05 or r.low > 1 or r.high < 1
    for alpha in (0.1, 0.05, 0.01):
        assert at_least(sum(r.p > alpha for r in found), trials, 1 - alpha)
        edge = [intervals.from_logs((x + np.log(1.5), y)) for x, y in zip(a, b, strict=True)]
        assert at_least(sum(r.p_equal(0.5) > alpha for r in edge), trials, 1 - alpha)


@pytest.mark.parametrize("paired", [True, False])
def test_eight_blocks_decide_no_less_than_six(paired: bool) -> None:
    """By p too: of order statistics alone, 8 values must all lie on one side, as 6 must."""
    random = np.random.default_rng(12)
    called = []
    for n in (6, 7, 8, 9, 10):
        a, b = random.standard_normal((2, 2000, n))
        parts = [(x - y + 1.5,) if paired else (x + 1.5, y) for x, y in zip(a, b, strict=True)]
        called.append(np.mean([intervals.from_logs(part).p <= 0.05 for part in parts]))
    assert all(later > earlier + 0.01 for earlier, later in itertools.pairwise(called))


def test_p_is_the_level_whose_interval_ends_at_the_value() -> None:
    values = np.random.default_rng(13).standard_normal(11)
    curve = intervals.one_sample(values)
    for level in (0.6, 0.9, 0.95, 0.99):
        low, high, _ = medians.interpolated(np.sort(values), level)
        for end in (low, high):
            assert curve.p(end) == pytest.approx(1 - level, rel=0.01)
    assert curve.p(float(values.min()) - 1) == 2 / 2**11


def campaign(
    random: np.random.Generator, n: int, shift: float, block: Floats, inside: int = 3
) -> Runs:
    level = shift + block + 0.02 * random.standard_normal(n)
    logs = level[:, np.newaxis] + 0.02 * random.standard_normal((n, inside))
    labels = np.repeat(np.arange(n), inside)
    return runs(np.exp(logs).ravel(), labels, labels)


def test_pairing_by_block_takes_out_what_blocks_share() -> None:
    random = np.random.default_rng(5)
    block = random.standard_normal(12)
    a, b = campaign(random, 12, np.log(1.2), block), campaign(random, 12, 0.0, block)
    together, apart = intervals.ratio(a, b), intervals.ratio(a, b, pairing="none")
    assert (together.design, apart.design) == ("paired by block", "independent")
    assert together.low < 1.2 < together.high
    assert together.low > 1.1
    assert apart.low < 1 < apart.high
    assert "12 blocks" in together.says


def test_too_few_blocks_in_common_are_not_paired() -> None:
    random = np.random.default_rng(6)
    a, b = (campaign(random, 8, 0.0, np.zeros(8)) for _ in "ab")
    assert b.blocks is not None
    shifted = Runs(b.values, b.attachments, b.blocks + 3)  # 5 blocks in common
    assert intervals.ratio(a, shifted).design == "independent"
    assert intervals.ratio(a, shifted, pairing="blocks").units == (5,)
    assert intervals.ratio(a, shifted, pairing="blocks").kind == "range"


def test_blocks_of_one_attachment_count_once() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    blocks = np.arange(4)
    a = runs(2 * values, np.array(["x", "x", "y", "z"]), blocks)
    b = runs(values, np.array(["p", "q", "r", "s"]), blocks)
    assert paired(a, b).size == 3  # blocks 0 and 1 share the attachment x
    assert paired(a, runs(values, np.zeros(4), blocks)).size == 1


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_attachments_give_a_range_and_no_verdict(n: int) -> None:
    random = np.random.default_rng(n)
    found = intervals.from_logs((random.standard_normal(n), random.standard_normal(n)))
    assert (found.kind, found.decides) == ("range", False)
    assert found.coverage == pytest.approx(1 - 2 * 0.5**n)


def test_one_attachment_has_no_interval() -> None:
    one = runs(np.arange(1.0, 31.0), np.zeros(30))
    found = intervals.ratio(one, one)
    assert found.kind == "one session"
    assert np.isnan([found.low, found.high, found.p]).all()
    assert found.ratio == pytest.approx(1.0)
    empty = runs(np.array([np.nan]), np.array(["a"]))
    assert intervals.ratio(one, empty).kind == "none"
    assert intervals.ratio(empty, one, pairing="blocks").kind == "none"


def test_constant_values_have_an_interval_of_no_width() -> None:
    same = intervals.from_logs((np.zeros(8), np.zeros(8)))
    assert (same.low, same.high, same.p) == (1.0, 1.0, 1.0)
    assert same.p_equal(0.01) == pytest.approx(0.5**8)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf])
def test_values_without_a_logarithm_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        runs(np.array([1.0, bad]), np.array([0, 1]))


def test_ratio_and_inverse_agree() -> None:
    random = np.random.default_rng(7)
    a, b = (campaign(random, 9, s, np.zeros(9)) for s in (0.1, 0.0))
    for pairing in ("auto", "none"):
        forward, back = (intervals.ratio(*pair, pairing=pairing) for pair in ((a, b), (b, a)))
        assert (back.low, back.high) == pytest.approx((1 / forward.high, 1 / forward.low))
        assert back.p == forward.p
