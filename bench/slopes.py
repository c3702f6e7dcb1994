"""How a factor changes a percentile: coverage of quantile regression.  A part of intervals.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tables_of_docs import table

from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import quantile_regression
from fsmatrix.results import histogram

LATENCIES = {  # name: (a session for each level, sessions skewed, slow operations)
    "one attachment, as of processes": (False, False, False),
    "attachments apart, as of targets": (True, False, False),
    "attachments apart, skewed": (True, True, False),
    "a slow share near 1 %": (False, False, True),
}
Q, DRAWS = 0.99, 400  # the quantile; bootstrap samples
Histograms = histogram.Integers
TWICE = [((0, 1), np.array([-1.0, 1.0]))]


def tail_slopes(trials: int) -> Iterator[str]:
    """Quantile regression of p99 on a factor that doubles it: this one, and check loss."""
    random = np.random.default_rng(26)
    many = max(trials // 5, 20)
    rows = []
    for name, kind in LATENCIES.items():
        for operations in ((4000, 4000), (1000, 8000)):
            for n in (6, 8, 20):
                ends = np.array([_intervals(random, n, operations, kind) for _ in range(many)])
                held = np.mean((ends[..., 0] <= 2) & (ends[..., 1] >= 2), axis=0)
                widths = np.median(ends[..., 1] / ends[..., 0], axis=0)
                shown = [
                    f"{share:.1%} ({width:.2f})" for share, width in zip(held, widths, strict=True)
                ]
                rows.append([name, " and ".join(map(str, operations)), str(n), *shown])
    yield (
        "## How a factor changes p99: coverage of the 95 % interval\n\n"
        f"{many} campaigns a line of n blocks. One level of the factor takes twice as long as the "
        "other; sessions differ by 20 %, runs by 5 %, log-normal latencies of so many operations "
        "in a run of each level. Ours; the same without what bins hide; check loss over the "
        f"operations of all attachments with a bootstrap of blocks ({DRAWS} samples); and with a "
        "bootstrap of operations. In brackets the median of high over low. Standard error of a "
        "coverage of 95 %: 2 points.\n"
    )
    head = ["latencies", "operations", "n", "ours", "without bins", "check loss"]
    yield table([*head, "operations as independent"], rows)


def _intervals(
    random: np.random.Generator, n: int, operations: tuple[int, int], kind: tuple[bool, bool, bool]
) -> list[tuple[float, float]]:
    """(low, high) of the change of p99 in one campaign, by each of the four methods."""
    counts = _histograms(random, n, operations, kind)
    logs = np.log([[histogram.percentile(block, Q) for block in level] for level in counts]).T
    slope = quantile_regression.slope(quantile_regression.contrasts(logs, TWICE))
    bare = intervals.from_logs((logs[:, 1] - logs[:, 0],))
    alone = _check_loss(random, counts, whole=False)
    pooled_ends = _check_loss(random, counts, whole=True)
    return [(slope.low, slope.high), (bare.low, bare.high), pooled_ends, alone]


def _histograms(
    random: np.random.Generator, n: int, operations: tuple[int, int], kind: tuple[bool, bool, bool]
) -> Histograms:
    """Counts [level, block, bin]."""
    apart, skewed, slow = kind
    drawn = random.standard_normal((2, n))
    sessions = 0.2 * (np.exp(drawn) - 1 if skewed else drawn)
    histograms = []
    for level, many in enumerate(operations):
        shifts = sessions[level if apart else 0] + 0.05 * random.standard_normal(n)
        shares = 0.01 * np.exp(0.7 * random.standard_normal(n)) if slow else np.zeros(n)
        shifts = shifts + level * np.log(2)
        histograms.append(
            [
                simulate.latencies(random, float(shift), many, float(share))
                for shift, share in zip(shifts, shares, strict=True)
            ]
        )
    return np.array(histograms)


def _check_loss(
    random: np.random.Generator, counts: Histograms, *, whole: bool
) -> tuple[float, float]:
    """95 % of bootstrap samples of the ratio of the levels' quantiles over all operations.

    That is quantile regression by check loss, of a factor of two levels.  `whole`: blocks are
    drawn, both levels of one together, each attachment of the same weight; else operations.
    """
    used = counts.any(axis=(0, 1))
    kept = counts[:, :, used]
    blocks = counts.shape[1]
    if whole:
        drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), DRAWS)
        samples = [drawn @ level for level in kept / kept.sum(axis=2, keepdims=True)]
    else:
        every = kept.sum(axis=1)
        samples = [random.multinomial(level.sum(), level / level.sum(), DRAWS) for level in every]
    middles = (histogram.lower_edges() + histogram.upper_edges() - 1)[used]
    logs = [np.log(middles[_place(sample)]) for sample in samples]
    low, high = np.quantile(logs[1] - logs[0], [0.025, 0.975])
    return float(np.exp(low)), float(np.exp(high))


def _place(weights: Floats) -> Histograms:
    """The bin that Q falls into, [sample]; weights: [sample, bin]."""
    below = np.cumsum(weights, axis=1)
    return np.argmax(below >= Q * below[:, -1:] * (1 - 1e-12), axis=1)
