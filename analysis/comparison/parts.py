"""Cells of a comparison that may share a mean: of one engine, and of data or of metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis.comparison.cells import Match
from fsmatrix.analysis.comparison.rows import Table

KINDS = {"bandwidth": "data", "iops": "metadata"}


@dataclass(frozen=True, order=True)
class WorkPart:
    """What the cells of one mean have in common."""

    metric: str  # that their phases are judged by: bandwidth before iops
    engines: tuple[str, str]  # of both sides

    def words(self, every: Sequence[WorkPart]) -> str:
        """It in words that tell it from the other parts; "" if there is no other."""
        words = (
            [" and ".join(dict.fromkeys(self.engines))]
            if len({p.engines for p in every}) > 1
            else []
        )
        if len({p.metric for p in every}) > 1:
            words.append(KINDS[self.metric])
        return ", ".join(words)


def parts_of(of: Table, matches: Sequence[Match]) -> dict[WorkPart, list[int]]:
    """Part -> places of its matches, sorted."""
    places: dict[WorkPart, list[int]] = defaultdict(list)
    engine = of.factors.get("engine")
    for place, match in enumerate(matches):
        first, second = (
            str(engine.levels[engine.codes[where[0]]]) if engine else ""
            for where in (match.a, match.b)
        )
        places[WorkPart(str(of.metrics[match.a[0]]), (first, second))].append(place)
    return dict(sorted(places.items()))
