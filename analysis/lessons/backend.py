"""Which target for which pattern, and over all cells: what `compare` says of each pair, as answers.

It tests nothing: verdicts are those of the rows of `compare` (comparison/overview.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import xarray as xr

from fsmatrix.analysis.comparison.compare import DEFAULTS, comparisons
from fsmatrix.analysis.comparison.compared import Compared, ComparedSides
from fsmatrix.analysis.comparison.comparison_result import Comparison, fewest_blocks
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.comparison.overview import ALL, Entry, Seen
from fsmatrix.analysis.data.factors import Key, pattern_of, several
from fsmatrix.analysis.lessons.lessons_words import Lesson, names, unanswerable
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import OWN
from fsmatrix.results.units import plural

TOGETHER = "all cells together"
NO_DIFFERENCE, DEPENDS = "no difference", "depends"


@dataclass(frozen=True)
class Duel:
    """Two targets in some cells; `seen` from the one that is ahead there, proven or not."""

    seen: Seen
    entry: Entry
    cells: Sequence[Compared]  # of a pattern; none over all cells

    @classmethod
    def of(cls, seen: Seen, row: str, cells: Sequence[Compared] = ()) -> Duel:
        """In the cells of a row of `compare`: a pattern, or ALL; `seen` from either side."""
        if seen.rows[row].ratio < 1:
            seen = Seen(seen.of, seen.behind, seen.front)
        return cls(seen, seen.rows[row], cells)

    @property
    def depends(self) -> bool:
        """Whether single cells prove both ways, and all of them together prove none."""
        both = min(self.entry.proven, self.entry.against) > 0 and bool(self.cells)
        return both and self.entry.certainty is Certainty.UNDECIDED

    @property
    def leans(self) -> bool:
        """Whether single cells prove one way, and all of them together prove none."""
        some = self.entry.proven > 0 == self.entry.against and bool(self.cells)
        return some and self.entry.certainty is Certainty.UNDECIDED

    @property
    def won(self) -> bool:
        """Whether the one is ahead: proven of all these cells, or of single ones."""
        return self.entry.certainty is Certainty.PROVEN or self.leans

    @property
    def lead(self) -> str:
        """By how much, in how many blocks, how sure: "14 % faster than ext4 in 6 of 7 blocks"."""
        better, behind = self.seen.of.metric.more_is_better, self.seen.behind
        whole = self.entry.whole
        if whole is None:
            return words.lead(self.entry.ratio if better else 1 / self.entry.ratio, better, behind)
        own = whole if self.seen.front == self.seen.of.a else words.inverted(whole)
        return words.whole(own, better, behind)

    @property
    def says(self) -> str:
        """The lead, in how many single cells it is proven too, and what is not proven."""
        text, entry = f"{self.seen.front} is {self.lead}", self.entry
        if self.entry.certainty is Certainty.EQUAL:
            return f"{text}: {self.seen.of.word('no difference')}"
        if self.leans:
            which = f"{entry.proven} of {entry.cells} single cells"
            return f"{text}: proven in {which}, over all of them it may be chance"
        if entry.cells > 1 and entry.proven + entry.against:
            text += f", in {entry.proven} of {entry.cells} single cells too"
            text += f", in {entry.against} the other way" * (entry.against > 0)
        if self.entry.certainty is Certainty.PROVEN:
            return text
        if self.depends:
            ways = ((self.seen.front, self.seen.ahead), (self.seen.behind, self.seen.against))
            return "; ".join(
                f"{name} is proven ahead in {len(some)} of {plural(entry.cells, 'cell')} "
                f"({names([cell.named for cell in some])})"
                for name, way in ways
                for some in (way(self.cells),)
            )
        unknown = words.CHANCE
        if entry.whole is not None:
            what = "these cells" if entry.cells > 1 else "this cell"
            unknown = words.not_proven(entry.whole, what)
        return f"{text}; {unknown}"


def winner(duels: Sequence[Duel], targets: Sequence[str]) -> str:
    """The target that is ahead of every other one, proven at least of cells; "" if none is."""
    proven = [duel.seen.front for duel in duels if duel.won]
    return next((name for name in targets if proven.count(name) == len(targets) - 1), "")


def together(comparisons: Sequence[Comparison]) -> dict[str, list[Duel]]:
    """Part of the work -> the duels over all its cells, of pairs with an interval for them."""
    parts: dict[str, list[Duel]] = {}
    for comparison in comparisons:
        if comparison.mean is not None and len(comparison.cells) > 1:
            parts.setdefault(comparison.part, []).append(Duel.of(Seen.pair(comparison), ALL))
    return parts


def backend_lessons(
    targets: Sequence[str], comparisons: Sequence[Comparison], refused: list[str]
) -> tuple[list[Lesson], list[str]]:
    """(a lesson for each pattern and one for all, why some pairs were not compared).

    `targets`: two or more; `comparisons`, `refused`: as `pairs_compared` gives them.
    """
    if not comparisons:
        return [unanswerable("backend", why) for why in refused], []
    patterns: dict[Key, list[Duel]] = {}
    apart = set(several([cell.levels for comparison in comparisons for cell in comparison.cells]))
    for comparison in comparisons:
        seen = Seen.pair(comparison)
        for key, cells in seen.patterns.items():
            duel = Duel.of(seen, seen.row_of(key), cells)
            patterns.setdefault(pattern_of(cells[0].levels, apart), []).append(duel)
    lessons = [
        _lesson(Seen.named(key), key, patterns[key], targets)
        for key in sorted(patterns, key=lambda key: [str(level) for _, level in key])
    ]
    if len(patterns) > 1:
        lessons += [
            _lesson(TOGETHER + f" of {part}" * bool(part), (), duels, targets)
            for part, duels in together(comparisons).items()
        ]
    return lessons, refused


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


def _lesson(where: str, key: Key, duels: Sequence[Duel], targets: Sequence[str]) -> Lesson:
    cells = [(duel.seen.of, cell) for duel in duels for cell in duel.cells]
    there = {name for duel in duels for name in (duel.seen.front, duel.seen.behind)}
    contenders = [name for name in targets if name in there]
    best = winner(duels, contenders)
    proven = [duel for duel in duels if duel.won]
    beaten = {duel.seen.behind for duel in proven}
    front = [name for name in contenders if name not in beaten]
    open_ = [duel for duel in duels if duel.entry.certainty is Certainty.UNDECIDED]
    sure, choice = Certainty.PROVEN, (best,) if best else tuple(front) if proven else ()
    short = best or " or ".join(front)
    if not proven:
        sure = Certainty.UNDECIDED if open_ else Certainty.EQUAL
        short = sure.value if open_ else NO_DIFFERENCE
        choice = () if open_ else tuple(contenders)
    some = any(duel.entry.proven + duel.entry.against for duel in open_)
    if len(duels) == 1 and duels[0].depends:
        sure, short = Certainty.PROVEN, DEPENDS
    own = [duel for duel in duels if duel.seen.front == best]
    answer = "; ".join(duel.says for duel in duels)
    if best:
        answer = f"{best}, {'; '.join(_of(duel) for duel in own)}"
    why = _too_few([cell for _, cell in cells], duels[0].seen.of) if open_ and not some else ""
    told = [cell for _, cell in cells if cell.kind in ("faster", "slower")]
    doubtful = told or [cell for _, cell in cells]
    return Lesson(
        "backend",
        where,
        key,
        short,
        answer,
        sure,
        "" if why in answer else why,
        choice,
        tuple(
            f"{c.a} against {c.b}, {cell.named or 'the only cell'}: {cell.says}"
            for c, cell in cells
        )
        or tuple(
            f"{d.seen.of.a} against {d.seen.of.b}: {plural(d.entry.cells, 'cell')}" for d in duels
        ),
        tuple(dict.fromkeys(doubt for cell in doubtful for doubt in cell.doubts)),
        partly=any(duel.leans for duel in proven) or bool(open_ and proven and not best),
    )


def _of(duel: Duel) -> str:
    """What a duel says, without who is ahead."""
    return duel.says.removeprefix(f"{duel.seen.front} is ")


def _too_few(cells: Sequence[Compared], of: ComparedSides) -> str:
    """Why cells that decide nothing cannot: one value each, or too few blocks."""
    if not cells:
        return ""
    single = sum(cell.kind == "single" for cell in cells)
    if single == len(cells):
        return f"one value per cell in {single} of {single}: chance cannot be excluded"
    have, need = min(min(cell.ratio.units) for cell in cells), fewest_blocks(of)
    if have >= need or of.record.imported:
        return ""
    return words.few(have, need, words.unit(cells[0].ratio))
