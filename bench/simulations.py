"""The statistics of analysis/stats on simulated campaigns: coverage, false claims, power.

    python -P bench/simulations.py [--trials 2000] [--write docs/statistics.md]

Prints Markdown tables, or puts them below the mark in the given file.  Seeds are fixed.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import stats

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # also under -P

from simulations_capacity import capacity
from simulations_many import (
    INSIDE,
    called,
    false_claims,
    groups,
    growing,
    many_cells,
    null_study,
    screens,
)
from tables_of_docs import table, write

from fsmatrix.analysis.comparison.comparison_result import promised
from fsmatrix.analysis.comparison.extension import Record, extension
from fsmatrix.analysis.stats import repetitions, simulate
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.stats.testing.verdict import verdicts

MARK = "<!-- below: made by python -P bench/simulations.py --write docs/statistics.md -->"
SIZES = (6, 8, 12, 30)
Bounds = tuple[Floats, Floats]
Method = Callable[[Floats, Floats], Bounds]


def ours(a: Floats, b: Floats) -> Bounds:
    """The chosen interval of each campaign; a, b: attachments' logs [campaign, attachment]."""
    ratios = [intervals.from_logs(pair) for pair in zip(a, b, strict=True)]
    return np.log([r.low for r in ratios]), np.log([r.high for r in ratios])


def paired(a: Floats, b: Floats) -> Bounds:
    """The chosen interval of pairs."""
    ratios = [intervals.from_logs((d,)) for d in a - b]
    return np.log([r.low for r in ratios]), np.log([r.high for r in ratios])


@functools.cache
def critical(n: int, m: int) -> int:
    """The largest u with 2 P(U <= u) <= 0.05 for Mann and Whitney's U."""
    ways = np.zeros((n + 1, n * m + 1))
    ways[0, 0] = 1
    for j in range(n + m):  # rank j goes to the first sample as its k-th value: j - k below it
        for k in range(min(n, j + 1), 0, -1):
            shift = j - (k - 1)
            if shift <= m:
                ways[k, shift:] += ways[k - 1, : n * m + 1 - shift]
    tail = 2 * np.cumsum(ways[n]) / ways[n].sum()
    return int(np.flatnonzero(tail <= 0.05)[-1])


def mann_whitney(a: Floats, b: Floats) -> Bounds:
    """Hodges and Lehmann's interval: the inverted exact test of Mann and Whitney."""
    u = critical(a.shape[1], b.shape[1])
    all_pairs = np.sort((a[:, :, np.newaxis] - b[:, np.newaxis, :]).reshape(len(a), -1), axis=1)
    return all_pairs[:, u], all_pairs[:, -1 - u]


def welch(a: Floats, b: Floats) -> Bounds:
    """Welch's t interval of the difference of means."""
    interval = stats.ttest_ind(a, b, axis=1, equal_var=False).confidence_interval(0.95)
    return np.asarray(interval.low), np.asarray(interval.high)


def bootstrap(a: Floats, b: Floats) -> Bounds:
    """Percentiles of 400 bootstrap samples."""
    random = np.random.default_rng(4)
    ends = []
    for x, y in zip(a, b, strict=True):
        first, second = (
            np.median(random.choice(side, (400, side.size)), axis=1) for side in (x, y)
        )
        ends.append(np.quantile(first - second, [0.025, 0.975]))
    return np.array(ends).T[0], np.array(ends).T[1]


def all_runs(a: Floats, b: Floats) -> Bounds:
    """The chosen interval as if all runs were independent; a, b: [campaign, attachment, run]."""
    return ours(a.reshape(len(a), -1), b.reshape(len(b), -1))


METHODS: dict[str, Method] = {
    "ours": ours,
    "Mann-Whitney inverted": mann_whitney,
    "Welch t": welch,
    "bootstrap": bootstrap,
}


def cell(bounds: Bounds, truth: float, unit: float) -> str:
    """Coverage and median width (of `unit`) in a table's cell."""
    low, high = bounds
    return f"{np.mean((low <= truth) & (truth <= high)):.1%} ({np.median(high - low) / unit:.2f})"


