"""Cells of a comparison from their ratios and verdicts, and the order in which they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis.comparison.cells import Matched
from fsmatrix.analysis.comparison.checks import (
    common,
    differing,
    named,
    shared,
)
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.rows import Levels, Table
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.estimates.medians import of_runs
from fsmatrix.analysis.stats.estimates.runs import Runs
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.pooled import Pooled
from fsmatrix.analysis.stats.testing.verdict import Verdict
from fsmatrix.analysis.units import Level


def varying_names(cells: Sequence[Levels]) -> list[str]:
    """Factors that tell cells apart; one that follows an earlier one comes only if it must."""
    names = list(dict.fromkeys(name for levels in cells for name in levels))
    first = ("workload", "pattern", "phase")
    names.sort(key=lambda n: first.index(n) if n in first else len(first))
    kept: list[str] = []
    for name in names:
        texts = {levels.get(name, "") for levels in cells}
        coarser = {tuple(levels.get(n, "") for n in kept) for levels in cells}
        finer = {tuple(levels.get(n, "") for n in (*kept, name)) for levels in cells}
        if len(texts) > 1 and len(finer) > len(coarser):
            kept.append(name)
    return kept


@dataclass(frozen=True)
class JudgedPair:
    """A cell of both sides: the ratio of their runs, and what is to be said of it."""

    ratio: Ratio
    a: Runs
    b: Runs
    verdict: Verdict
    doubts: tuple[str, ...]
    pooled: Pooled | None


def judged_cells(
    of: Table,
    matched_cells: Matched,
    names: tuple[str, str],
    varying: Sequence[str],
    pairs: Sequence[JudgedPair],
) -> tuple[Compared, ...]:
    """The cells of a pair of sides, in the order of the levels that vary."""
    cells, warned, same = [], shared(of, matched_cells.matches), common(matched_cells.matches)
    for match, pair, warns in zip(matched_cells.matches, pairs, warned, strict=True):
        parts = pair.ratio.parts
        sides = [of_runs(of.values[w], of.attachments[w]) for w in (match.a, match.b)]
        far = [
            f"a value of {name} is far from all others of its cell"
            for name, m in zip(names, sides, strict=True)
            if m.far
        ]
        cells.append(
            Compared(
                levels=match.levels,
                named=named(match, varying, same),
                apart=differing(match, same),
                differs=dict(match.differs),
                a=sides[0],
                b=sides[1],
                verdict=pair.verdict,
                effect=tests.effect(pair.a.logs, pair.b.logs),
                test=tests.signed_rank(parts[0]) if len(parts) == 1 else tests.mann_whitney(*parts),
                doubts=(*pair.doubts, *far),
                warned=(warns[0], warns[1]),
                both=warns[2],
                pooled=pair.pooled,
            )
        )
    order = {n: sorted({sortable(c.levels.get(n, "")) for c in cells}) for n in varying}
    return tuple(
        sorted(
            cells, key=lambda c: [order[n].index(sortable(c.levels.get(n, ""))) for n in varying]
        )
    )


def sortable(level: Level) -> tuple[int, float, str]:
    """A key that puts numbers, by their size, before texts."""
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")
