"""The statistics of analysis/stats on simulated campaigns: coverage, false claims, power.

    python -P bench/simulations.py [--trials 2000] [--write docs/statistics.md]

Prints Markdown tables, or puts them below the mark in the given file.  Seeds are fixed.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy import stats

from fsmatrix.analysis.stats import repetitions, simulate
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import looks, signflips, tests, verdict

MARK = "<!-- below: made by python -P bench/simulations.py --write docs/statistics.md -->"
INSIDE = 5  # runs in an attachment
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


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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


def campaign(
    random: np.random.Generator, n: int, cells: int, shift: float, spread: float, is_paired: bool
) -> list[intervals.Ratio]:
    """Ratios of one comparison: all cells of a target share its attachments' effects."""
    block = random.standard_normal((n, 1)) * spread
    sides = []
    for side in range(2):
        session = random.standard_normal((n, 1)) * spread
        run = random.standard_normal((n, cells, INSIDE)) * spread
        both = session + (block if is_paired else 0) + np.median(run, axis=2)
        sides.append(both + (shift if side == 0 else 0))
    a, b = sides
    if is_paired:
        return [intervals.from_logs((d,)) for d in (a - b).T]
    return [intervals.from_logs(pair) for pair in zip(a.T, b.T, strict=True)]


def together(
    random: np.random.Generator,
    size: tuple[int, int],
    shape: str,
    shift: float = 0.0,
    spread: float = 0.05,
    uneven: float = 0.0,
    alone: bool = False,
) -> Floats:
    """Log ratios [block, cell] of two targets that vary alike, the first half `shift` apart.

    `uneven`: standard deviation of the logs of the cells' spreads.  `alone`: the second target does
    not vary, so that the differences have the shape of the first one's values.
    """
    first, second = (simulate.SHAPES[shape](random, size) for _ in range(2))
    scale = spread * np.exp(uneven * random.standard_normal(size[1]))
    values = scale * (first if alone else first - second)
    values[:, : size[1] // 2] += shift
    return np.asarray(values)


def many_cells(campaigns: int) -> Iterator[str]:
    """Error and power of max-T over sign flips, beside Holm's correction of medians' p."""
    random = np.random.default_rng(7)
    rows = []
    for cells, percent in ((16, 10), (48, 20)):
        for uneven in (0.0, 1.0):
            for n in (6, 8, 10):
                called, holm, wrong, alike, edge = [], [], 0, [], 0
                for _ in range(campaigns):
                    shift = float(np.log1p(percent / 100))
                    d = together(random, (n, cells), "log-normal", shift, uneven=uneven)
                    p = signflips.max_t(d, 0.05).p <= 0.05
                    raw = np.array([intervals.from_logs((values,)).p for values in d.T])
                    called.append(p[: cells // 2].mean())
                    holm.append((tests.correct(raw) <= 0.05)[: cells // 2].mean())
                    wrong += bool(p[cells // 2 :].any())
                    same = together(random, (n, cells), "log-normal", spread=0.02, uneven=uneven)
                    margin = float(np.log(1.05))
                    alike.append((tests.correct(signflips.equivalent(same, margin)) <= 0.05).mean())
                    edge += bool(
                        (tests.correct(signflips.equivalent(same + margin, margin)) <= 0.05).any()
                    )
                rows.append(
                    [
                        str(cells),
                        f"{percent} %",
                        "unequal" if uneven else "5 %",
                        str(n),
                        f"{np.mean(holm):.0%}",
                        f"{np.mean(called):.0%}",
                        f"{wrong / campaigns:.1%}",
                        f"{np.mean(alike):.0%}",
                        f"{edge / campaigns:.1%}",
                    ]
                )
    yield (
        f"## Many cells of one comparison, paired: power and error in {campaigns} campaigns\n\n"
        "Half of the cells differ. Power: share of those that are called, by Holm on p of medians "
        "and by max-T; error: campaigns in which max-T calls any cell that does not differ. Alike: "
        "share of cells called `no difference larger than 5 %` at a spread of 2 % where nothing "
        "differs; its error: campaigns with any such call where all cells differ by 5 %. Spreads "
        "are those of one target; unequal: their logs vary over the cells with standard deviation "
        "1.\n"
    )
    head = ["cells", "difference", "spread", "n", "Holm", "max-T", "error", "alike", "its error"]
    yield table(head, rows)
    rows = []
    for shape in simulate.SHAPES:
        for alone in (False, True):
            shares = []
            for n in (6, 8, 10, 30):
                wrong = sum(
                    bool(
                        (
                            signflips.max_t(together(random, (n, 48), shape, alone=alone), 0.05).p
                            <= 0.05
                        ).any()
                    )
                    for _ in range(campaigns)
                )
                shares.append(f"{wrong / campaigns:.1%}")
            rows.append([shape, "one target" if alone else "both", *shares])
    yield (
        f"## False claims of max-T in {campaigns} campaigns of 48 cells with equal medians\n\n"
        "Both targets vary with that shape, or one only, while the other does not vary: then "
        "skewed values make the typical ratio differ although the medians do not, and max-T says "
        "so.\n"
    )
    yield table(["shape", "varying", "n = 6", "8", "10", "30"], rows)


TURNS = ((6, 10), (8, 12), (10, 15), (6, 8, 10), (6, 10, 15))  # blocks at each look


def growing(campaigns: int) -> Iterator[str]:
    """Blocks added after a look: false claims and power, with and without spending alpha."""
    random = np.random.default_rng(8)
    head = ["looks at blocks", "shape", "cells", "one look at 5 %", "each at 5 %", "spent"]
    rows = []
    for turns in TURNS:
        for shape in ("log-normal", "heavy-tailed (t3)", "bimodal 30:70"):
            for cells in (1, 16, 48):
                wrong = np.zeros(3)
                for _ in range(campaigns):
                    d = together(random, (turns[-1], cells), shape)
                    each = [signflips.max_t(d[:blocks], 0.05).p.min() for blocks in turns]
                    spent = looks.max_t(d, np.arange(len(d)), turns, 0.05).p.min()
                    wrong += [
                        each[-1] <= 0.05,
                        min(each) <= 0.05,
                        spent <= looks.level(0.05, len(turns)),
                    ]
                shares = (f"{share:.1%}" for share in wrong / campaigns)
                rows.append([", ".join(map(str, turns)), shape, str(cells), *shares])
    yield (
        f"## Blocks added after a look: false claims in {campaigns} campaigns\n\n"
        "Nothing differs; max-T at each number of blocks. Share of campaigns with any false claim: "
        "one look at the last number, at 5 %; looks at all of them, each at 5 %; looks at what "
        "each may spend of 5 % (3.3 %, 1.1 %, 0.4 %). Nominal: 5 %.\n"
    )
    yield table(head, rows)
    rows = []
    for turns in TURNS:
        for cells, percent in ((16, 10), (48, 20)):
            called = np.zeros(4)
            for _ in range(campaigns // 4):
                d = together(
                    random, (turns[-1], cells), "log-normal", float(np.log1p(percent / 100))
                )
                first, whole = (signflips.max_t(x, 0.05).p for x in (d[: turns[0]], d))
                spent = looks.max_t(d, np.arange(len(d)), turns, 0.05).p
                limits = (
                    0.05,
                    looks.level(0.05, 1),
                    looks.level(0.05, len(turns)),
                    looks.level(0.05, 1),
                )
                called += [
                    np.mean(p[: cells // 2] <= limit)
                    for p, limit in zip((whole, whole, spent, first), limits, strict=True)
                ]
            shares = (f"{share:.0%}" for share in called / (campaigns // 4))
            rows.append([", ".join(map(str, turns)), str(cells), f"{percent} %", *shares])
    yield (
        "## What spending costs: power\n\n"
        "Half of the cells differ, spread 5 % of each target. Share of those that are called with "
        "the last number of blocks: in one look at 5 %, in a first look (at 3.3 %), after all of "
        "these looks; and what the first of them had called.\n"
    )
    head = ["looks at blocks", "cells", "difference", "one look at 5 %", "first look"]
    yield table([*head, "after all looks", "at the first of them"], rows)


def false_claims(campaigns: int = 200, cells: int = 48) -> Iterator[str]:
    """Null campaigns with any false claim."""
    random = np.random.default_rng(3)
    rows = []
    for design in (False, True):
        for n in (6, 12, 20, 30):
            count_of: dict[str, int] = {"holm": 0, "none": 0, "equal": 0}
            for _ in range(campaigns):
                null = campaign(random, n, cells, 0.0, 0.05, design)
                for correction in ("holm", "none"):
                    kinds = {v.kind for v in verdict.verdicts(null, 0.05, correction=correction)}
                    count_of[correction] += bool(kinds & {"faster", "slower"})
                edge = campaign(random, n, cells, float(np.log(1.05)), 0.02, design)
                kinds = {v.kind for v in verdict.verdicts(edge, 0.05)}
                count_of["equal"] += "no difference" in kinds
            rows.append(
                [
                    "paired" if design else "independent",
                    str(n),
                    *(f"{count_of[k] / campaigns:.1%}" for k in ("holm", "equal", "none")),
                ]
            )
    yield (
        f"## False claims in {campaigns} campaigns of {cells} cells\n\n"
        "Share of campaigns with any false claim: `faster` or `slower` where nothing differs "
        "(Holm); `no difference larger than 5 %` where all differ by 5 %; and `faster` or `slower` "
        "without correction. Cells of one attachment share its effect. Nominal: 5 %.\n"
    )
    yield table(["design", "n", "differs, Holm", "equal, Holm", "differs, uncorrected"], rows)


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
    parts += list(many_cells(max(options.trials // 5, 20)))
    parts += list(false_claims())
    parts += list(growing(options.trials // 2))
    text = "\n".join(parts)
    if options.write is None:
        print(text)
    else:
        prose = options.write.read_text().split(MARK)[0]
        options.write.write_text(f"{prose}{MARK}\n\n{text}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
