"""Many targets: for each pattern their order by the largest median, and no verdict.

Pairs grow with the square of the targets, and a family of tests that large decides nothing: n
targets are n(n-1)/2 pairs, over whose cells every p would have to be corrected.  A ranking
costs one look at each cell.  It is no comparison, since its targets need not have done the same
work; in what they differ is said, and `compare` compares those that are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fsmatrix.analysis.data.roles import ROLES, Key, pattern_of
from fsmatrix.analysis.data.study import Study, Values
from fsmatrix.analysis.lessons.words import Lesson, cell_metric, measured, names
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.analysis.units import factor_title, labelled, metric_of
from fsmatrix.results.units import plural

MOST_SHOWN = 5  # targets of a ranking in its sentence; all of them are in its cells
NOTHING = of_independent([])
APART = "cache"  # states are never in one ranking


def ranked(of: Study, targets: Sequence[str]) -> list[Lesson]:
    """One lesson for each pattern: its targets, the largest median of each first.

    Of each phase's own metric, where the cells of the study hold it.
    """
    pairs = len(targets) * (len(targets) - 1) // 2
    why = (
        f"{len(targets)} targets are {pairs} pairs: `fsmatrix compare FILE --targets A,B` "
        "compares those that are named"
    )
    return [_lesson(of, key, order, why) for key, order in orders(of).items()]


def orders(of: Study) -> dict[Key, list[Values]]:
    """For each pattern the best cell of each target, the largest median first."""
    valued = [cell for cell in of.cells if _own(cell).kind != "none"]
    several = {n for n in ("workload", "phase", "engine", APART) if len(of.levels(n, valued)) > 1}
    groups: dict[Key, dict[str, Values]] = defaultdict(dict)
    for cell in valued:
        best = groups[pattern_of(cell.cell.levels, several) + _apart(cell, several)]
        best_so_far = best.get(cell.cell.target)
        if best_so_far is None or _own(cell).median > _own(best_so_far).median:
            best[cell.cell.target] = cell
    return {
        key: sorted(groups[key].values(), key=lambda cell: -_own(cell).median)
        for key in sorted(groups, key=lambda key: [str(level) for _, level in key])
    }


def _own(cell: Values) -> Median:
    """The median by which a cell is judged; none if it was not measured."""
    return cell.cell.metrics.get(cell_metric(cell), NOTHING)


def _apart(cell: Values, several: set[str]) -> Key:
    return ((APART, cell.level(APART)),) if APART in several else ()


def shown(order: Sequence[Values]) -> list[str]:
    """Each target of a ranking with its median."""
    metric = metric_of(cell_metric(order[0]), (cell.cell.levels for cell in order))
    return [f"{cell.cell.target} {measured(_own(cell), metric)}" for cell in order]


def _lesson(of: Study, key: Key, order: Sequence[Values], why: str) -> Lesson:
    every = shown(order)
    answer = (
        f"a ranking of {plural(len(order), 'target')} by the largest median of each, no "
        f"comparison: {', '.join(every[:MOST_SHOWN])}"
    )
    if len(order) > MOST_SHOWN:
        answer += f", ..., {every[-1]}"
    differs = _differing(of, order, key)
    if differs:
        answer += f"; they differ in {names(differs)} too"
    return Lesson(
        "backend",
        ", ".join(labelled(n, v) for n, v in key),
        key,
        Certainty.UNDECIDED.value,
        answer,
        Certainty.UNDECIDED,
        why,
        (),
        tuple(every),
    )


def _differing(of: Study, cells: Sequence[Values], key: Key) -> list[str]:
    """Factors beside the target in which the cells of a ranking differ."""
    ranked_by = {name for name, _ in key} | {"target", "pattern"}
    return [
        of.title(name) if name in ROLES else factor_title(name)
        for name in of.varying
        if name not in ranked_by and len({cell.level(name) for cell in cells}) > 1
    ]
