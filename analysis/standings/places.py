"""Many targets: their places by pattern, without a verdict (`lessons.ranking`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.lessons.ranking import orders, shown
from fsmatrix.analysis.units import labelled


@dataclass(frozen=True)
class Place:
    """Where a target stands in one pattern; 1 is the largest median."""

    pattern: str
    place: int
    of: int

    @property
    def says(self) -> str:
        """ "3 of 150 in seq-read"."""
        return f"{self.place} of {self.of}" + (f" in {self.pattern}" if self.pattern else "")


@dataclass(frozen=True)
class Places:
    """A ranking for each pattern, and the best and the worst place of each target."""

    rankings: tuple[tuple[str, tuple[str, ...]], ...]  # pattern, targets with medians
    ends: tuple[tuple[str, Place, Place], ...]  # target, best, worst; the best target first


def places(of: Study) -> Places:
    """Of all targets of a study; linear in its cells."""
    places_by_target: dict[str, list[Place]] = defaultdict(list)
    rankings = []
    for key, order in orders(of).items():
        pattern = ", ".join(labelled(name, level) for name, level in key)
        rankings.append((pattern, tuple(shown(order))))
        for place, cell in enumerate(order, 1):
            places_by_target[cell.cell.target].append(Place(pattern, place, len(order)))

    def share(place: Place) -> float:
        return place.place / place.of

    ends = [
        (name, min(shares, key=share), max(shares, key=share))
        for name, shares in places_by_target.items()
    ]
    return Places(tuple(rankings), tuple(sorted(ends, key=lambda e: (share(e[1]), share(e[2])))))
