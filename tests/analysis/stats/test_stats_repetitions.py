"""How many repetitions: against the truth of simulated data."""

from __future__ import annotations

import numpy as np
import pytest

from fsmatrix.analysis.stats import repetitions
from fsmatrix.analysis.stats.estimates import medians


def test_smallest_is_that_of_the_medians() -> None:
    assert repetitions.smallest(0.95) == medians.SMALLEST
    for level in (0.9, 0.95, 0.99, 0.999):
        n = repetitions.smallest(level)
        assert medians.ranks(n, level)[1] >= level > medians.ranks(n - 1, level)[1]


def test_planned_number_gives_the_wanted_width() -> None:
    """With as many attachments as planned, the typical interval has the width asked for."""
    random = np.random.default_rng(1)
    target, numbers = 0.03, []
    for _ in range(40):
        values = np.exp(0.05 * random.standard_normal(20))
        numbers.append(repetitions.for_width(values, np.arange(20), target).needed or 10_000)
    n = int(np.median(numbers))
    widths = []
    for _ in range(300):
        found = medians.of_independent(np.exp(0.05 * random.standard_normal(n)))
        widths.append((found.high - found.low) / 2 / found.median)
    assert np.mean(widths) == pytest.approx(target, rel=0.25)


def test_range_of_the_number_holds_the_truth() -> None:
    random = np.random.default_rng(2)
    pool = random.standard_normal(20_000)
    widths = repetitions.half_widths((pool,), 0.95)
    truth = repetitions.sizes(0.95)[int(np.argmax(widths <= 0.5))]
    found = [repetitions.for_parts((random.standard_normal(15),), 0.5) for _ in range(100)]
    held = sum((f.low or 10_000) <= truth <= (f.high or 10_000) for f in found)
    assert held >= 65  # nominal: 80 % of bootstrap samples


def test_two_targets_need_twice_the_variance() -> None:
    random = np.random.default_rng(3)
    a = random.standard_normal(50)
    one = repetitions.half_widths((a,), 0.95)
    assert repetitions.half_widths((a, a), 0.95) == pytest.approx(np.sqrt(2) * one)


def test_what_cannot_be_said() -> None:
    few = repetitions.for_width([1.0, 2.0, 3.0], [0, 1, 2], 0.1)
    assert not few.known
    assert "5 attachments" in few.says
    wild = repetitions.for_parts((np.random.default_rng(4).standard_normal(10),), 1e-6)
    assert wild.needed is None
    assert wild.more is None
    assert "more than 1000" in wild.says
    calm = repetitions.for_width(np.ones(9), np.arange(9), 0.01)
    assert (calm.needed, calm.more) == (6, 0)
    assert "enough" in calm.says
    with pytest.raises(ValueError, match="positive"):
        repetitions.for_width([1.0], [0], 0.0)
