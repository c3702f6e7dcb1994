"""Why cells of a comparison may mislead: findings, spread, drift, modes of one side only."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.analysis.comparison.cells import Match
from fsmatrix.analysis.comparison.rows import Table, Where
from fsmatrix.analysis.data.columns import combined, plain
from fsmatrix.analysis.data.factors import rows_by_group
from fsmatrix.analysis.stats.estimates import variability
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats, per_attachment
from fsmatrix.analysis.stats.estimates.runs import Runs
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.units import Level, brief, labelled

SURE = 0.01  # corrected p below which a difference of spread, a drift or modes are said


@dataclass(frozen=True)
class Spread:
    """How the runs of one side vary within cells: coefficients of variation."""

    side: str
    cells: int  # with two runs or more
    typical: float  # median over cells
    worst: float
    worst_cell: str

    @property
    def says(self) -> str:
        """It in a sentence."""
        if not self.cells:
            return f"How much runs of {self.side} vary is not known: one run per cell."
        where = f" ({self.worst_cell})" if self.worst_cell else ""
        return (
            f"Runs of {self.side} vary by {brief(self.typical, 2)} % in the typical cell, by "
            f"{brief(self.worst, 2)} % in the worst{where}."
        )


@dataclass(frozen=True)
class State:
    """What one side's runs of one cell show; p as in `stats.variability`, NaN: too few."""

    runs: int
    cv: float  # per cent
    drift: float
    modes: float
    inside: float


@dataclass(frozen=True)
class Checked:
    """Both sides in every cell, in the order of the matches."""

    a: tuple[State, ...]
    b: tuple[State, ...]

    def at(self, places: Sequence[int]) -> Checked:
        """Those of some matches."""
        return Checked(tuple(self.a[i] for i in places), tuple(self.b[i] for i in places))


def checked(of: Table, matches: Sequence[Match]) -> Checked:
    """The state of every cell, its runs in the order in which they ran."""
    sides = ([_state(of, match.a) for match in matches], [_state(of, match.b) for match in matches])
    return Checked(*(_with_modes(side) for side in sides))


def _state(of: Table, where: Where) -> tuple[State, Floats]:
    """What the runs show, but for their modes; and the level of each attachment."""
    ordered = where[np.argsort(of.order[where], kind="stable")]
    values = of.values[ordered]
    group = combined([of.attachments[ordered]], ordered.size)[1]  # by their first run
    parts = [np.log(values[places]) for places in rows_by_group(group)]
    levels = per_attachment(np.log(values), group)
    state = State(
        runs=values.size,
        cv=100 * float(values.std(ddof=1) / values.mean()) if values.size > 1 else math.nan,
        drift=variability.trend(levels)[1],
        modes=math.nan,
        inside=variability.trend_inside(parts),
    )
    return state, levels


def _with_modes(side: Sequence[tuple[State, Floats]]) -> tuple[State, ...]:
    """With p of one mode, if it could decide anything in so many cells: it is a simulated one."""
    cells = sum(levels.size >= variability.FEWEST for _, levels in side)
    if cells * variability.SMALLEST_P >= SURE:
        return tuple(state for state, _ in side)
    return tuple(replace(state, modes=variability.p_of_one_mode(levels)) for state, levels in side)


def spreads_of(state: Checked, names: Sequence[str], sides: tuple[str, str]) -> tuple[Spread, ...]:
    """One for each side; `names` of the cells."""
    result = []
    for side, many in zip(sides, (state.a, state.b), strict=True):
        spreads = [(v.cv, name) for v, name in zip(many, names, strict=True) if v.runs > 1]
        worst, where = max(spreads, default=(math.nan, ""))
        typical = float(np.median([cv for cv, _ in spreads])) if spreads else math.nan
        result.append(Spread(side, len(spreads), typical, worst, where))
    return tuple(result)


