"""Comparisons made together in a few lines: who is ahead over all cells, and a row a pattern.

Each pair is seen from the side that is ahead over all its cells; of times, less is ahead.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fsmatrix.analysis.comparison.compared import Compared, ComparedSides, mean_ratio
from fsmatrix.analysis.comparison.comparison_result import how_sure
from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.data.factors import Key, pattern_of, several
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.testing.verdict import CERTAINTY
from fsmatrix.analysis.units import labelled
from fsmatrix.results.units import plural

ALL = "all cells"
SAID = {
    Certainty.PROVEN: "proven",
    Certainty.EQUAL: "no difference larger than {x}",
    Certainty.UNDECIDED: "may be chance",
}
MOST_NAMED = 2  # proven cells of the other side that are named


@dataclass(frozen=True)
class Entry:
    """Some cells of one pair: the typical ratio of the side in front to the other."""

    ratio: float
    certainty: Certainty  # of these cells together
    proven: int  # single cells in which the side in front is proven ahead
    against: int  # and those in which the other one is
    cells: int
    whole: Ratio | None = None  # a over b in all of them, with its interval

    @property
    def says(self) -> str:
        """ "● +14 %, 2 of 4": how sure, by how much, and how many single cells are proven."""
        start = f"{self.certainty.mark} {words.short(self.ratio)}"
        if self.cells == 1:
            return start
        if self.against and not self.proven:
            return f"{start}, {self.against} of {self.cells} against"
        other = f", {self.against} against" * (self.against > 0)
        return f"{start}, {self.proven} of {self.cells}{other}"


@dataclass(frozen=True)
class Seen:
    """A pair from the side in front."""

    of: ComparedSides
    front: str
    behind: str

    @classmethod
    def pair(cls, of: ComparedSides) -> Seen:
        """From the side that is ahead over all cells, proven or not."""
        first = of.mean_ratio >= 1 if of.metric.more_is_better else of.mean_ratio <= 1
        return cls(of, of.a, of.b) if first else cls(of, of.b, of.a)

    def turned(self, ratio: float) -> float:
        """A ratio a / b as how many times the side in front is ahead."""
        return ratio if (self.front == self.of.a) == self.of.metric.more_is_better else 1 / ratio

    def ahead(self, cells: Sequence[Compared]) -> list[Compared]:
        """Cells in which the side in front is proven ahead."""
        kind = "faster" if self.front == self.of.a else "slower"
        return [cell for cell in cells if cell.kind == kind]

    def against(self, cells: Sequence[Compared]) -> list[Compared]:
        """Cells in which the other side is."""
        return Seen(self.of, self.behind, self.front).ahead(cells)

    @functools.cached_property
    def patterns(self) -> dict[Key, list[Compared]]:
        """The cells of each pattern, in their order."""
        groups: dict[Key, list[Compared]] = defaultdict(list)
        apart = set(several([cell.levels for cell in self.of.cells]))
        for cell in self.of.cells:
            groups[pattern_of(cell.levels, apart)].append(cell)
        return groups

    @staticmethod
    def named(key: Key) -> str:
        """A pattern in words."""
        return ", ".join(labelled(n, v) for n, v in key)

    def row_of(self, key: Key) -> str:
        """The row of a pattern: the only one has none beside that of all cells."""
        return self.named(key) if len(self.patterns) > 1 else ALL

    @functools.cached_property
    def rows(self) -> dict[str, Entry]:
        """Patterns in the order of the cells, then all cells together."""
        of, rows = self.of, {}
        asked = {question.named: question for question in of.questions}
        for key, cells in self.patterns.items() if len(self.patterns) > 1 else ():
            question = asked.get(self.named(key))
            if question is not None:
                entry = self._entry(cells, CERTAINTY[question.kind], question.ratio)
            elif len(cells) == 1:
                entry = self._entry(cells, cells[0].verdict.certainty, cells[0].ratio)
            else:  # tested without blocks: the cells alone are
                entry = self._entry(cells, Certainty.UNDECIDED, None)
            rows[self.named(key)] = entry
        whole = of.mean.mean if of.mean else None
        return rows | {ALL: self._entry(of.cells, CERTAINTY[of.mean_kind], whole)}

    def _entry(self, cells: Sequence[Compared], sure: Certainty, whole: Ratio | None) -> Entry:
        """`sure`: of all cells together; what is proven of each of them is of all."""
        ahead, against = len(self.ahead(cells)), len(self.against(cells))
        if max(ahead, against) == len(cells):
            sure = Certainty.PROVEN
        elif all(cell.verdict.certainty is Certainty.EQUAL for cell in cells):
            sure = Certainty.EQUAL
        elif sure is Certainty.INVALID:  # no block has all cells: no more is known than of each
            sure = Certainty.UNDECIDED
        ratio = whole.ratio if whole else mean_ratio(cells)
        return Entry(self.turned(ratio), sure, ahead, against, len(cells), whole)


def ranked(pairs: Sequence[Seen]) -> list[Seen]:
    """Those first whose side in front is so in most pairs."""
    wins = Counter(one.front for one in pairs)
    return sorted(pairs, key=lambda one: (-wins[one.front], -wins[one.behind]))


def overview(pairs: Sequence[Seen]) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): a column for each pair, a row for each pattern and one for all cells."""
    columns = [one.rows for one in pairs]
    names = list(dict.fromkeys(name for rows in columns for name in rows if name != ALL))
    rows = [
        [name, *(rows[name].says if name in rows else "" for rows in columns)]
        for name in (*names, ALL)
    ]
    return ["", *(f"{one.front} over {one.behind}" for one in pairs)], rows


