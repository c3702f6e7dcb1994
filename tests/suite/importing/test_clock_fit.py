"""How far a node's clock is told to be from the runs', on series of which it is known."""

from __future__ import annotations

import numpy as np
import pytest

from fsmatrix.results.record import Floats
from fsmatrix.suite.importing.clockfit import Burst, fit

BEGIN = 1.8e9


def bursts(random: np.random.Generator, count: int) -> list[Burst]:
    """Runs one after the other, each at its own rate."""
    found, now = [], BEGIN
    for _ in range(count):
        begin = now + random.uniform(2, 8)
        now = begin + random.uniform(3, 20)
        found.append((begin, now, (now - begin) * random.uniform(2e7, 2e8)))
    return found


def moved(runs: list[Burst], times: Floats) -> Floats:
    """Bytes/s between times on the runs' clock."""
    until = np.zeros(times.size)
    for begin, end, size in runs:
        until += size * np.clip((times - begin) / (end - begin), 0, 1)
    return np.diff(until) / np.diff(times)


@pytest.mark.parametrize("ahead", [0.0, 0.4, -3.3, 3600.0, -7200.7])
def test_the_bound_holds_the_offset_in_19_of_20_cases(ahead: float) -> None:
    held = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        runs = bursts(random, int(random.integers(4, 12)))
        times = np.arange(BEGIN - 60, runs[-1][1] + 60) + random.uniform()  # of the runs' clock
        rate = moved(runs, times) * (1 + 0.1 * random.standard_normal(times.size - 1))
        rate += 2e6 * np.abs(random.standard_normal(rate.size))
        told = np.floor(times + ahead)  # of the node's clock: whole seconds, as tools write them
        found = fit(runs, told[:-1], told[1:], rate, 1.0)
        assert found is not None
        assert found.bound < 5
        held.append(abs(found.offset - ahead) <= found.bound)
        assert found.uncertainty(0.0) >= abs(ahead) - found.bound
    assert sum(held) >= 38


def test_traffic_without_relation_bounds_nothing() -> None:
    told = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        runs = bursts(random, 6)
        times = np.arange(BEGIN - 100, runs[-1][1] + 100)
        rate = 1e8 * random.lognormal(size=times.size - 1)
        if seed % 2:  # slow changes fit more easily
            rate = np.convolve(rate, np.ones(8) / 8, "same")
        told += fit(runs, times[:-1], times[1:], rate, 1.0) is not None
    assert told <= 3


def test_runs_that_are_all_alike_fit_at_several_offsets() -> None:
    runs = [(BEGIN + 20 * i, BEGIN + 20 * i + 10, 1e9) for i in range(30)]
    times = np.arange(BEGIN + 100, BEGIN + 500)
    rate = moved(runs, times) * (1 + 0.1 * np.random.default_rng(1).standard_normal(399))
    found = fit(runs, times[:-1], times[1:], rate, 1.0)
    assert found is None or found.bound > 19


def test_what_hardly_moved_is_no_traffic_of_the_clients() -> None:
    runs = bursts(np.random.default_rng(3), 8)
    times = np.arange(BEGIN, runs[-1][1] + 10)
    assert fit(runs, times[:-1], times[1:], moved(runs, times) * 0.4, 1.0)
    assert fit(runs, times[:-1], times[1:], moved(runs, times) * 1e-6, 1.0) is None
    assert fit([], times[:-1], times[1:], moved(runs, times), 1.0) is None
    assert fit(runs, times[:-1], times[1:], np.full(times.size - 1, np.nan), 1.0) is None
    assert fit(runs, times[:-1], times[1:], np.zeros(times.size - 1), 1.0) is None