def doubts_of(
    of: Table,
    matches: Sequence[Match],
    pairs: Sequence[tuple[Runs, Runs]],
    state: Checked,
    sides: tuple[str, str],
) -> list[tuple[str, ...]]:
    """For each cell why load from elsewhere, or a state that one side had, is suspected.

    p of spread, drift and modes are corrected over the cells (Holm) and must be below SURE.
    """
    spread = tests.correct([_spread_p(a, b) for a, b in pairs])
    measures: tuple[tuple[str, Callable[[State], float]], ...] = (
        ("becomes steadily faster or slower from block to block", lambda v: v.drift),
        ("has two typical speeds", lambda v: v.modes),
        ("becomes steadily faster or slower while attached", lambda v: v.inside),
    )
    corrected = {
        (what, side): tests.correct([p(v) for v in many])
        for what, p in measures
        for side, many in zip(sides, (state.a, state.b), strict=True)
    }
    result = []
    for i, (match, (a, b)) in enumerate(zip(matches, pairs, strict=True)):
        sentences = _one_sided(of, match, sides)
        if spread[i] < SURE:
            x, y = (100 * float(np.std(side.logs, ddof=1)) for side in (a, b))
            sentences.append(
                f"{sides[0]} varies by {brief(x, 2)} % between attachments, {sides[1]} by "
                f"{brief(y, 2)} %"
            )
        sentences += [f"{side} {what}" for (what, side), p in corrected.items() if p[i] < SURE]
        result.append(tuple(sentences))
    return result


def _spread_p(a: Runs, b: Runs) -> float:
    """p that attachments of both sides spread alike (Brown and Forsythe); NaN for few."""
    logs = (a.logs, b.logs)
    return variability.equal_spread(logs) if min(map(len, logs)) >= SMALLEST else math.nan


def _warned(of: Table, match: Match) -> tuple[set[str], set[str]]:
    """Audits whose findings concern runs of either side."""
    first, second = (
        {audit for row in of.index[where].tolist() for audit in of.notable.get(row, ())}
        for where in (match.a, match.b)
    )
    return first, second


def shared(of: Table, matches: Sequence[Match]) -> list[tuple[bool, bool, tuple[str, ...]]]:
    """For each cell: whether audits warn of a, of b, and which warn of both."""
    sides = [_warned(of, match) for match in matches]
    return [(bool(a), bool(b), tuple(sorted(a & b))) for a, b in sides]


def _one_sided(of: Table, match: Match, sides: tuple[str, str]) -> list[str]:
    """Audits whose findings concern one side's runs only."""
    audits = _warned(of, match)
    return [
        f"{audit} in {sides[i]} only" for i in (0, 1) for audit in sorted(audits[i] - audits[1 - i])
    ]


def versions(of: Table, matches: Sequence[Match], sides: tuple[str, str]) -> list[str]:
    """Engines and versions, where the sides used different ones."""
    if "engine_version" not in of.ds:
        return []
    column, engine = of.ds["engine_version"].values, of.factors.get("engine")
    seen: list[set[str]] = []
    for cells in ([m.a for m in matches], [m.b for m in matches]):
        use = np.concatenate(cells)
        names = plain(column[of.index[use]]).tolist()
        engines = [engine.levels[code] for code in engine.codes[use]] if engine else [""] * use.size
        seen.append({f"{e} {v}".strip() for e, v in zip(engines, names, strict=True)})
    if seen[0] == seen[1]:
        return []
    counts = " against ".join(
        f"{', '.join(sorted(s))} ({n})" for s, n in zip(seen, sides, strict=True)
    )
    return [f"Engines differ: {counts}."]


def common(matches: Sequence[Match]) -> dict[str, tuple[Level, Level]]:
    """What differs between the sides in the same way in all of several cells."""
    if len(matches) < 2:
        return {}
    others = matches[1:]
    return {
        name: pair
        for name, pair in matches[0].differs.items()
        if all(match.differs.get(name) == pair for match in others)
    }


def differing(match: Match, without: Collection[str] = ()) -> str:
    """What differs between the sides of a cell beside the compared factors, in words."""
    return ", ".join(
        f"{labelled(n, x)} against {labelled(n, y)}"
        for n, (x, y) in match.differs.items()
        if n not in without
    )


def named(match: Match, varying: Sequence[str], without: Collection[str] = ()) -> str:
    """A cell in words, with what differs between its sides; `without` what is said elsewhere."""
    apart = [differing(match, without)]
    return ", ".join(text for text in (match.named(varying), *apart) if text)
