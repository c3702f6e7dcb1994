"""Submissions described: medians and ranges of groups of them, and correlations of IO500's phases.

Medians and ranges by family, year and class of client nodes describe what was submitted, on
different hardware: no interval, no test, nobody ahead.

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
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fsmatrix.analysis.studies.io500.submissions import CLASSES, NO_CLASS, NOT_TOLD, Submission
from fsmatrix.results.formats.io500_text import PHASES, RANDOM_READ

TEN = 10  # client nodes of a list of its own, the number that most submissions have
FEWEST = 10  # submissions: fewer give no r
NAMES = (*PHASES, RANDOM_READ)
NORMAL = float(scipy.special.ndtri(0.975))

Key = tuple[str, ...]
# what is described: name -> value of a submission; None where it has none
SCORES: dict[str, Callable[[Submission], float | None]] = {
    "score": lambda submission: submission.score.total,
    "bandwidth score, GiB/s": lambda submission: submission.score.bandwidth,
    "metadata score, kIOPS": lambda submission: submission.score.rate,
}
# hard over easy; mdtest-easy reads nothing
HARD_OVER_EASY: dict[str, tuple[str, str]] = {
    name: (f"{program}-hard-{kind}", f"{program}-easy-{kind}")
    for name, program, kind in (
        ("data written", "ior", "write"), ("data read", "ior", "read"),
        ("files created", "mdtest", "write"), ("files looked up", "mdtest", "stat"),
        ("files deleted", "mdtest", "delete"),
    )
}  # fmt: skip


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


@dataclass(frozen=True)
class ValueRange:
    """Smallest, median and largest of some submissions' values; None without values."""

    submissions: int  # that have a value
    systems: int  # that they are of
    median: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """Submissions that share a key, and what is described of them."""

    key: Key
    submissions: int
    systems: int
    years: tuple[int, int] | None
    nodes: tuple[int, int] | None  # client nodes, smallest and largest
    ranges: Mapping[str, ValueRange]


def hard_over_easy(submission: Submission, name: str) -> float | None:
    """One of HARD_OVER_EASY of a submission; None where a phase is missing."""
    hard, easy = (submission.values.get(phase) for phase in HARD_OVER_EASY[name])
    return hard / easy if hard and easy else None


def rows(
    chosen: Iterable[Submission],
    key: Callable[[Submission], Key],
    measures: Mapping[str, Callable[[Submission], float | None]],
) -> tuple[Row, ...]:
    """A row for each key: families with the most submissions first, then years and classes."""
    members: dict[Key, list[Submission]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for submission in chosen:
        members[key(submission)].append(submission)
        sizes[submission.family] += 1
    order = sorted(
        members, key=lambda k: (k[0] == NOT_TOLD, -sizes[k[0]], k[0], [_place(p) for p in k[1:]])
    )
    return tuple(_row(key, members[key], measures) for key in order)


def of_ratios() -> dict[str, Callable[[Submission], float | None]]:
    """HARD_OVER_EASY as measures."""
    return {
        name: lambda submission, name=name: hard_over_easy(submission, name)  # type: ignore[misc]
        for name in HARD_OVER_EASY
    }


def _place(part: str) -> tuple[int, str]:
    """Classes by size, years by number, what is not told last."""
    names = [name for _, _, name in CLASSES]
    if part == NO_CLASS:
        return len(names), part
    return (names.index(part) if part in names else 0), part


def _row(
    key: Key,
    members: Sequence[Submission],
    measures: Mapping[str, Callable[[Submission], float | None]],
) -> Row:
    return Row(
        key=key,
        submissions=len(members),
        systems=len({submission.system for submission in members}),
        years=_ends([submission.year for submission in members if submission.year]),
        nodes=_ends([submission.nodes for submission in members if submission.nodes]),
        ranges={name: range_of(members, measure) for name, measure in measures.items()},
    )


def _ends(values: Sequence[int]) -> tuple[int, int] | None:
    return (min(values), max(values)) if values else None


def range_of(
    members: Sequence[Submission], measure: Callable[[Submission], float | None]
) -> ValueRange:
    """Of the submissions that have a value."""
    pairs = [
        (value, submission.system)
        for submission in members
        if (value := measure(submission)) is not None
    ]
    if not pairs:
        return ValueRange(0, 0, None, None, None)
    values = [value for value, _ in pairs]
    return ValueRange(
        len(values),
        len({system for _, system in pairs}),
        statistics.median(values),
        min(values),
        max(values),
    )
