"""Rank correlations of IO500's phases over submissions.

Systems with many clients are fast in every phase, so phases correlate whatever else they share: the
same is computed among submissions with ten client nodes, and with one submission of each system,
since those of one system are not independent.  (Values per client node would not do: two numbers
divided by the same third correlate by that alone.)  Spearman's r; its interval, of one submission
per system, is of Fisher's z with the error of Bonett and Wright, "Sample size requirements for
estimating Pearson, Kendall and Spearman correlations", Psychometrika 65 (2000).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fsmatrix.analysis.studies.io500.submissions import Submission
from fsmatrix.results.formats.io500_text import PHASES, RANDOM_READ

TEN = 10  # client nodes of a list of its own, the number that most submissions have
FEWEST = 10  # submissions: fewer give no r
NAMES = (*PHASES, RANDOM_READ)
NORMAL = float(scipy.special.ndtri(0.975))


@dataclass(frozen=True)
class PhasePair:
    """Spearman's r of two phases; None below FEWEST submissions that have both."""

    a: str
    b: str
    submissions: int
    r: float | None  # over all submissions
    systems: int
    r_systems: float | None  # one submission of each system, the newest
    low: float | None  # of r_systems, 95 %
    high: float | None
    tens: int  # systems that have submitted with TEN client nodes
    r_ten: float | None  # one submission of each of them, with so many


def pairs(submissions: Sequence[Submission]) -> tuple[PhasePair, ...]:
    """Of every two phases."""
    newest = one_per_system(submissions)
    tens = one_per_system([submission for submission in submissions if submission.nodes == TEN])
    return tuple(
        _pair(a, b, submissions, newest, tens) for a, b in itertools.combinations(NAMES, 2)
    )


def one_per_system(submissions: Sequence[Submission]) -> list[Submission]:
    """The newest of each system; of one year the one whose number is the highest."""
    newest: dict[str, Submission] = {}
    for submission in sorted(submissions, key=lambda s: (s.year or 0, len(s.name), s.name)):
        newest[submission.system] = submission
    return list(newest.values())


def _pair(
    a: str,
    b: str,
    every: Sequence[Submission],
    newest: Sequence[Submission],
    tens: Sequence[Submission],
) -> PhasePair:
    count, r = _spearman(a, b, every)
    systems, r_systems = _spearman(a, b, newest)
    low, high = _interval(r_systems, systems)
    return PhasePair(a, b, count, r, systems, r_systems, low, high, *_spearman(a, b, tens))


def _spearman(a: str, b: str, chosen: Sequence[Submission]) -> tuple[int, float | None]:
    """(submissions that have both phases, r)."""
    both = [
        submission for submission in chosen if a in submission.values and b in submission.values
    ]
    if len(both) < FEWEST:
        return len(both), None
    x, y = (np.array([submission.values[name] for submission in both]) for name in (a, b))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return len(both), None
    return len(both), float(scipy.stats.spearmanr(x, y).statistic)


def _interval(r: float | None, count: int) -> tuple[float | None, float | None]:
    if r is None or abs(r) >= 1:
        return r, r
    reach = NORMAL * math.sqrt((1 + r * r / 2) / (count - 3))
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)
