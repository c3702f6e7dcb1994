"""Medians and ranges of submissions, by family, year and class of client nodes.

They describe what was submitted, on different hardware: no interval, no test, nobody ahead.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.analysis.studies.io500.families import NOT_TOLD
from fsmatrix.analysis.studies.io500.submissions import CLASSES, NO_CLASS, Submission

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
