"""Which target for which pattern: who wins, in which cells, and where it is the other way round.

The verdicts are those of `compare`, corrected over the cells of all pairs of targets.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import xarray as xr

from fsmatrix.analysis.comparison.advice import fewest_blocks
from fsmatrix.analysis.comparison.compare import DEFAULTS, comparisons
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.comparison.rows import ComparisonOptions
from fsmatrix.analysis.comparison.words import ahead
from fsmatrix.analysis.data.factors import several
from fsmatrix.analysis.data.roles import ROLES, Key, pattern_of
from fsmatrix.analysis.lessons.standings import overall
from fsmatrix.analysis.lessons.words import Lesson, names, times, unanswerable
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.words import few, inverted, unit
from fsmatrix.analysis.units import OWN, labelled
from fsmatrix.results.units import plural


@dataclass(frozen=True)
class PairwiseResult:
    """Two targets in one pattern; kinds of verdicts are of `a`."""

    a: str
    b: str
    whole: Comparison
    cells: tuple[Compared, ...]

    def wins(self, name: str) -> list[Compared]:
        """Cells in which a target is decided to be the better one."""
        kind = "faster" if name == self.a else "slower"
        return [cell for cell in self.cells if cell.kind == kind]

    @property
    def undecided(self) -> list[Compared]:
        """Cells that tell nothing."""
        return [cell for cell in self.cells if not cell.verdict.certainty.settled]

    def other(self, name: str) -> str:
        """The rival."""
        return self.b if name == self.a else self.a


def backend_lessons(
    targets: Sequence[str], comparisons: Sequence[Comparison], refused: list[str]
) -> tuple[list[Lesson], list[str]]:
    """(a lesson for each pattern and one for all, why some pairs were not compared).

    `targets`: two or more; `comparisons`, `refused`: as `pairs_compared` gives them.
    """
    if not comparisons:
        return [unanswerable("backend", why) for why in refused], []
    groups: dict[Key, list[PairwiseResult]] = defaultdict(list)
    apart = _varying([cell for comparison in comparisons for cell in comparison.cells])
    for comparison in comparisons:
        by_pattern: dict[Key, list[Compared]] = defaultdict(list)
        for cell in comparison.cells:
            by_pattern[pattern_of(cell.levels, apart)].append(cell)
        for key, cells in by_pattern.items():
            groups[key].append(PairwiseResult(comparison.a, comparison.b, comparison, tuple(cells)))
    ordered = sorted(groups, key=lambda key: [str(level) for _, level in key])
    lessons = [_lesson(key, groups[key]) for key in ordered]
    return [*lessons, *overall(comparisons, targets)], refused


def only_one(targets: Sequence[str], lost: Mapping[str, str]) -> Lesson:
    """The lesson where one target has a value at most; `lost`: the other ones, and why."""
    if not lost:
        answer = f"one target ({', '.join(targets)}): nothing to choose between"
        return unanswerable("backend", answer)
    answer = (
        f"no choice is possible: of {len(targets) + len(lost)} targets only "
        f"{', '.join(targets)} gave a result"
    )
    why = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
    return unanswerable("backend", answer, why=why)


def pairs_compared(
    ds: xr.Dataset, targets: Sequence[str], options: ComparisonOptions = DEFAULTS
) -> tuple[list[Comparison], list[str]]:
    """(comparisons of all pairs, each phase in its own metric; why some pairs have none).

    All together; if one of them is refused, each for itself at its share of alpha.
    """
    if len(targets) < 2:
        return [], []
    try:
        return list(comparisons(ds, OWN, sides=targets, options=options)), []
    except ValueError as error:
        if len(targets) == 2:
            return [], [str(error)]
    compared: list[Comparison] = []
    refused = []
    pairs = list(itertools.combinations(targets, 2))
    part = replace(options, alpha=options.alpha / len(pairs))
    for a, b in pairs:
        try:
            alone = comparisons(ds, OWN, sides=(a, b), options=part)
            compared += [
                replace(comparison, differences=None, questions=()) for comparison in alone
            ]  # not the others' blocks
        except ValueError as error:
            refused.append(f"{a} and {b} cannot be compared: {error}")
    return compared, refused


def _varying(cells: Sequence[Compared]) -> set[str]:
    return set(several([cell.levels for cell in cells]))


def _lesson(key: Key, duels: Sequence[PairwiseResult]) -> Lesson:
    contenders = list(dict.fromkeys(name for d in duels for name in (d.a, d.b)))
    beaten = {
        d.other(name) for d in duels for name in contenders if name in (d.a, d.b) and d.wins(name)
    }
    front = [name for name in contenders if name not in beaten]
    open_ = [cell for d in duels for cell in d.undecided]
    won = [cell for d in duels for name in (d.a, d.b) for cell in d.wins(name)]
    sure = Certainty.PROVEN
    choice: tuple[str, ...] = ()
    if not won:
        sure = Certainty.UNDECIDED if open_ else Certainty.EQUAL
        short = sure.value if open_ else "no difference"
        answer = _no_winner(duels)
        choice = () if open_ else tuple(contenders)
    elif len(front) == 1 and all(d.wins(front[0]) for d in duels if front[0] in (d.a, d.b)):
        short, choice = front[0], (front[0],)
        answer = f"{front[0]}, {_beats(front[0], duels)}"
    elif front:
        short, choice = " or ".join(front), tuple(front)
        answer = f"{' or '.join(front)} ({_between(front, duels)}); {_others(front, duels)}"
    else:
        short = "depends"
        answer = f"it depends: {_both_ways(duels)}"
    doubts = tuple(dict.fromkeys(doubt for cell in won or open_ for doubt in cell.doubts))
    return Lesson(
        "backend",
        ", ".join(labelled(n, v) for n, v in key),
        key,
        short,
        answer,
        sure,
        "" if (why := _open_words(duels)) in answer else why,
        choice,
        tuple(_stands_on(duels)),
        doubts,
        partly=bool(won and open_),
    )


def _beats(name: str, duels: Sequence[PairwiseResult]) -> str:
    """How much faster a target is than each other one, in how many cells."""
    sentences = []
    for d in duels:
        if name in (d.a, d.b):
            wins = d.wins(name)
            alike = sum(cell.kind == "no difference" for cell in d.cells)
            rest = f", no difference in {alike}" if alike else ""
            every = len(wins) == len(d.cells) > 1
            cells = f"{'all ' if every else f'{len(wins)} of '}{plural(len(d.cells), 'cell')}{rest}"
            sentences.append(
                f"{_better(d)} than {d.other(name)} in {cells}: {_span(d, name, wins)}"
            )
    return "; ".join(sentences)


def _better(d: PairwiseResult) -> str:
    return "faster" if d.whole.metric.more_is_better else "lower"


def _span(d: PairwiseResult, name: str, cells: Sequence[Compared]) -> str:
    """The smallest and the largest ratio with their cells, seen from `name`."""
    apart = sorted(cells, key=lambda cell: _factor(d, name, cell).ratio)
    inside = _varying(d.cells)
    shown = []
    for cell in dict.fromkeys((id(apart[0]), id(apart[-1]))):
        at_end = next(c for c in apart if id(c) == cell)
        where = _named(at_end, inside)
        shown.append(f"{times(_factor(d, name, at_end))} times" + (f" ({where})" if where else ""))
    return " to ".join(shown)


def _factor(d: PairwiseResult, name: str, cell: Compared) -> Ratio:
    """The ratio as `name` over its rival."""
    return cell.ratio if name == d.a else inverted(cell.ratio)


def _named(cell: Compared, varying: set[str]) -> str:
    hidden = {"workload", "phase", *ROLES["pattern"]}
    if "processes_per_node" in varying:
        hidden.add("processes")
    return ", ".join(
        labelled(n, v)
        for n, v in cell.levels.items()
        if n in varying and n not in hidden and v != ""
    )


def _no_winner(duels: Sequence[PairwiseResult]) -> str:
    """Nothing is decided, or all are alike."""
    tolerance = 100 * duels[0].whole.tolerance
    sentences = []
    for d in duels:
        alike = sum(cell.kind == "no difference" for cell in d.cells)
        same = f"{d.a} and {d.b}: no difference larger than {tolerance:.3g} % in"
        if alike == len(d.cells):
            sentences.append(f"{same} {plural(alike, 'cell')}")
            continue
        rest = [cell for cell in d.cells if cell.kind != "no difference"]
        rest_ahead = ahead(d.a, d.b, rest, d.whole.metric.more_is_better, against=True)
        sentences.append(f"{same} {alike} of {len(d.cells)}; {rest_ahead}" if alike else rest_ahead)
    return "; ".join(sentences)


def _between(front: Sequence[str], duels: Sequence[PairwiseResult]) -> str:
    """What is known between those that nobody beats."""
    inner = [d for d in duels if d.a in front and d.b in front]
    if not inner:
        return "which no target is shown to beat"
    if all(cell.kind == "no difference" for d in inner for cell in d.cells):
        return f"no difference larger than {100 * inner[0].whole.tolerance:.3g} % between them"
    cells = [cell for d in inner for cell in d.cells if cell.kind != "no difference"]
    if len(inner) > 1:
        return f"undecided which of them in {plural(len(cells), 'cell')}"
    (d,) = inner
    return ahead(d.a, d.b, cells, d.whole.metric.more_is_better, against=True)


def _others(front: Sequence[str], duels: Sequence[PairwiseResult]) -> str:
    sentences = [
        f"{name} is {_better(d)} than {d.other(name)} in {len(d.wins(name))} of "
        f"{len(d.cells)} cells"
        for name in front
        for d in duels
        if name in (d.a, d.b) and d.wins(name)
    ]
    return names(sentences, 4)


def _both_ways(duels: Sequence[PairwiseResult]) -> str:
    """For each pair with winners which cells decide which way."""
    sentences = []
    for d in duels:
        ways = []
        for name in (d.a, d.b):
            wins = d.wins(name)
            if wins:
                inside = _varying(d.cells)
                where = names([_named(cell, inside) or "the only cell" for cell in wins], 4)
                ways.append(
                    f"{name} is {_better(d)} than {d.other(name)} in {len(wins)} of "
                    f"{len(d.cells)} cells ({where}): {_span(d, name, wins)}"
                )
        sentences += ways
    return "; ".join(sentences)


def _open_words(duels: Sequence[PairwiseResult]) -> str:
    """Cells that nothing decides."""
    count = sum(len(d.cells) for d in duels)
    open_ = [cell for d in duels for cell in d.undecided]
    if not open_:
        return ""
    single = sum(cell.kind == "single" for cell in open_)
    if single == len(open_):
        return f"one value per cell in {single} of {count}: chance cannot be excluded"
    whole = duels[0].whole
    have = min(min(cell.ratio.units) for cell in open_)
    need = fewest_blocks(whole)
    parts = [f"{len(open_)} of {plural(count, 'cell')} undecided"] * (len(open_) < count)
    if have < need and not whole.record.imported:
        parts.append(few(have, need, unit(open_[0].ratio)))
    return "; ".join(parts)


def _stands_on(duels: Sequence[PairwiseResult]) -> list[str]:
    """Cells with their verdicts."""
    return [
        f"{d.a} against {d.b}, {_named(cell, _varying(d.cells)) or 'the only cell'}: {cell.says}"
        for d in duels
        for cell in d.cells
    ]
