"""How likely a planned campaign proves a difference, and how many blocks that takes.

Campaigns are simulated with a fixed seed and judged as `compare` does where targets share blocks:
max-T over the cells at the level of a first look, and the interval of the medians.  Half of the
cells differ by the asked share; log ratios are normal, and independent between cells.  What
`compare` asks beside the cells (patterns, all together) is left out: it costs them little.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import xarray as xr

from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.comparison.counted_rows import TOLERANCE
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates import medians
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

CHANCES = (0.8, 0.95)  # for which the blocks are looked for
MOST = 500  # blocks that are still a plan
FLIPS = 512  # of signs in one simulated campaign: all of 10 blocks
CAMPAIGNS = 60  # simulated, and as many more as
CELLS = 600  # that differ are wanted: 2 percentage points of standard error


@dataclass(frozen=True)
class Power:
    """What a planned number of blocks can prove.  `needed`: chance -> blocks; None: above MOST."""

    detect: float
    spread: str
    cells: int
    blocks: int
    chance: float
    needed: dict[float, int | None]

    @property
    def says(self) -> list[str]:
        """What can be proven by how many blocks."""
        size = f"{100 * self.detect:.3g} %"
        takes = " and ".join(
            f"{n if n else f'more than {MOST}'} blocks for {100 * chance:.0f} %"
            for chance, n in self.needed.items()
        )
        sentences = [
            f"A difference of {size} between two targets is proven with {self.blocks} blocks in "
            f"{100 * self.chance:.0f} % of the cells that have it; it takes {takes} "
            f"({self.spread}; {plural(self.cells, 'comparison')}, half of them with that "
            "difference)."
        ]
        if self.detect <= TOLERANCE:
            sentences.append(
                f"Below {100 * TOLERANCE:.3g} % `compare` calls a difference none that matters: "
                f"give it --tolerance {100 * self.detect / 2:.2g}% or so."
            )
        return sentences

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        needed = [{"chance": chance, "blocks": n} for chance, n in self.needed.items()]
        data: dict[str, Json] = plain(vars(self) | {"needed": needed, "says": self.says})
        return data


def power(detect: float, spread: str, spreads: Sequence[float], cells: int, blocks: int) -> Power:
    """What `blocks` prove of a difference of the share `detect` in `cells` comparisons.

    `spreads`: standard deviations of log ratios over blocks, drawn for the cells; `spread`: where
    they are from, in words.
    """
    shift = math.log1p(detect)
    values = np.asarray(spreads, dtype=np.float64)

    @functools.cache
    def chance(n: int) -> float:
        return proven(n, cells, shift, values)

    share = signflips.look_level(ALPHA, 1) / cells
    needed = {asked: _fewest(chance, asked, share) for asked in CHANCES}
    return Power(detect, spread, cells, blocks, chance(blocks), needed)


def of_cv(cv: float) -> tuple[str, list[float]]:
    """(words, spreads) of targets whose values vary by `cv` from block to block."""
    each = math.sqrt(math.log1p(cv**2))
    return f"values that vary by {100 * cv:.3g} % from block to block", [math.sqrt(2) * each]


def of_pilot(ds: xr.Dataset) -> tuple[str, list[float]]:
    """(words, spreads) as an earlier campaign's targets had them.

    ValueError if it has no two targets, or fewer than two blocks that they share.
    """
    compared = comparisons(ds)
    each = [
        signflips.spreads(comparison.differences)
        for comparison in compared
        if comparison.differences is not None
    ]
    every = np.concatenate(each) if each else np.empty(0)
    every = every[~np.isnan(every)]
    if not every.size:
        raise ValueError("no two targets share two blocks or more: their spread is not known")
    low, middle, high = 100 * np.quantile(every, [0.1, 0.5, 0.9]) / math.sqrt(2)
    return (
        f"values that vary by {middle:.2g} % from block to block in the typical cell, "
        f"{low:.2g} to {high:.2g} % in most, as in the pilot"
    ), every.tolist()


def proven(blocks: int, cells: int, shift: float, spreads: Floats, seed: int = 0) -> float:
    """Share of the cells `shift` apart (of log ratios) that `blocks` blocks prove to differ."""
    if blocks < SMALLEST:
        return 0.0
    random = np.random.default_rng([seed, blocks])
    differ = max(cells // 2, 1)
    level, campaigns = signflips.look_level(ALPHA, 1), max(CAMPAIGNS, CELLS // differ)
    called = 0
    for _ in range(campaigns):
        drawn = random.choice(spreads, cells) * random.standard_normal((blocks, cells))
        drawn[:, :differ] += shift
        p = signflips.max_t(drawn, level, FLIPS).p[:differ]
        for column in np.sort(drawn[:, :differ][:, p <= level], axis=0).T:
            called += medians.interpolated(column)[0] > 0
    return called / (campaigns * differ)


def _fewest(chance: Callable[[int], float], asked: float, share: float) -> int | None:
    """Fewest blocks, about, with that chance; None: more than MOST.

    The chance of a test whose statistic is nearly normal is that of c sqrt(blocks) - z: steps along
    that curve (`share`: two-sided, of one test) until a number is enough and one below is not.
    """
    z, wanted = float(-scipy.special.ndtri(share / 2)), float(scipy.special.ndtri(asked))
    low, high, blocks = SMALLEST - 1, MOST + 1, 2 * SMALLEST
    while high - low > max(1, low // 20):
        got = chance(blocks)
        low, high = (low, blocks) if got >= asked else (blocks, high)
        reached = float(scipy.special.ndtri(np.clip(got, 0.01, 0.99)))
        step = blocks * ((z + wanted) / max(z + reached, 0.5)) ** 2
        blocks = int(np.clip(round(min(step, 2 * MOST)), low + 1, max(high - 1, low + 1)))
    return high if high <= MOST else None