def coverage(trials: int) -> Iterator[str]:
    """Same shapes, session effects as large as the run-to-run spread."""
    random = np.random.default_rng(1)
    rows = []
    for shape in simulate.SHAPES:
        for n in SIZES:
            raw = [simulate.logs(random, shape, (trials, n, INSIDE)) for _ in range(2)]
            a, b = (np.median(side, axis=2) for side in raw)
            low, high = ours(a, b)
            unit = float(np.median(high - low))
            cells = [cell(method(a, b), 0, unit) for method in METHODS.values()]
            rows.append(
                [shape, str(n), *cells, cell(paired(a, b), 0, unit), cell(all_runs(*raw), 0, unit)]
            )
    yield (
        "## Coverage of the 95 % interval of the ratio of two medians\n\n"
        f"{trials} campaigns a line, {INSIDE} runs in each of n attachments of each target, "
        "session-to-session spread equal to run-to-run spread. In brackets: median width as a "
        "share of ours (independent). The last column shows what treating runs as independent "
        "would do.\n"
    )
    yield table(["shape", "n", *METHODS, "ours, paired", "all runs as independent"], rows)


def unequal(trials: int) -> Iterator[str]:
    """Shapes and spreads that differ between the targets."""
    random = np.random.default_rng(2)
    pairs = {
        "log-normal, spread 1 : 0.01": ("log-normal", 1.0, "log-normal", 0.01),
        "log-normal, spread 1 : 0.25": ("log-normal", 1.0, "log-normal", 0.25),
        "bimodal 30:70 against log-normal": ("bimodal 30:70", 1.0, "log-normal", 1.0),
        "skewed against mirrored skewed": ("skewed logs", 1.0, "skewed logs", -1.0),
        "heavy-tailed against spread 0.01": ("heavy-tailed (t3)", 1.0, "log-normal", 0.01),
    }
    rows = []
    for name, (first, scale_a, second, scale_b) in pairs.items():
        for n, m in ((6, 6), (7, 7), (12, 12), (30, 30), (6, 20), (20, 6)):
            a = scale_a * simulate.SHAPES[first](random, (trials, n))
            b = scale_b * simulate.SHAPES[second](random, (trials, m))
            low, high = ours(a, b)
            unit = float(np.median(high - low))
            cells = [cell(method(a, b), 0, unit) for method in METHODS.values()]
            rows.append([name, f"{n}, {m}", *cells])
    yield (
        "## Targets that differ in spread or shape, with equal medians\n\n"
        "The reason for the choice: methods that assume one shape cover less here.\n"
    )
    yield table(["targets", "n, m", *METHODS], rows)


def power(trials: int) -> Iterator[str]:
    """Share of right verdicts against the size of the difference."""
    random = np.random.default_rng(5)
    rows = []
    sizes = (6, 8, 12, 20, 30)
    for times in (0.5, 1.0, 2.0, 3.0):
        for n in sizes:
            a = simulate.logs(random, "log-normal", (trials, n, INSIDE)) + times
            b = simulate.logs(random, "log-normal", (trials, n, INSIDE))
            x, y = np.median(a, axis=2), np.median(b, axis=2)
            both = [intervals.from_logs(pair) for pair in zip(x, y, strict=True)]
            ps = np.array([r.p for r in both])
            pairs = np.array([intervals.from_logs((d,)).p for d in x - y])
            same = stats.mannwhitneyu(x, y, axis=1, method="exact").pvalue
            shares = [np.mean(p <= limit) for limit in (0.05, 0.05 / 48) for p in (ps, pairs, same)]
            rows.append([f"{times:g}", str(n), *(f"{share:.0%}" for share in shares)])
    yield (
        "## Power\n\n"
        "Share of campaigns in which a difference of d between the medians (in standard "
        "deviations of a session effect, which equals that of a run; 5 runs in an attachment) is "
        "called: alone at 5 %, and as the first of 48 cells under Holm. With a spread of 2 % both "
        "ways, d = 1 is a ratio of 1.02. Mann-Whitney's test is beside it: it needs fewer "
        "attachments, and holds only if both targets vary alike.\n"
    )
    head = ["d", "n", "ours", "ours, paired", "Mann-Whitney"]
    yield table(head + [f"{name}, 48 cells" for name in head[2:]], rows)


