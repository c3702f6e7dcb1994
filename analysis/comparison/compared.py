"""What was compared and found, of each cell and of all cells; and why cells may mislead.

Findings, spread, drift and modes of one side only raise doubts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsmatrix.analysis.comparison.counted_rows import Levels, Table, Where
from fsmatrix.analysis.comparison.extension import Record
from fsmatrix.analysis.comparison.family import Question
from fsmatrix.analysis.comparison.matched_cells import Alone, Match, Matched
from fsmatrix.analysis.data.columns import combined, plain
from fsmatrix.analysis.data.factors import rows_by_group
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates import variability
from fsmatrix.analysis.stats.estimates.intervals import GeometricMean, Ratio
from fsmatrix.analysis.stats.estimates.medians import (
    SMALLEST,
    Floats,
    Median,
    of_runs,
    per_attachment,
)
from fsmatrix.analysis.stats.estimates.runs import Runs
from fsmatrix.analysis.stats.testing import tests
from fsmatrix.analysis.stats.testing.effects import Effects
from fsmatrix.analysis.stats.testing.pooled import Pooled
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.stats.testing.verdict import Kind, Verdict, judge
from fsmatrix.analysis.units import Level, Metric, Unit, brief, labelled

SURE = 0.01  # corrected p below which a difference of spread, a drift or modes are said

OPPOSED = "typical ratio and medians point to different sides"
SINGLE = "one value on a side: chance cannot be told from a difference"
KINDS = {
    "faster": "faster", "slower": "slower", "no difference": "no difference larger than {x}",
    "too few": Certainty.UNDECIDED, "single": SINGLE, "no data": "no data",
}  # fmt: skip


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


def wins(ratios: Sequence[float], more_is_better: bool) -> tuple[int, int]:
    """How many ratios a / b say that a is the better one, and that b is; equal ones count not."""
    above, below = sum(r > 1 for r in ratios), sum(r < 1 for r in ratios)
    return (above, below) if more_is_better else (below, above)


@dataclass(frozen=True)
class Compared:
    """One cell: both medians and a / b.  `doubts`: why this cell may mislead."""

    levels: Levels
    named: str
    differs: dict[str, tuple[Level, Level]]
    a: Median
    b: Median
    verdict: Verdict
    effect: tests.EffectSize
    test: tests.Test
    doubts: tuple[str, ...]
    warned: tuple[bool, bool] = (False, False)  # audits warn of runs of a, of b
    apart: str = ""  # what differs between the sides in this cell, and not in all, in words
    both: tuple[str, ...] = ()  # audits that warn of both sides: they may cancel out, or not
    pooled: Pooled | None = None  # the ratio drawn towards those of the other cells

    @property
    def ratio(self) -> Ratio:
        """The ratio of the medians."""
        return self.verdict.interval

    @property
    def kind(self) -> str:
        """The verdict's kind, or `single`: a side has one value."""
        single = min(self.a.runs, self.b.runs) == 1 and self.ratio.kind == "one session"
        return "single" if single else self.verdict.kind

    @property
    def certainty(self) -> Certainty:
        """How sure it is who is ahead, or that nobody is.

        `likely`: there is no verdict, but the 95 % interval of this cell alone leaves out 1, and
        the lead is above the tolerance.
        """
        ratio, sure = self.ratio, self.verdict.certainty
        if sure.settled or not ratio.differs or OPPOSED in self.doubts:
            return sure
        small = max(ratio.ratio, 1 / ratio.ratio) <= 1 + self.verdict.x
        return sure if small else Certainty.LIKELY

    @property
    def says(self) -> str:
        """The verdict in a sentence."""
        return (
            f"{SINGLE} (ratio {brief(self.ratio.ratio)})"
            if self.kind == "single"
            else self.verdict.says
        )


def mean_ratio(cells: Sequence[Compared]) -> float:
    """The geometric mean of their ratios; NaN without any."""
    logs = [math.log(cell.ratio.ratio) for cell in cells if cell.ratio.ratio > 0]
    return math.exp(float(np.mean(logs))) if logs else math.nan


