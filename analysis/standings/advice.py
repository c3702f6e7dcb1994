"""What to do next, with the command that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fsmatrix.analysis.comparison.advice import fewest_blocks
from fsmatrix.analysis.comparison.extension import Extension, Record, recorded
from fsmatrix.analysis.standings.standings import Standing, Standings
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.units import plural

FOLD = 4  # more blocks than so many times those that are there are no advice


def advice(standings: Standings, plan: JsonObject, place: str) -> tuple[str, str]:
    """What to do next and its command: what was lost first, then blocks, then other questions.

    `plan`: what the campaign says of itself; `place`: its results directory, quoted for a shell.
    """
    own = _record(standings)
    planned = replace(recorded(plan), queued=own.queued, there=own.there)
    lost = [why for cell in standings.cells if cell.state == "invalid" for _, why in cell.lost]
    if lost:
        failed = [why for why in lost if "failed" in why]
        if failed and planned.planned:
            again = replace(planned, queued=False).resume(place)
            return "Run again what failed:", f"{again} --retry-failed"
        return "See what was wrong there and how to fix it:", f"fsmatrix findings {place}"
    unsettled = [cell for cell in standings.cells if cell.state in ("likely", "unclear")]
    if not unsettled:
        return (
            "This choice needs no more measurements; for chunk size and processes:",
            f"fsmatrix lessons {place}",
        )
    return _blocks(standings, unsettled, planned, place)


def _blocks(
    standings: Standings, unsettled: Sequence[Standing], planned: Record, place: str
) -> tuple[str, str]:
    """Blocks that are planned and not there; else more, as many as prove half of what they can."""
    have = max(cell.blocks for cell in standings.cells)
    if planned.planned and max(have, planned.there) < planned.planned // planned.block:
        return "Finish the campaign first:", planned.resume(place)
    if planned.imported:
        return (
            "Imported runs are not known to be independent, so that none of them proves more; see "
            "the differences:",
            f"fsmatrix compare {place}",
        )
    more = _extension(standings, unsettled, have, planned)
    if not more.target:
        return (
            "More blocks would not soon settle what may be chance; see the differences:",
            f"fsmatrix compare {place}",
        )
    sentence = (
        f"Add {plural(more.target - have, 'block')} ({more.target} in all), {_what_for(more)}"
    )
    if not planned.planned:
        return (
            f"{sentence}, measured and imported in the same way; until then:",
            f"fsmatrix compare {place}",
        )
    return f"{sentence}:", planned.resume(place, more.repetitions)


def _extension(
    standings: Standings, unsettled: Sequence[Standing], have: int, planned: Record
) -> Extension:
    """Blocks for the cells that are likely, else for the others; no more than can be afforded."""
    enough = fewest(standings)
    cells = [cell for cell in unsettled if cell.state == "likely"] or unsettled
    needs = sorted(need for cell in cells if (need := _need(cell)) > have)
    near = [need for need in needs if need <= FOLD * have]
    if have < enough:
        near = [enough] * len(cells)
    elif cells[0].state == "likely":
        near = near or needs[:1]
    elif 2 * len(near) < len(cells):  # few of those that may be chance
        near = []
    return Extension(planned, have, tuple(near), len(cells), enough)


def _record(standings: Standings) -> Record:
    """What the campaign's record says of its blocks."""
    return standings.compared[0].record if standings.compared else Record()


def _what_for(more: Extension) -> str:
    if more.have < more.fewest_blocks:
        return "the fewest that can prove anything"
    count = sum(need <= more.target for need in more.needed)
    if more.cells == 1:
        return "which should settle the cell that is not proven yet"
    return f"which should settle about {count} of {more.cells} cells that are not proven yet"


def _need(cell: Standing) -> int:
    """Blocks that should settle a cell, by the pair of it that takes the most; 0 if unknown."""
    needed = [pair.cell.verdict.needed for pair in cell.pairs if pair.state == cell.state]
    counts = [n.needed for n in needed if n is not None and n.known and n.needed]
    return max(counts, default=0)


def fewest(standings: Standings) -> int:
    """Blocks of each target below which nothing can be proven."""
    return max((fewest_blocks(comparison) for comparison in standings.compared), default=0)
