"""Variability of one cell: each part against a known truth, and its false alarms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.stats.estimates import variability

# dips by diptest 0.12.0 (PyPI, GPL; not a dependency), dipstat(..., allow_zero=False)
DIPS = {
    (0.0, 1.0, 2.0, 3.0): 0.125,
    (1.0, 1.2, 1.3, 5.0, 5.1, 5.3, 5.4): 0.1982142857142857,
    (1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 7.0): 0.16666666666666666,
    tuple(float(i * i % 37) for i in range(1, 30)): 0.09090909090909091,
}


@pytest.mark.parametrize("values", DIPS, ids=len)
def test_dip_is_that_of_diptest(values: tuple[float, ...]) -> None:
    assert variability.dip(values) == pytest.approx(DIPS[values], abs=1e-12)
    assert variability.dip([3 - 2 * v for v in values]) == pytest.approx(DIPS[values], abs=1e-12)


@pytest.mark.parametrize("shape", ["normal", "uniform", "t3", "log-normal"])
def test_one_mode_raises_no_alarm(shape: str) -> None:
    random = np.random.default_rng(1)
    draws = {
        "normal": random.standard_normal((300, 20)),
        "uniform": random.random((300, 20)),
        "t3": random.standard_t(3, (300, 20)),
        "log-normal": random.lognormal(size=(300, 20)),
    }[shape]
    alarms = sum(variability.p_of_one_mode(draw) <= 0.05 for draw in draws)
    assert alarms <= stats.binom.ppf(1 - 1e-4, 300, 0.05)


def test_two_modes_are_found() -> None:
    random = np.random.default_rng(2)
    found = [
        variability.p_of_one_mode(random.standard_normal(30) + 6 * (np.arange(30) % 2))
        for _ in range(60)
    ]
    assert np.mean(np.array(found) <= 0.05) > 0.9
    assert np.isnan(variability.p_of_one_mode(np.arange(7.0)))
    large = random.standard_normal(1000) + 5 * (np.arange(1000) % 2)
    assert variability.p_of_one_mode(large) < 0.01
    assert variability.p_of_one_mode(random.standard_normal(1000)) > 0.05


def cell(random: np.random.Generator, attachments: int, inside: int, session: float) -> np.ndarray:
    level = session * random.standard_normal((attachments, 1))
    return np.asarray(np.exp(0.02 * (level + random.standard_normal((attachments, inside)))))


def measured(values: np.ndarray) -> variability.Variability:
    owners = np.repeat(np.arange(values.shape[0]), values.shape[1])
    return variability.variability(values.ravel(), owners)


def test_components_of_variance() -> None:
    found = measured(cell(np.random.default_rng(3), 400, 5, 1.0))
    assert found.between == pytest.approx(0.02, rel=0.1)
    assert found.within == pytest.approx(0.02, rel=0.1)
    assert found.alike == pytest.approx(0.5, abs=0.07)
    assert found.p_alike < 1e-6
    assert found.cv == pytest.approx(0.02 * np.sqrt(2), rel=0.1)
    assert found.robust_cv == pytest.approx(found.cv, rel=0.1)
    json.dumps(found.to_dict())


def test_robust_spread_ignores_an_outlier() -> None:
    values = cell(np.random.default_rng(4), 20, 1, 0.0)
    values[3, 0] *= 50
    found = measured(values)
    assert found.cv > 1
    assert found.robust_cv < 0.05


def test_quiet_cells_raise_few_alarms() -> None:
    random = np.random.default_rng(5)
    trials = 150
    alarms = {"p_lag": 0, "p_inside": 0, "p_alike": 0, "p_modes_within": 0, "drift": 0}
    for _ in range(trials):
        found = measured(cell(random, 24, 6, 0.0))
        for name in alarms:
            p = found.drift.p if name == "drift" else getattr(found, name)
            alarms[name] += p <= 0.05
    assert max(alarms.values()) <= stats.binom.ppf(1 - 1e-4, trials, 0.05)


def test_drift_dependence_and_modes_are_seen() -> None:
    random = np.random.default_rng(6)
    values = cell(random, 30, 5, 0.5)
    drifting = measured(values * (1 - 0.005 * np.arange(30))[:, np.newaxis])
    assert drifting.drift.p < 0.001
    assert -0.008 < drifting.drift.slope < -0.003
    assert any("drift" in line for line in drifting.says)
    walk = np.exp(0.02 * np.cumsum(random.standard_normal(60)))[:, np.newaxis]
    dependent = measured(values[:1].repeat(60, axis=0) * walk)
    assert dependent.lag1 > 0.5
    assert dependent.p_lag < 0.001
    modes = values * np.where(random.random(values.shape) < 0.5, 1.5, 1.0)
    assert measured(modes).p_modes_within < 0.01
    between = values * np.where(np.arange(30) % 2, 1.5, 1.0)[:, np.newaxis]
    assert measured(between).p_modes_between < 0.01


def test_warm_up_inside_attachments() -> None:
    random = np.random.default_rng(7)
    values = cell(random, 12, 10, 1.0)
    assert measured(values).steady_from == 0
    values[:, :3] *= np.array([0.8, 0.88, 0.95])
    found = measured(values)
    assert found.p_inside < 1e-3
    assert found.steady_from in (1, 2, 3)
    assert any("steady from run" in line for line in found.says)
    endless = cell(random, 12, 10, 1.0) * np.linspace(1, 2, 10)
    assert measured(endless).steady_from is None


def test_little_data_and_bad_data() -> None:
    one = variability.variability([5.0], ["a"])
    assert np.isnan([one.cv, one.alike, one.drift.p, one.p_inside]).all()
    constant = variability.variability(np.full(40, 3.0), np.repeat(np.arange(20), 2))
    assert (constant.cv, constant.within, constant.between) == (0.0, 0.0, 0.0)
    assert np.isnan(constant.alike)
    assert np.isnan([constant.p_lag, constant.drift.p]).all()
    missing = variability.variability([1.0, np.nan, 2.0], ["a", "a", "b"])
    assert (missing.runs, missing.attachments) == (2, 2)
    empty = variability.variability([np.nan], ["a"])
    assert empty.runs == 0
    with pytest.raises(ValueError, match="positive"):
        variability.variability([1.0, 0.0], ["a", "b"])
    with pytest.raises(ValueError, match="must match"):
        variability.variability([1.0], ["a", "b"])
