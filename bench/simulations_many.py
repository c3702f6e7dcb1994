"""False claims and power over the cells of a campaign, and over several looks at it.

A part of bench/simulations.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats
from tables_of_docs import table

from fsmatrix.analysis.comparison.family import Subject, answers
from fsmatrix.analysis.comparison.family import together as of_means
from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing import signflips, tests, verdict
from tests.analysis.null_claims import verdicts

INSIDE = 5  # runs in an attachment
TURNS = ((6, 10), (8, 12), (10, 15), (6, 8, 10), (6, 10, 15))  # blocks at each look


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
    rows = [
        [str(cells), f"{percent} %", "unequal" if uneven else "5 %", str(n), *shares]
        for cells, percent in ((16, 10), (48, 20))
        for uneven in (0.0, 1.0)
        for n in (6, 8, 10)
        for shares in [_power_and_error(random, campaigns, (n, cells), percent, uneven)]
    ]
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
    yield from _skewed(random, campaigns)


def _power_and_error(
    random: np.random.Generator, campaigns: int, size: tuple[int, int], percent: int, uneven: float
) -> list[str]:
    """Power of Holm and of max-T, error of max-T; power and error of `no difference`."""
    half, margin = size[1] // 2, float(np.log(1.05))
    called, holm, wrong, alike, edge = [], [], 0, [], 0
    for _ in range(campaigns):
        d = together(random, size, "log-normal", float(np.log1p(percent / 100)), uneven=uneven)
        p = signflips.max_t(d, 0.05).p <= 0.05
        raw = np.array([intervals.from_logs((values,)).p for values in d.T])
        called.append(p[:half].mean())
        holm.append((tests.correct(raw) <= 0.05)[:half].mean())
        wrong += bool(p[half:].any())
        same = together(random, size, "log-normal", spread=0.02, uneven=uneven)
        alike.append((size[1] * signflips.equivalent(same, margin) <= 0.05).mean())
        edge += bool((size[1] * signflips.equivalent(same + margin, margin) <= 0.05).any())
    return [
        f"{np.mean(holm):.0%}",
        f"{np.mean(called):.0%}",
        f"{wrong / campaigns:.1%}",
        f"{np.mean(alike):.0%}",
        f"{edge / campaigns:.1%}",
    ]


def _skewed(random: np.random.Generator, campaigns: int) -> Iterator[str]:
    """False claims of max-T by the shape of one target's or of both targets' values."""

    def claims(n: int, shape: str, alone: bool) -> bool:
        d = together(random, (n, 48), shape, alone=alone)
        return bool((signflips.max_t(d, 0.05).p <= 0.05).any())

    rows = []
    for shape in simulate.SHAPES:
        for alone in (False, True):
            wrong = [sum(claims(n, shape, alone) for _ in range(campaigns)) for n in (6, 8, 10, 30)]
            shares = [f"{count / campaigns:.1%}" for count in wrong]
            rows.append([shape, "one target" if alone else "both", *shares])
    yield (
        f"## False claims of max-T in {campaigns} campaigns of 48 cells with equal medians\n\n"
        "Both targets vary with that shape, or one only, while the other does not vary: then "
        "skewed values make the typical ratio differ although the medians do not, and max-T says "
        "so.\n"
    )
    yield table(["shape", "varying", "n = 6", "8", "10", "30"], rows)


def groups(campaigns: int, cells: int = 48, patterns: int = 4) -> Iterator[str]:
    """Claims about all cells together and about patterns: error, cover and power."""
    random = np.random.default_rng(9)
    size = cells // patterns
    asked = [Subject("", tuple(range(cells)))]
    asked += [
        Subject(f"pattern {k}", tuple(range(k * size, (k + 1) * size))) for k in range(patterns)
    ]

    def drawn(shape: str, n: int) -> Floats:
        shared = 0.02 * random.standard_normal((n, 1))
        if shape in simulate.SHAPES:
            return together(random, (n, cells), shape, alone=True) + shared
        d = together(random, (n, cells), "log-normal") + shared
        fast = 0.05 * np.sqrt(2) * stats.norm.isf(0.4 / 0.9)  # of d, below the median of the rest
        return np.where(random.random(d.shape) < 0.1, d - np.log(3), d) + fast

    def one(d: Floats) -> tuple[bool, list[bool], list[bool]]:
        _, p = of_means(d, np.arange(len(d)), asked, (), 0.05)
        found = answers(asked, d, p, 0.05, 0.05, 0.95, True)
        claims = [question.kind in ("faster", "slower") for question in found]
        return bool((p <= 0.05).any()), claims, [q.ratio.low < 1 < q.ratio.high for q in found]

    rows = []
    for shape in ("log-normal", "heavy-tailed (t3)", "skewed logs", "a tenth at a third"):
        for n in (6, 8, 10, 30):
            null = [one(drawn(shape, n)) for _ in range(campaigns)]
            real = [one(drawn(shape, n) + np.log(1.05))[1] for _ in range(campaigns)]
            shares = (
                np.mean([means for means, *_ in null]),
                np.mean([any(claims) for _, claims, _ in null]),
                np.mean([covers for *_, covers in null]),
                np.mean([claims[0] for claims in real]),
                np.mean([claims[1:] for claims in real]),
            )
            rows.append([shape, str(n), *(f"{share:.0%}" for share in shares)])
    yield (
        f"## All cells together, and patterns: {campaigns} campaigns of {cells} cells in "
        f"{patterns} patterns\n\n"
        "One target varies with that shape by 5 %, the other not; blocks vary by 2 %. A tenth at a "
        "third: both vary alike, and a tenth of one target's runs has a third of its speed; the "
        "medians of both are equal. Campaigns with any such claim where nothing differs: by the "
        "blocks' means alone, and as made; how often the 95 % interval holds the truth; and how "
        "often a difference of 5 % in every cell is proven of all cells, of a pattern.\n"
    )
    head = ["shape", "n", "by means alone", "claimed", "covered", "power, all cells", "a pattern"]
    yield table(head, rows)


def screens(campaigns: int, cells: int = 24) -> Iterator[str]:
    """Every claim that one screen makes, of a difference and of none, where both can be false."""
    random, margin = np.random.default_rng(11), float(np.log1p(0.05))
    asked = [Subject("", tuple(range(cells)))]
    size = cells // 4
    asked += [Subject(f"pattern {k}", tuple(range(k, k + size))) for k in range(0, cells, size)]
    rows = []
    for name, differ in (("none", 0.0), ("all", 1.0), ("half", 0.5)):
        truth = np.where(np.arange(cells) < differ * cells, margin, 0.0)
        truths = np.array([*truth, *(truth[[*q.columns]].mean() for q in asked)])
        for spread in (0.02, 0.05):
            for n in (6, 10, 30):
                found = [_said(random, truth, asked, n, spread) for _ in range(campaigns)]
                apart, alike = np.array(found).transpose(1, 0, 2)
                wrong = [apart & (truths == 0), alike & (truths >= margin)]
                right = [apart[:, :cells][:, truth > 0], alike[:, :cells][:, truth == 0]]
                shares = [claims.any(axis=1).mean() for claims in (*wrong, wrong[0] | wrong[1])]
                said = [f"{claims.mean():.0%}" if claims.size else "-" for claims in right]
                rows.append([name, f"{spread:.0%}", str(n), *(f"{s:.1%}" for s in shares), *said])
    yield (
        f"## All that one screen says: {campaigns} campaigns of {cells} cells\n\n"
        "Cells in 4 patterns, and all together; none, all or half of them differ by 5 %; each "
        "target varies by that spread, and blocks by 2 %. Campaigns with any false claim of cells, "
        "patterns or all: of a difference where there is none, of none larger than 5 %, of either "
        "(nominal: 5 %). Then the cells that differ and are called, and those that are alike and "
        "are said to be.\n"
    )
    head = ["differ", "spread", "n", "differs", "no difference", "either", "called", "said alike"]
    yield table(head, rows)


def _said(
    random: np.random.Generator, truth: Floats, asked: list[Subject], n: int, spread: float
) -> list[list[bool]]:
    """Which cells, and then questions, are called different; and which are said to be alike."""
    size = (n, truth.size)
    d = together(random, size, "log-normal", spread=spread)
    d += truth + 0.02 * random.standard_normal((n, 1))
    joint, p = of_means(d, np.arange(n), asked, (), 0.05)
    cells = [intervals.from_logs((column,)) for column in d.T]
    claims = truth.size + len(asked)
    found = verdict.verdicts(cells, 0.05, correction="max-t", together=joint, claims=claims)
    kinds = [v.kind for v in (*found, *answers(asked, d, p, 0.05, 0.05, 0.95, True))]
    return [[k in ("faster", "slower") for k in kinds], [k == "no difference" for k in kinds]]


def called(campaigns: int, cells: int = 48) -> Iterator[str]:
    """How much cells overstate a difference that were called since it looked large."""
    random, first = np.random.default_rng(10), signflips.look_level(0.05, 1)
    rows = []
    for percent in (5, 10, 20):
        truth = float(np.log1p(percent / 100))
        for n in (6, 10, 30):
            share, sizes, covers = [], list[float](), list[bool]()
            for _ in range(campaigns):
                d = together(random, (n, cells), "log-normal", truth)[:, : cells // 2]
                hits = d[:, signflips.max_t(d, first).p <= first]
                found = [intervals.from_logs((column,)) for column in hits.T]
                found = [ratio for ratio in found if ratio.differs]
                share.append(len(found) / d.shape[1])
                sizes += [np.log(ratio.ratio) / truth for ratio in found]
                covers += [ratio.low <= np.exp(truth) <= ratio.high for ratio in found]
            said = [f"{np.median(sizes):.2f}", f"{np.mean(covers):.0%}"] if sizes else ["-", "-"]
            rows.append([f"{percent} %", str(n), f"{np.mean(share):.0%}", *said])
    yield (
        f"## Cells that were called: {campaigns} campaigns of {cells // 2} cells that differ\n\n"
        "Each target varies by 5 %. Share of cells that are called at a first look; of these the "
        "median of the difference that is shown over the true one, on the log scale, and how often "
        "the 95 % interval beside it holds the true one. Where few are called they are those that "
        "chance made large.\n"
    )
    yield table(["difference", "n", "called", "shown over true", "covered"], rows)


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
                    spent = signflips.max_t_over_looks(d, np.arange(len(d)), turns, 0.05).p.min()
                    wrong += [
                        each[-1] <= 0.05,
                        min(each) <= 0.05,
                        spent <= signflips.look_level(0.05, len(turns)),
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
    yield from _spending(random, campaigns // 4)


def _spending(random: np.random.Generator, campaigns: int) -> Iterator[str]:
    """Power that looks cost which spend alpha."""
    rows = []
    for turns in TURNS:
        for cells, percent in ((16, 10), (48, 20)):
            called = np.zeros(4)
            for _ in range(campaigns):
                shift = float(np.log1p(percent / 100))
                d = together(random, (turns[-1], cells), "log-normal", shift)
                first, whole = (signflips.max_t(x, 0.05).p for x in (d[: turns[0]], d))
                spent = signflips.max_t_over_looks(d, np.arange(len(d)), turns, 0.05).p
                one, last = signflips.look_level(0.05, 1), signflips.look_level(0.05, len(turns))
                called += [
                    np.mean(p[: cells // 2] <= limit)
                    for p, limit in ((whole, 0.05), (whole, one), (spent, last), (first, one))
                ]
            shares = (f"{share:.0%}" for share in called / campaigns)
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
    yield table(["design", "n", "differs, Holm", "equal", "differs, uncorrected"], rows)


def null_study(campaigns: int = 500) -> Iterator[str]:
    """The claims of a whole study in campaigns without any effect."""
    wrong, decided = verdicts(campaigns)
    yield (
        f"## The claims of a whole study in {campaigns} campaigns without any effect\n\n"
        "The claims file `ssd-cluster` on 16 attachments that share their own effect (2 %, runs "
        "3 %): share of campaigns with any wrong verdict (nominal: at most 5 %), and claims that "
        "are decided, as most of them say that there is an effect.\n"
    )
    yield table(
        ["any wrong verdict", "claims decided, median", "fewest"],
        [[f"{np.mean(wrong):.1%}", f"{np.median(decided):.0f}", f"{min(decided)}"]],
    )
