"""Intervals beyond those of a ratio, slopes, dependence, on simulated data: coverage, errors.

    python -P bench/intervals.py [--trials 500] [--write docs/statistics.md]

Prints Markdown tables, or puts them between their marks in the given file.  Seeds are fixed.

Also how a factor changes a percentile: coverage of quantile regression.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).parent))  # also under -P

from tables_of_docs import table, write

from fsmatrix.analysis.questions import scalability
from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates import dependence, intervals, medians
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import effects, pooled, quantile_regression
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

BEGIN = "<!-- from here to the end mark: made by python -P bench/intervals.py --write {} -->"
END = "<!-- end mark -->"
SHAPES = [name for name in simulate.SHAPES if name != "autocorrelated"]
NODES = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])


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


def shown_medians(trials: int) -> Iterator[str]:
    """Interpolated order statistics beside the order statistics themselves, and error of p."""
    random = np.random.default_rng(21)
    sizes = (6, 7, 8, 10, 12, 30)
    rows = []
    for shape in SHAPES:
        cells = []
        for n in sizes:
            draws = np.sort(simulate.SHAPES[shape](random, (trials, n)), axis=1)
            k, weight, _ = medians.position(n)
            outer = draws[:, k - 1], draws[:, n - k]
            low = outer[0] + weight * (draws[:, k] - outer[0])
            high = outer[1] + weight * (draws[:, n - 1 - k] - outer[1])
            held = np.mean((low <= 0) & (high >= 0))
            width = np.median(high - low) / np.median(outer[1] - outer[0])
            wrong = np.mean([intervals.one_sample(draw).p() <= 0.01 for draw in draws])
            cells.append(f"{held:.1%} ({width:.2f}) {wrong:.1%}")
        rows.append([shape, *cells])
    yield (
        "## A shown median: coverage of its 95 % interval\n\n"
        f"{trials} samples of n independent values a cell. In brackets its width as a share of "
        "that of order statistics alone; then how often p <= 1 % (6 and 7 values cannot have it). "
        "Two equal modes far apart have a median between them, which no few values show: 90 % with "
        "7 values.\n"
    )
    yield table(["shape", *(f"n = {n}" for n in sizes)], rows)


def cells_together(trials: int) -> Iterator[str]:
    """Shrunken intervals beside bare ones."""
    random = np.random.default_rng(22)
    rows = []
    for cells in (4, 16, 48):
        for n in (6, 10):
            for between in ("0", "0.5", "1", "4", "one cell"):
                results = [
                    _pooled(random, cells, n, between, uneven)
                    for uneven in (0.0, 1.0)
                    for _ in range(max(trials // 5, 20))
                ]
                half = len(results) // 2
                shown = [
                    f"{np.mean([f[0] for f in part]):.1%} ({np.median([f[1] for f in part]):.2f})"
                    for part in (results[:half], results[half:])
                ]
                alone = f"{np.mean([f[2] for f in results[:half]]):.0%}"
                rows.append([str(cells), str(n), between, *shown, alone])
    yield (
        "## Cells drawn towards each other: coverage over the cells of a campaign\n\n"
        f"{max(trials // 5, 20)} campaigns a line, log ratios of a spread of 7 % in a block and "
        "5 % that a block does to all its cells. Between: standard deviation of the cells' true "
        "values over 5 %; one cell: all equal but the first, which lies 40 % above. In brackets "
        "the median width over that of the bare interval. Unequal: logs of the cells' spreads vary "
        "with standard deviation 1. The last column says how often the first cell is taken for one "
        "unlike the others, which is not drawn, spreads alike.\n"
    )
    head = ["cells", "n", "between", "spreads alike", "unequal", "first left out"]
    yield table(head, rows)


def _pooled(
    random: np.random.Generator, cells: int, n: int, between: str, uneven: float
) -> tuple[float, float, bool]:
    """(share of the cells drawn that are covered, width over the bare one's, first left out)."""
    if between == "one cell":
        truth: Floats = 0.4 * (np.arange(cells) == 0)
    else:
        truth = 0.05 * float(between) * random.standard_normal(cells)
    runs = random.standard_normal((2, n, cells))
    spread = 0.05 * np.exp(uneven * random.standard_normal(cells))
    d = truth + 0.05 * random.standard_normal((n, 1)) + spread * (runs[0] - runs[1])
    every = pooled.pooled(d)
    drawn = np.array([interval is not None for interval in every])
    intervals_found = [interval for interval in every if interval]
    low, high = (
        np.log([interval.low for interval in intervals_found]),
        np.log([interval.high for interval in intervals_found]),
    )
    alone = [intervals.from_logs((column,)) for column in d[:, drawn].T]
    width = np.median((high - low) / np.log([r.high / r.low for r in alone]))
    held = (low <= truth[drawn]) & (truth[drawn] <= high)
    return float(held.mean()), float(width), not drawn[0]


def nodes(trials: int) -> Iterator[str]:
    """Nodes that a fitted law extrapolates to."""
    random = np.random.default_rng(23)
    rows = []
    for sigma, kappa in ((0.05, 0.0), (0.05, 0.001), (0.02, 0.0005), (0.3, 0.0)):
        for true in (20.0, 24.0):
            wanted = float(scalability.throughput(np.array([true]), 1e8, sigma, kappa)[0])
            means = np.log(scalability.throughput(NODES, 1e8, sigma, kappa))
            held, low, high = 0, [], []
            many = max(trials // 5, 20)
            for seed in range(many):
                values = [np.exp(mean + random.normal(0, 0.02, 6)) for mean in means]
                fitted = scalability.fit(NODES, values, seed)
                assert isinstance(fitted, scalability.Laws)
                interval = fitted.nodes_for(wanted)
                held += interval.low <= true <= interval.high
                low.append(interval.low)
                high.append(interval.high)
            top = float(np.median(high))
            span = f"{np.median(low):.1f} to {'never' if np.isinf(top) else f'{top:.1f}'}"
            rows.append([f"{sigma:g}, {kappa:g}", f"{true:g}", f"{held / many:.1%}", span])
    yield (
        "## Nodes that a law extrapolates to: coverage\n\n"
        f"{max(trials // 5, 20)} campaigns a line with 6 attachments at each of 1 to 16 nodes, "
        "spread 2 %, and a law that is true.\n"
    )
    yield table(["sigma, kappa", "true nodes", "coverage", "median interval"], rows)


def terms(trials: int) -> Iterator[str]:
    """False effects: as tested, and by an F test against the scatter of runs."""
    random = np.random.default_rng(24)
    rows = []
    kinds = {
        "alike": (None, None),
        "a session and a pattern": (None, None),
        "a block and a pattern": (None, None),
        "one pattern restless": (None, 3),
        "one target restless": (1, None),
        "one cell restless": (1, 3),
        "skewed": (None, None),
        "heavy tails": (None, None),
    }
    many = max(trials // 5, 20)
    for kind, (target, pattern) in kinds.items():
        for n in (6, 12):
            ours: list[bool] = []
            f: list[bool] = []
            for _ in range(many):
                labels, values = _null(random, kind, n, target, pattern)
                owner, block = labels.pop("attachment"), labels.pop("block")
                found = effects.effects(values, owner, labels, block).effects
                ours += [e.p <= 0.05 for e in found]
                one = effects.effects(values, np.zeros(owner.size), labels | {"block": block}, None)
                f += [e.p <= 0.05 for e in one.effects if "block" not in e.term]
            rows.append([kind, str(n), f"{np.mean(f):.1%}", f"{np.mean(ours):.1%}"])
    yield (
        "## False effects of factors\n\n"
        f"{many} campaigns a line without any effect: 2 targets, 4 patterns, n blocks, 3 runs. "
        "Share of tested terms with p <= 5 %: by an F test against the scatter of runs, as if "
        "sessions did nothing, and as tested.\n"
    )
    yield table(["what varies", "n", "F", "ours"], rows)


def _null(
    random: np.random.Generator, kind: str, n: int, target: int | None, pattern: int | None
) -> tuple[dict[str, npt.NDArray[np.int64]], Floats]:
    grid = np.meshgrid(*(np.arange(size) for size in (n, 2, 4, 3)), indexing="ij")
    block, side, work, _ = (axis.ravel() for axis in grid)
    noise = random.standard_normal(block.size)
    if kind == "skewed":
        noise = np.exp(1.5 * noise) - 1
    elif kind == "heavy tails":
        noise = random.standard_t(1.5, block.size)
    elif kind == "a session and a pattern":
        noise = noise + 3 * random.standard_normal((n, 2, 4))[block, side, work]
    elif kind == "a block and a pattern":
        noise = noise + 3 * random.standard_normal((n, 4))[block, work]
    elif kind.endswith("restless"):
        affected = (target is None or side == target) & (pattern is None or work == pattern)
        noise = noise * np.where(affected, 15.0, 1.0)
    session = random.standard_normal((n, 2))[block, side] + random.standard_normal(n)[block]
    values: Floats = np.exp(0.05 * session + 0.02 * noise)
    owner = 2 * block + side
    return {"target": side, "pattern": work, "attachment": owner, "block": block}, values


def resemblance(trials: int) -> Iterator[str]:
    """Blocks that depend on the one before, found over cells."""
    random = np.random.default_rng(25)
    rows = []
    for n in (6, 8, 12):
        for cells in (1, 16, 48):
            shares = []
            for correlation, shared in ((0.0, 0.0), (0.8, 0.0), (0.8, 1.0)):
                ps = np.array(
                    [
                        dependence.dependence(
                            _chain(random, n, cells, correlation)
                            + shared * _chain(random, n, 1, correlation)
                        )[1]
                        for _ in range(max(trials // 5, 20))
                    ]
                )
                shares.append(f"{np.mean(ps <= 0.05):.0%}, {np.mean(ps <= 0.01):.0%}")
            rows.append([str(n), str(cells), *shares])
    yield (
        "## Blocks that resemble the one before\n\n"
        "How often p <= 5 % and <= 1 % (which is said): without dependence; with a correlation of "
        "0.8 in each cell by itself; and where half of the variance is one chain of all cells.\n"
    )
    yield table(["blocks", "cells", "none", "each cell", "half of it shared"], rows)


def _chain(random: np.random.Generator, n: int, cells: int, correlation: float) -> Floats:
    steps = random.standard_normal((n, cells))
    values = steps.copy()
    for i in range(1, n):
        values[i] = correlation * values[i - 1] + np.sqrt(1 - correlation**2) * steps[i]
    return values


def main() -> None:
    """Run all and print, or write between the marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    studies = (shown_medians, cells_together, nodes, terms, tail_slopes, resemblance)
    text = "\n".join(part for study in studies for part in study(options.trials))
    if options.write is None:
        print(text)
    else:
        write(options.write, text, BEGIN.format("docs/statistics.md"), END)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