def legend(pairs: Sequence[Seen]) -> str:
    """What the signs of an overview mean."""
    marks = {entry.certainty for pair in pairs for entry in pair.rows.values()}
    x = f"{100 * pairs[0].of.tolerance:.3g} %"
    shown = [f"{sure.mark} {text.format(x=x)}" for sure, text in SAID.items() if sure in marks]
    return (
        f"{', '.join(shown)}: of a row's cells together; 2 of 4: its single cells that are proven"
    )


def answer(pairs: Sequence[Seen]) -> str:
    """Who is the fastest over all cells together, by how much, how sure."""
    start = f"{pairs[0].of.title}, all cells together: "
    proven = [one for one in pairs if CERTAINTY[one.of.mean_kind] is Certainty.PROVEN]
    names = list(dict.fromkeys(name for one in pairs for name in (one.front, one.behind)))
    best = [name for name in names if sum(one.front == name for one in proven) == len(names) - 1]
    if best and len(names) > 1:
        by = [_lead(one) for one in proven if one.front == best[0]]
        return f"{start}{best[0]} is {listed(by)}, proven."
    if len(pairs) == 1:
        (one,) = pairs
        return f"{start}{one.front} is {_lead(one)}; {how_sure(one.of)}."
    parts = [f"{one.front} is {_lead(one)}" for one in proven]
    more = f"; proven: {listed(parts)}" if parts else ""
    return f"{start}nothing is proven to be ahead of all others{more}."


def counted(pairs: Sequence[Seen]) -> str:
    """How many cells are proven, and which of them point the other way than all together."""
    cells = sum(len(one.of.cells) for one in pairs)
    ahead = sum(len(one.ahead(one.of.cells)) for one in pairs)
    against = [(one, cell) for one in pairs for cell in one.against(one.of.cells)]
    what = plural(cells, "cell" if len(pairs) == 1 else "comparison")
    sentence = f"{ahead + len(against)} of {what} proven"
    if not against:  # the rows say how many, where none is
        return f"{sentence}, none of them the other way." if ahead else ""
    named = [
        f"{one.behind} over {one.front}{f' ({cell.named})' * bool(cell.named)}"
        for one, cell in against[:MOST_NAMED]
    ]
    more = len(against) - len(named)
    rest = f" and {more} more" if more > 0 else ""
    return f"{sentence}, {len(against)} the other way: {'; '.join(named)}{rest}."


def _lead(one: Seen) -> str:
    """By how much the side in front is ahead, and in how many blocks."""
    mean, better = one.of.mean, one.of.metric.more_is_better
    ratio = one.turned(mean.mean.ratio if mean else one.of.mean_ratio)
    by = words.lead(ratio if better else 1 / ratio, better, one.behind)
    return f"{by}{words.how_often(mean.mean)}" if mean else by
