"""How many attachments give an interval of a wanted width, from the data so far.

The width at s attachments is what the order-statistic interval of s values drawn from the data
would have on average.  The expected k-th of s values is a weighted sum of the n that are there,
with weights from the beta distribution (k, s + 1 - k) (Harrell and Davis, Biometrika 69, 1982),
so nothing is drawn at random.  The idea is CONFIRM's (Maricq et al., "Taming performance
variability", OSDI'18), which resamples and stops at the n that are there; this goes beyond n.
How sure the number is: the same for 200 bootstrap samples of the attachments.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates import medians
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.results.evidence.stored import Json

ALPHA = 0.05
FEWEST = 5  # attachments: below, their spread is not known well enough to plan with
MOST = 1000  # attachments that are still a plan
DOUBT = 3
CHANCE = 0.8  # of a verdict with as many blocks as are advised
SAMPLES = 200
RANGE = 0.8  # of the bootstrap samples lie in low..high


def smallest(level: float) -> int:
    """The fewest independent values whose interval of a median covers `level`."""
    return int(np.ceil(1 - np.log2(1 - level) - 1e-9))


def sizes(level: float) -> list[int]:
    """Sizes that are tried, from the smallest to MOST, at most 3 % apart."""
    least = smallest(level)
    steps = np.geomspace(least, MOST, max(int(np.log(MOST / least) / np.log(1.03)), 2))
    return [int(s) for s in np.unique(np.round(steps))]


@functools.cache
def _weights(n: int, level: float) -> Floats:
    """Weights of n ordered values in the expected lower end at each of `sizes`, [n, size].

    Mirrored they are those of the upper end.
    """
    edges = np.arange(n + 1) / n
    ends = []
    for size in sizes(level):
        k, weight, _ = medians.position(size, level)
        outer, inner = (scipy.special.betainc(i, size + 1 - i, edges) for i in (k, k + 1))
        ends.append((1 - weight) * outer + weight * inner)
    return np.diff(np.array(ends), axis=1).T


def half_widths(parts: tuple[Floats, ...], level: float) -> Floats:
    """Expected half width of the interval at each of `sizes(level)`, shape [..., size].

    `parts`: values [..., n], one array if paired or of one target, two if independent (each
    gets that many attachments, widths add in squares).
    """
    squares: Floats = np.zeros(1)
    for part in parts:
        ordered, weights = np.sort(part, axis=-1), _weights(part.shape[-1], level)
        squares = squares + ((ordered @ weights[::-1] - ordered @ weights) / 2) ** 2
    return np.asarray(np.sqrt(squares), dtype=np.float64)


@dataclass(frozen=True)
class Repetitions:
    """How many attachments (of each target) are needed in all; None: more than MOST, or unknown.

    `low` to `high`: 80 % of bootstrap samples of the data say a number in there.
    """

    have: int
    needed: int | None
    low: int | None
    high: int | None
    known: bool  # whether the data suffice to say
    never: str = ""  # why no more data would

    @property
    def more(self) -> int | None:
        """How many beyond those that are there."""
        return None if self.needed is None else max(self.needed - self.have, 0)

    @property
    def says(self) -> str:
        """The answer in words."""
        if self.never:
            return self.never
        if not self.known:
            least = f"at least {self.needed} in all; " if self.needed else ""
            return f"{least}how many is known from {FEWEST} attachments on, {self.have} are there"
        if self.needed is None:
            return f"more than {MOST} attachments"
        high = f"more than {MOST}" if self.high is None else str(self.high)
        low = f"more than {MOST}" if self.low is None else str(self.low)
        more = "enough are there" if not self.more else f"{self.more} more"
        return f"{more} ({self.needed} attachments in all, likely {low} to {high})"

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        kept = {name: value for name, value in asdict(self).items() if name != "never"}
        return kept | {"more": self.more, "says": self.says}


def for_width(
    values: npt.ArrayLike,
    attachments: npt.ArrayLike,
    half_width: float,
    level: float = LEVEL,
    seed: int = 0,
) -> Repetitions:
    """Attachments until the interval of the median is no wider than +- half_width.

    `values`, `attachments`: shape [run]; `half_width` is a share of the median, such as 0.02.
    """
    if half_width <= 0:
        raise ValueError(f"the half width must be positive, not {half_width}")
    reduced = medians.per_attachment(values, attachments)
    scale = np.abs(np.median(reduced)) if reduced.size else 1.0
    return for_parts((reduced,), float(half_width * scale), level, seed)


def for_parts(
    parts: tuple[Floats, ...], target: float, level: float = LEVEL, seed: int = 0
) -> Repetitions:
    """Attachments until the half width is at most `target`, in the unit of the parts' values.

    `parts`: independent values, as in `half_widths`.
    """
    have = min(part.size for part in parts)
    least = smallest(level)
    if have < FEWEST:
        return Repetitions(have, least, None, None, known=False)
    tried = sizes(level)
    random = np.random.default_rng(seed)
    drawn = tuple(part[random.integers(0, part.size, (SAMPLES, part.size))] for part in parts)
    needed = _first(half_widths(parts, level)[np.newaxis], tried, target)[0]
    spread = _first(half_widths(drawn, level), tried, target)
    low, high = np.quantile(spread, [(1 - RANGE) / 2, (1 + RANGE) / 2], method="nearest")
    numbers = [None if number > MOST else int(number) for number in (needed, low, high)]
    return Repetitions(have, numbers[0], numbers[1], numbers[2], known=True)


def lead(differences: Floats, spread: float) -> float:
    """The mean of log ratios, shape [block], as far as it is to be believed for a plan.

    `spread`: their standard deviation, which few blocks tell badly: as many cells together say.

    A lead that was looked for among others overstates what will be seen.  So DOUBT times what
    chance alone gives on average is taken off its square (positive-part shrinkage, James and
    Stein 1961; DOUBT by simulation: bench/simulations.py).
    """
    n = differences.size
    if n <= 3:
        return 0.0
    mean, noise = float(differences.mean()), spread**2 / n
    return float(np.sqrt(max(mean**2 - DOUBT * noise * (n - 1) / (n - 3), 0.0)))


def for_typical(
    differences: Floats, spread: float, target: float, share: float, seed: int = 0
) -> Repetitions:
    """Blocks until a t test at `share` is likely (CHANCE) to tell a mean of `target` from 0.

    `differences`: log ratios, shape [block]; `spread` as of `lead`.
    """
    have = differences.size
    least = smallest(1 - ALPHA)
    if have < FEWEST:
        return Repetitions(have, least, None, None, known=False)
    random = np.random.default_rng(seed)
    drawn = differences[random.integers(0, have, (SAMPLES, have))]
    tried = np.arange(least, MOST + 1)
    margin = scipy.special.ndtri(CHANCE) - scipy.special.stdtrit(tried - 1, share / 2)
    factor = margin / np.sqrt(tried)
    own = max(float(differences.std(ddof=1)), np.finfo(float).tiny)
    spreads = spread * np.array([1.0, *(drawn.std(axis=1, ddof=1) / own)])
    first = _first(factor * spreads[:, np.newaxis], tried.tolist(), target)
    low, high = np.quantile(first[1:], [(1 - RANGE) / 2, (1 + RANGE) / 2], method="nearest")
    numbers = [None if number > MOST else int(number) for number in (first[0], low, high)]
    return Repetitions(have, numbers[0], numbers[1], numbers[2], known=True)


def _first(widths: Floats, tried: list[int], target: float) -> npt.NDArray[np.int64]:
    """The first size in each row whose width is at most `target`; MOST + 1 without one."""
    enough = widths <= target
    first_enough = np.where(enough.any(axis=1), np.argmax(enough, axis=1), len(tried))
    return np.array([*tried, MOST + 1], dtype=np.int64)[first_enough]