@dataclass(frozen=True)
class ComparedSides:
    """Side a against side b in one metric, in numbers and verdicts; ratios are a / b."""

    a: str
    b: str
    by: tuple[str, ...]
    metric: Metric
    unit: Unit
    tolerance: float
    alpha: float  # of all looks at the campaign together
    record: Record
    correction: Correction
    family: int  # cells over which p is corrected, of all comparisons made together
    cells: tuple[Compared, ...]
    mean: GeometricMean | None
    mean_missing: str  # why there is no mean with an interval
    questions: tuple[Question, ...]  # about all cells (named ""), each pattern; none without max-T
    differences: Floats | None  # log ratios [block, cell], of the same blocks in all comparisons
    effects: Effects
    spreads: tuple[Spread, ...]
    alone: tuple[Alone, ...]
    remarks: tuple[str, ...]
    varying: tuple[str, ...] = ()  # factors that tell the cells apart
    part: str = ""  # engine, data or metadata, if the sides have several comparisons
    # both sides ran on test beds of one machine: who is faster there says nothing of the systems
    one_machine: bool = False
    pairs: int = 1  # comparisons that were made together

    @property
    def title(self) -> str:
        """The metric, and of what cells."""
        return self.metric.title + (f" ({self.part})" if self.part else "")

    @property
    def counts(self) -> dict[str, int]:
        """Kind of verdict -> cells, those of `KINDS` in order."""
        counts = Counter(cell.kind for cell in self.cells)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    def word(self, kind: str) -> str:
        """A kind of verdict in words."""
        return KINDS[kind].format(x=f"{100 * self.tolerance:.3g} %")

    @property
    def ahead(self) -> tuple[int, int]:
        """Cells in which the median of a, of b is the better one, decided or not."""
        return wins([cell.ratio.ratio for cell in self.cells], self.metric.more_is_better)

    @property
    def mean_kind(self) -> Kind:
        """The verdict on the geometric mean: the first question, or without max-T a test apart."""
        if self.mean is None:
            return "no data"
        whole = next((question for question in self.questions if not question.named), None)
        if whole is not None:
            return whole.kind
        mean = self.mean.mean
        return judge(
            mean,
            min(self.pairs * mean.p, 1.0),
            min(self.pairs * mean.p_equal(self.tolerance), 1.0),
            self.tolerance,
            self.level,
            self.metric.more_is_better,
        )

    @property
    def mean_ratio(self) -> float:
        """The geometric mean of the cells' ratios; NaN without any."""
        return mean_ratio(self.cells)

    @property
    def level(self) -> float:
        """What this look at the campaign may spend of alpha."""
        return self.record.level(self.alpha)


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
        verdict, opposed = pair.verdict, _opposed(pair.verdict, *sides)
        if opposed and verdict.kind in ("faster", "slower"):
            verdict = replace(verdict, kind="too few")
        cells.append(
            Compared(
                levels=match.levels,
                named=named(match, varying, same),
                apart=differing(match, same),
                differs=dict(match.differs),
                a=sides[0],
                b=sides[1],
                verdict=verdict,
                effect=tests.effect(pair.a.logs, pair.b.logs),
                test=tests.signed_rank(parts[0]) if len(parts) == 1 else tests.mann_whitney(*parts),
                doubts=(*pair.doubts, *far, *[OPPOSED] * opposed),
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


def _opposed(verdict: Verdict, a: Median, b: Median) -> bool:
    """Whether the typical ratio, of some size, and the medians say different things of a and b."""
    ratio, medians = verdict.interval.ratio, a.median / b.median
    large = max(ratio, 1 / ratio, medians, 1 / medians) > 1 + verdict.x
    return (verdict.kind in ("faster", "slower") or large) and (ratio - 1) * (medians - 1) < 0


def sortable(level: Level) -> tuple[int, float, str]:
    """A key that puts numbers, by their size, before texts."""
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")
