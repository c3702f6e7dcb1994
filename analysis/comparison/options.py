"""What callers may choose about a comparison, a history or an acceptance test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis.comparison.rows import Levels
from fsmatrix.analysis.stats.testing.tests import ALPHA, Correction

TOLERANCE = 0.05


@dataclass(frozen=True)
class VerdictOptions:
    """Which runs are judged, in which unit, and by which test."""

    where: Levels | None = None  # only runs of these levels
    unit: str | None = None  # to show values in; None: one that fits them
    tolerance: float = TOLERANCE  # the share that is no difference that matters
    alpha: float = ALPHA  # of a false claim in all looks at the campaign
    correction: Correction = "holm"

    def __post_init__(self) -> None:
        """ValueError for a tolerance or an alpha that makes no sense."""
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"the tolerance must be positive, such as 0.05, not {self.tolerance}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, such as 0.05, not {self.alpha}")


def without_blocks(correction: Correction) -> Correction:
    """The correction where the two sides share no blocks, as campaigns do: Holm for max-t."""
    return "holm" if correction == "max-t" else correction


@dataclass(frozen=True)
class ComparisonOptions(VerdictOptions):
    """These, and in what the cells of a pair may differ beyond the two sides.

    `correction`: max-t where both sides of every cell share blocks; otherwise Holm takes its place.
    `ignore`: factors; `work_id`: options that are no factor.
    """

    correction: Correction = "max-t"
    across_engines: bool = False
    across_cache: bool = False
    ignore: Sequence[str] = ()