def planning(trials: int) -> Iterator[str]:
    """Whether as many attachments as planned give the width that was asked for."""
    random = np.random.default_rng(6)
    rows = []
    for shape in ("log-normal", "heavy-tailed (t3)", "bimodal 30:70"):
        for n in (6, 12, 30):
            ratio, held = [], []
            pool = np.median(simulate.logs(random, shape, (200, 100, INSIDE)), axis=2)
            target = 0.5 * float(np.median(np.ptp(np.quantile(pool, [0.25, 0.75], axis=1), axis=0)))
            widths = repetitions.half_widths((pool.ravel()[:5000],), 0.95)
            truth = repetitions.sizes(0.95)[int(np.argmax(widths <= target))]
            for _ in range(max(trials // 10, 20)):
                data = np.median(simulate.logs(random, shape, (1, n, INSIDE))[0], axis=1)
                advice = repetitions.for_parts((data,), target)
                ratio.append((advice.needed or 2 * repetitions.MOST) / truth)
                high = advice.high or 2 * repetitions.MOST
                held.append((advice.low or repetitions.MOST) <= truth <= high)
            low, middle, top = np.quantile(ratio, [0.1, 0.5, 0.9])
            rows.append(
                [
                    shape,
                    str(n),
                    str(truth),
                    f"{middle:.2f}",
                    f"{low:.2f} to {top:.2f}",
                    f"{np.mean(held):.0%}",
                ]
            )
    yield (
        "## How many repetitions: the planned number over the right one\n\n"
        "From n attachments, for a half width of half the interquartile range.\n"
    )
    yield table(
        ["shape", "n", "right number", "median", "80 % within", "low to high holds it"], rows
    )


TRUTHS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "nothing differs": lambda _, cells: np.zeros(cells),
    "half by 0.8": lambda _, cells: np.where(np.arange(cells) < cells // 2, 0.8, 0.0),
    "by 0.5, normally distributed": lambda random, cells: random.normal(0, 0.5, cells),
    "all by 0.6": lambda _, cells: np.full(cells, 0.6),
    "all by 1.2": lambda _, cells: np.full(cells, 1.2),
}


def advised(trials: int, cells: int = 16) -> Iterator[str]:
    """What the advice of more blocks promises, and what these blocks then prove."""
    random = np.random.default_rng(8)
    first, second = (signflips.look_level(0.05, number) for number in (1, 2))
    rows, every = [], dict[int, list[bool]]()
    for name, truth in TRUTHS.items():
        for have in (6, 10):
            campaigns, kept = 0, list[bool]()
            for _ in range(trials):
                shift = truth(random, cells)
                seen = random.standard_normal((have, cells)) + shift
                joint = signflips.max_t(seen, first, 1024)
                ratios = [intervals.from_logs((column,)) for column in seen.T]
                judged = verdicts(ratios, 0.05, first, "max-t", together=joint, later=second)
                found = extension(
                    Record((have,), have),
                    [have for v in judged if v.kind == "too few"],
                    [promised(v) for v in judged if v.kind == "too few"],
                    0.05,
                    1,
                )
                campaigns += found.reach > 0
                if not found.reach:
                    continue
                more = random.standard_normal((found.reach - have, cells)) + shift
                p = signflips.max_t(np.vstack([seen, more]), second, 1024).p
                within = [(promised(v) or have * 9) <= found.reach for v in judged]
                kept += list(p[np.array(within)] <= second)
            share = f"{np.mean(kept):.0%}" if kept else "-"
            rows.append([name, str(have), f"{campaigns / trials:.0%}", str(len(kept)), share])
            every.setdefault(have, []).extend(kept)
    rows += [
        ["all of these", str(have), "", str(len(kept)), f"{np.mean(kept):.0%}"]
        for have, kept in every.items()
    ]
    yield (
        "## More blocks that were advised, and what they proved\n\n"
        f"{trials} campaigns a line, {cells} cells of two targets, differences in standard "
        "deviations of a block's log ratio. A number of blocks is named where some cell is likely "
        f"({repetitions.CHANCE:.0%}) to be proven by at most four times as many.\n"
    )
    yield table(["differences", "blocks", "a number was named", "cells promised", "proven"], rows)


def main() -> None:
    """Run all and print, or write below the mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    parts = []
    for study in (coverage, unequal, power, planning):
        parts += list(study(options.trials))
    parts += list(advised(max(options.trials // 10, 20)))
    parts += list(many_cells(max(options.trials // 5, 20)))
    parts += list(groups(max(options.trials // 20, 20)))
    parts += list(screens(max(options.trials // 5, 20)))
    parts += list(called(max(options.trials // 20, 20)))
    parts += list(false_claims())
    parts += list(growing(options.trials // 2))
    parts += list(null_study(options.trials // 4))
    parts += list(capacity(max(options.trials // 20, 20)))
    text = "\n".join(parts)
    if options.write is None:
        print(text)
    else:
        write(options.write, text, MARK)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
