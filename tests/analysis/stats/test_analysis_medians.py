"""Intervals of medians: ranks, coverage by simulation, clustered values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from fsmatrix.analysis.stats.estimates import medians

FINITE = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    ("n", "k", "coverage"),
    [
        (1, 1, 0.0), (2, 1, 0.5), (3, 1, 0.75), (5, 1, 0.9375),
        (6, 1, 0.96875), (8, 1, 0.9921875), (9, 2, 0.9609375), (30, 10, 0.957226),
    ],
)  # fmt: skip
def test_ranks_are_those_of_the_tables(n: int, k: int, coverage: float) -> None:
    assert medians.ranks(n) == (k, pytest.approx(coverage, abs=1e-6))


@given(st.integers(6, 400))
def test_interval_is_the_narrowest_that_covers(n: int) -> None:
    k, coverage = medians.ranks(n)
    assert coverage >= 0.95
    assert coverage == pytest.approx(1 - 2 * stats.binom.cdf(k - 1, n, 0.5))
    assert k + 1 > n + 1 - (k + 1) or 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95


@pytest.mark.parametrize(("n", "level"), [(0, 0.95), (-1, 0.95), (5, 0.0), (5, 1.0)])
def test_ranks_refuses(n: int, level: float) -> None:
    with pytest.raises(ValueError, match=r"must lie|at least one"):
        medians.ranks(n, level)


@given(st.lists(FINITE, min_size=1, max_size=60))
def test_median_lies_inside_and_order_does_not_matter(values: list[float]) -> None:
    result = medians.of_independent(values)
    assert result.low <= result.median <= result.high
    assert min(values) <= result.low
    assert result.high <= max(values)
    assert medians.of_independent(values[::-1]) == result
    assert result.decides == (len(values) >= medians.SMALLEST)


@given(st.lists(FINITE, min_size=1, max_size=5))
def test_few_values_give_the_range_and_no_verdict(values: list[float]) -> None:
    result = medians.of_independent(values)
    assert (result.low, result.high) == (min(values), max(values))
    assert result.coverage == pytest.approx(1 - 2 * 0.5 ** len(values))
    assert result.kind == "range"
    assert not result.decides


@given(st.lists(st.tuples(FINITE, st.integers(0, 7)), min_size=1, max_size=60))
@example([(2.0, 0), (5e-324, 0)])  # whose ratio is no float
def test_each_attachment_counts_once(runs: list[tuple[float, int]]) -> None:
    values, owners = zip(*runs, strict=True)
    result = medians.of_runs(values, np.array(owners))
    assert result.runs == len(runs)
    assert result.independent == len(set(owners))
    doubled = medians.of_runs(values * 2, np.array(owners * 2))
    assert doubled.independent == result.independent
    if result.kind != "one session":
        assert (doubled.low, doubled.high) == (result.low, result.high)
        assert doubled.coverage == result.coverage


def test_one_attachment_is_within_one_session_only() -> None:
    result = medians.of_runs(np.arange(30.0), np.full(30, "a"))
    assert result.kind == "one session"
    assert not result.decides
    assert result.coverage == medians.LEVEL
    assert 9.0 < result.low < 10.0  # between the order statistics that cover 95.7 and 90.1 %
    assert 19.0 < result.high < 20.0
    assert "within one session only" in result.says


def test_values_that_are_missing_are_left_out() -> None:
    result = medians.of_runs([1.0, math.nan, 3.0, math.nan], np.array(["a", "a", "b", "c"]))
    assert (result.median, result.runs, result.independent) == (2.0, 2, 2)
    nothing = medians.of_runs([math.nan], np.array(["a"]))
    assert nothing.kind == "none"
    assert math.isnan(nothing.median)


def test_shapes_must_match() -> None:
    with pytest.raises(ValueError, match="must match"):
        medians.per_attachment([1.0, 2.0], np.array(["a"]))


def _covered(draws: np.ndarray, owners: np.ndarray) -> int:
    results = [medians.of_runs(draw, owners) for draw in draws]
    return sum(r.low <= 0 <= r.high for r in results)


def _plausible(hits: int, trials: int, coverage: float) -> bool:
    """Whether `hits` is no surprise (two-sided, 1e-4) for that coverage."""
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], trials, coverage)
    return bool(low <= hits <= high)


@pytest.mark.parametrize("n", [3, 5, 6, 9, 14])
@pytest.mark.parametrize("skewed", [False, True])
def test_stated_coverage_is_the_true_one(n: int, skewed: bool) -> None:
    rng = np.random.default_rng(20_261_120 + n)
    draws = rng.standard_normal((1500, n))
    if skewed:
        draws = np.exp(2 * draws) - 1  # median stays 0
    hits = _covered(draws, np.arange(n))
    assert _plausible(hits, 1500, medians.of_independent(draws[0]).coverage)


@pytest.mark.parametrize("n", range(6, 16))
def test_an_interval_of_a_median_is_no_wider_than_95_percent_need(n: int) -> None:
    """The whole range of 8 values covers 99.2 %: they had a wider interval than 6."""
    draws = np.random.default_rng(n).standard_normal((4000, n))
    found = [medians.of_independent(draw) for draw in draws]
    assert {one.coverage for one in found} == {medians.LEVEL}
    hits = sum(one.low <= 0 <= one.high for one in found)
    assert 0.94 * 4000 <= hits <= 0.96 * 4000


def test_more_values_never_have_a_wider_interval() -> None:
    draws = np.random.default_rng(5).standard_normal((2000, 16))
    widths = [
        np.mean([m.high - m.low for m in map(medians.of_independent, draws[:, :n])])
        for n in range(6, 17)
    ]
    assert widths == sorted(widths, reverse=True)


def test_coverage_holds_with_sessions_that_differ() -> None:
    """Session-to-session spread equal to run-to-run spread; 5 runs in each of 8 attachments."""
    rng = np.random.default_rng(7)
    trials, attachments, inside = 1500, 8, 5
    sessions = rng.standard_normal((trials, attachments, 1))
    draws = (sessions + rng.standard_normal((trials, attachments, inside))).reshape(trials, -1)
    owners = np.repeat(np.arange(attachments), inside)
    hits = _covered(draws, owners)
    assert _plausible(hits, trials, medians.LEVEL)
    naive = sum(r.low <= 0 <= r.high for r in (medians.of_independent(draw) for draw in draws))
    assert naive / trials < 0.90  # what treating all runs as independent would give


def test_thirty_runs_in_one_attachment_cover_a_third() -> None:
    """Why one attachment is marked: the interval over its runs is far from covering."""
    rng = np.random.default_rng(8)
    trials = 1500
    draws = rng.standard_normal((trials, 1)) + rng.standard_normal((trials, 30))
    hits = _covered(draws, np.zeros(30))
    assert 0.25 < hits / trials < 0.45


def test_many_cells_at_once_are_as_each_alone() -> None:
    """Cells of no, one, few and many attachments; runs without a value."""
    random = np.random.default_rng(5)
    sizes = {0: (3,) * 8, 1: (5,), 2: (2, 1, 4), 4: (1,) * 40}  # cell -> runs of its attachments
    cells, groups, values = [], [], []
    for cell, runs in sizes.items():
        for count in runs:
            groups += [len(cells)] * count
            cells.append(cell)
            values += random.lognormal(0, 1, count).tolist()
    array = np.array(values)
    array[random.random(array.size) < 0.2] = math.nan
    shuffled = random.permutation(array.size)
    owners, of = np.array(groups), np.array(cells)
    many = medians.of_cells(array[shuffled], owners[shuffled], of, 5)
    for cell, found in enumerate(many):
        mine = of[owners] == cell
        assert str(found) == str(medians.of_runs(array[mine], owners[mine]))  # NaN are equal
    assert [found.kind for found in many] == [
        "interval",
        "one session",
        "range",
        "none",
        "interval",
    ]
