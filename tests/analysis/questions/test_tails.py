"""Tails of latency: how sure one run is, and histograms that add up over an attachment."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from fsmatrix.analysis.questions.tails import tails
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.stats.estimates.intervals import quantile_bounds
from fsmatrix.results import histogram
from tests.analysis import study_data as studies

SCALE = 1e6  # ns: the median latency


def counts(random: np.random.Generator, size: int, times: float = 1.0) -> Any:
    """A histogram of log-normal latencies."""
    drawn = SCALE * times * np.exp(0.5 * random.standard_normal(size))
    return np.bincount(histogram.bin_of(drawn.astype(np.int64)), minlength=histogram.BINS)


def truth(q: float) -> float:
    return float(SCALE * np.exp(0.5 * stats.norm.ppf(q)) / 1e9)


@pytest.mark.parametrize(("q", "size"), [(0.5, 100), (0.99, 1000), (0.99, 50_000), (0.999, 10_000)])
def test_one_run_s_quantile_lies_within_its_bounds(q: float, size: int) -> None:
    random = np.random.default_rng(size)
    trials, held, widths = 400, 0, []
    for _ in range(trials):
        low, high = quantile_bounds(counts(random, size), q)
        held += low <= truth(q) <= high
        widths.append(high / low)
    assert held >= stats.binom.ppf(1e-4, trials, 0.95)
    error = np.sqrt(q * (1 - q) / size) / stats.norm.pdf(stats.norm.ppf(q))  # of the normal value
    assert np.median(widths) < np.exp(0.5 * 2 * 1.96 * error * 1.3) * (1 + 2 / 64)


def test_few_operations_bound_no_quantile() -> None:
    few = counts(np.random.default_rng(1), 999)
    assert np.isnan(quantile_bounds(few, 0.99)).all()
    assert not np.isnan(quantile_bounds(few, 0.98)).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_bounds(few, 1.0)


def campaign(
    attachments: int, runs: int, size: int, spread: float, seed: int = 1
) -> tuple[xr.Dataset, list[Any]]:
    """Two patterns; latencies of a whole attachment are slower or faster by a factor."""
    random = np.random.default_rng(seed)
    rows, found = [], []
    for pattern in ("rand-read", "seq-read"):
        for attachment in range(attachments):
            factor = float(np.exp(spread * random.standard_normal()))
            for repetition in range(runs):
                found.append(counts(random, size, factor))
                rows.append(
                    {
                        "pattern": pattern,
                        "block": attachment,
                        "attachment": f"{attachment}",
                        "repetition": repetition,
                        "latency_mean": 1e-3,
                        "latency_of": "read",
                        "bandwidth": 1e8,
                        "run_id": f"{pattern}{attachment}-{repetition}",
                    }
                )
    ds = studies.dataset(rows, ["pattern"])
    bins = [np.flatnonzero(one) for one in found]
    sizes = np.array([one.size + 1 for one in bins])  # and a bin of a kind that is not pooled
    return ds.assign(
        {
            "latency_first": ("run", np.cumsum(sizes) - sizes),
            "latency_size": ("run", sizes),
            "latency_bin": ("latency", np.concatenate([np.append(b, 1800) for b in bins])),
            "latency_kind": ("latency", np.concatenate([np.append(0 * b, 1) for b in bins])),
            "latency_count": (
                "latency",
                np.concatenate(
                    [np.append(one[b], 10**6) for one, b in zip(found, bins, strict=True)]
                ),
            ),
            "kind_name": ("kind", np.array(["read", "open"])),
        }
    ), found


def test_histograms_of_an_attachment_add_up() -> None:
    """600 operations in a run say nothing of p99, those of three runs do."""
    ds, found = campaign(attachments=7, runs=3, size=600, spread=0.1)
    made = tails(ds)
    assert isinstance(made, Result)
    for number, cell in enumerate(made.cells):
        mine = np.array(found[21 * number : 21 * (number + 1)]).reshape(7, 3, -1).sum(axis=1)
        each = [histogram.percentile(one, 0.99) for one in mine]
        assert cell.quantile.median == pytest.approx(np.median(each))
        assert min(each) <= cell.quantile.low < cell.quantile.high <= max(each)
        assert (cell.quantile.independent, cell.operations) == (7, 21 * 600)
        assert np.isnan(cell.within).all()  # one run alone has too few
    assert not any("nan" in said for said in made.says)
    json.dumps(made.to_dict(), allow_nan=False)
    assert len(made.table()) == 2
    assert made.figure().axes


def test_intervals_over_attachments_cover_what_runs_alone_do_not() -> None:
    """Attachments that differ by 20 %: the bounds of one run say nothing of another one."""
    held, alone, trials = 0, 0, 100
    for seed in range(trials):
        ds, found = campaign(attachments=8, runs=1, size=3000, spread=0.2, seed=seed)
        cell = tails(ds).cells[0]
        held += cell.quantile.low <= truth(0.99) <= cell.quantile.high
        low, high = quantile_bounds(found[0], 0.99)
        alone += low <= truth(0.99) <= high
    assert held >= stats.binom.ppf(1e-3, trials, 0.95)
    assert alone < 0.6 * trials


def test_what_it_says_and_refuses() -> None:
    ds, _ = campaign(attachments=3, runs=2, size=2000, spread=0.1)
    said = " ".join(tails(ds).says)
    assert "99 % of the operations below: at most" in said
    assert "A typical run alone knows it to" in said
    assert "2 of 2 cells have too few attachments for 95 %" in said
    few = tails(ds, 0.99999)
    assert few.says == [
        "Latency, 99.999 % of the operations below: too few operations in every "
        "cell, it takes 1000000."
    ]
    with pytest.raises(ValueError, match="too few operations"):
        few.figure()
    with pytest.raises(ValueError, match="between 0 and 1"):
        tails(ds, 1.0)
    with pytest.raises(ValueError, match="no histograms"):
        tails(ds.drop_vars("latency_bin"))
