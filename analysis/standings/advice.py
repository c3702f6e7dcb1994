"""What to do next, with the command that does it."""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.analysis.comparison.advice import extension_of, fewest_blocks
from fsmatrix.analysis.comparison.extension import recorded
from fsmatrix.analysis.standings.standings import Standings
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.words import IMPORTED
from fsmatrix.results.evidence.values import JsonObject


def advice(standings: Standings, plan: JsonObject, place: str) -> tuple[str, str]:
    """What to do next and its command: what was lost first, then blocks, then other questions.

    `plan`: what the campaign says of itself; `place`: its results directory, quoted for a shell.
    """
    found = extension_of(standings.compared)
    own = recorded(plan)
    planned = replace(own, queued=found.record.queued, there=found.record.there)
    lost = [
        why for cell in standings.cells if cell.state is Certainty.INVALID for _, why in cell.lost
    ]
    if lost:
        failed = [why for why in lost if "failed" in why]
        if failed and planned.planned:
            again = replace(planned, queued=False).resume(place)
            return "Run again what failed:", f"{again} --retry-failed"
        return "See what was wrong there and how to fix it:", f"fsmatrix findings {place}"
    cells = [cell for comparison in standings.compared for cell in comparison.cells]
    if all(cell.certainty.settled for cell in cells):
        return (
            "This choice needs no more measurements; for chunk size and processes:",
            f"fsmatrix lessons {place}",
        )
    if planned.imported:
        return f"{IMPORTED}; see the differences:", f"fsmatrix compare {place}"
    if not found.cells:
        return "See the differences:", f"fsmatrix compare {place}"
    more = replace(found, record=planned)
    if more.unfinished:
        return f"{more.advice}:", planned.resume(place)
    if not more.target:
        return f"{more.advice}; see the differences:", f"fsmatrix compare {place}"
    if not planned.planned:
        same = more.advice.replace("), ", "), measured and imported in the same way, ", 1)
        return f"{same}; until then:", f"fsmatrix compare {place}"
    return f"{more.advice}:", more.resume(place)


def fewest(standings: Standings) -> int:
    """Blocks of each target below which nothing can be proven."""
    return max((fewest_blocks(comparison) for comparison in standings.compared), default=0)
