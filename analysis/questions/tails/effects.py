"""How factors change a percentile of latency where the other factors are equal, in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.analysis import units
from fsmatrix.analysis.data.factors import OF_PHASES, follows_in, several
from fsmatrix.analysis.data.roles import by_size
from fsmatrix.analysis.stats.estimates.medians import SMALLEST, Floats
from fsmatrix.analysis.stats.testing import quantile_regression as regression
from fsmatrix.analysis.stats.testing.quantile_regression import Contrasts, Slope
from fsmatrix.analysis.stats.words import IMPORTED, few
from fsmatrix.analysis.units import Level, brief
from fsmatrix.results.formats.fio.options import LATENCIES
from fsmatrix.results.units import plural

Levels = Mapping[str, Level]
FEWEST_STEPS = 3  # levels of a number from which on growth per doubling is a fit and not a ratio


@dataclass(frozen=True)
class Part:
    """The same change among some cells only: `named` has their levels of the other factors."""

    named: str
    slope: Slope


@dataclass(frozen=True)
class Effect:
    """What one factor does to the percentile, over all levels of the others.

    `slope`: the ratio of `level` to `reference`; of a number with FEWEST_STEPS levels or more
    (`doubling`) that of each doubling from `reference` to `level`.
    """

    factor: str
    reference: Level
    level: Level
    doubling: bool
    slope: Slope
    compared: int  # sets of cells that differ in this factor only
    unlike: tuple[Part, ...] = ()  # those proven to differ from the typical one, lowest first
    steps: tuple[Part, ...] = ()  # first and last step, per doubling, where they are not alike

    @property
    def says(self) -> str:
        """The change in words."""
        low, high, slope, unlike = self.reference, self.level, self.slope, self.unlike
        if self.doubling:
            span = " to ".join(units.level_text(self.factor, level) for level in (low, high))
            title = units.factor_title(self.factor)
            sentence = f"each doubling of {title} from {span} makes it {_times(slope)}"
        else:
            if slope.ratio < 1:  # the slower one first
                low, high, slope = high, low, slope.turned
                unlike = tuple(Part(p.named, p.slope.turned) for p in reversed(unlike))
            names = [units.labelled(self.factor, level) for level in (high, low)]
            sentence = f"{names[0]} takes {_times(slope, f'as long as {names[1]}')}"
        if slope.decides and not slope.proven:
            sentence += ", may be chance"
        if self.steps:
            shown = [f"{brief(p.slope.ratio)} times {p.named}" for p in self.steps]
            sentence += f"; not evenly: per doubling {' and '.join(shown)}"
        if unlike:
            ends = list(dict.fromkeys((unlike[0], unlike[-1])))
            sentence += "; not alike everywhere: " + " to ".join(
                f"{brief(p.slope.ratio)} times ({p.named})" for p in ends
            )
        return sentence


@dataclass(frozen=True)
class Effects:
    """All factors, and why some have no number."""

    effects: tuple[Effect, ...]
    missing: tuple[tuple[str, str], ...]  # (factor, why)
    blocks: int  # that all cells which are compared have
    cells: int
    left_out: tuple[int, int]  # blocks, cells
    imported: bool = False  # no blocks can be added

    @property
    def says(self) -> list[str]:
        """One sentence for each factor; nothing where no factor varies."""
        sentences = []
        if self.effects:
            blocks = plural(self.blocks, "block")
            sentences.append(f"What changes it where the other factors are equal, in {blocks}:")
            sentences += [f"  {effect.says}." for effect in self.effects]
            if self.blocks < SMALLEST:
                why = IMPORTED if self.imported else few(self.blocks, what="blocks")
                sentences.append(f"{why}.")
        titles = ((units.factor_title(name), why) for name, why in self.missing)
        sentences += [f"What {title} changes cannot be said: {why}." for title, why in titles]
        blocks_out, cells_out = self.left_out
        if self.effects and (blocks_out or cells_out):
            out = f"{cells_out} of {self.cells + cells_out} cells and {blocks_out} of "
            sentences.append(
                f"Left out of that: {out}{self.blocks + blocks_out} blocks, so that each "
                "block has a number for each cell."
            )
        return sentences


def effects(levels: Sequence[Levels], logs: Floats, imported: bool = False) -> Effects:
    """What each factor that varies does to a quantile.

    levels: of each cell; logs: of the quantile in each block, [block, cell], NaN where there is
    none; imported: as of `Effects`.
    """
    finite = np.isfinite(logs)
    there = [i for i in range(len(levels)) if finite[:, i].any()]
    varying = several([levels[i] for i in there])
    if not varying:
        return Effects((), (), 0, 0, (0, 0))
    blocks, cells = regression.complete(finite)
    kept = [levels[int(i)] for i in cells]
    values = logs[np.ix_(blocks, cells)]
    contrasts, missing = [], []
    for name in varying:
        of_factor = _of_factor(name, varying, kept, values)
        if isinstance(of_factor, str):
            missing.append((name, of_factor))
        contrasts += [] if isinstance(of_factor, str) else of_factor
    shown = [(n, why) for n, why in missing if n not in OF_PHASES or "changes with" not in why]
    used = int(finite.any(axis=1).sum())
    return Effects(
        tuple(contrasts),
        tuple(shown),
        len(values),
        len(kept),
        (used - len(values), len(there) - len(kept)),
        imported,
    )


def _of_factor(
    name: str, varying: Sequence[str], cells: Sequence[Levels], logs: Floats
) -> list[Effect] | str:
    """The effects of one factor, one for each level beyond the first; or why there is none.

    Cells are compared that agree in all other factors but those that follow this one.
    """
    if name == LATENCIES:
        return "its levels are two definitions of latency"
    if len({str(cell[name]) for cell in cells}) < 2:
        return "no block has a number for two of its levels"
    others = [n for n in varying if n != name and not follows_in(cells, n, name)]
    alias = [n for n in varying if n != name and n not in others and follows_in(cells, name, n)]
    if earlier := [n for n in alias if varying.index(n) < varying.index(name)]:
        return f"it changes with {units.factor_title(earlier[0])}"
    series = defaultdict(list)
    for i, cell in enumerate(cells):
        series[tuple(str(cell[n]) for n in others)].append(i)
    groups = [places for places in series.values() if len(places) > 1]
    if not groups:
        owners = [units.factor_title(n) for n in others if follows_in(cells, name, n)]
        return (
            f"it changes with {owners[0]}"
            if owners
            else "no two of its levels were measured with the other factors equal"
        )
    shown = [n for n in others if len({str(cells[places[0]][n]) for places in groups}) > 1]
    shown = [
        n
        for n in shown
        if n not in OF_PHASES
        or not any(follows_in(cells, n, o) for o in shown if o not in OF_PHASES)
    ]
    of = _Comparison(name, cells, logs, groups, shown)
    return [of.doubling()] if of.numeric else of.ratios()


@dataclass(frozen=True)
class _Comparison:
    """Groups of cells that differ in one factor only."""

    name: str
    cells: Sequence[Levels]
    logs: Floats  # [block, cell]
    groups: Sequence[Sequence[int]]
    others: Sequence[str]  # factors that tell the groups apart

    @property
    def levels(self) -> list[Level]:
        by_text = {str(c[self.name]): c[self.name] for g in self.groups for c in self._of(g)}
        return sorted(by_text.values(), key=by_size)

    @property
    def numeric(self) -> bool:
        levels = self.levels
        numbers = all(not isinstance(level, str) and level > 0 for level in levels)
        return numbers and len(levels) >= FEWEST_STEPS

    def doubling(self) -> Effect:
        """Of a number: growth per doubling."""
        levels = self.levels
        growth = regression.contrasts(self.logs, [(g, self._sloping(g)) for g in self.groups])
        return Effect(
            self.name,
            levels[0],
            levels[-1],
            True,
            regression.slope(growth),
            len(self.groups),
            self._unlike(growth, self.groups),
            self._uneven(levels),
        )

    def ratios(self) -> list[Effect]:
        """Each level over the first one."""
        first, *others = self.levels
        slopes = []
        for level in others:
            groups = [g for g in self.groups if {str(first), str(level)} <= self._have(g)]
            if groups:
                ratio = self._between(groups, first, level)
                slopes.append(
                    Effect(
                        self.name,
                        first,
                        level,
                        False,
                        regression.slope(ratio),
                        len(groups),
                        self._unlike(ratio, groups),
                    )
                )
        return slopes

    def _uneven(self, levels: Sequence[Level]) -> tuple[Part, ...]:
        """Growth per doubling in the first and the last step, where they differ beyond chance."""
        whole = [g for g in self.groups if len(self._have(g)) == len(levels)]
        if not whole:
            return ()
        ends = ((levels[0], levels[1]), (levels[-2], levels[-1]))
        first, last = (self._between(whole, low, high, doubling=True) for low, high in ends)
        if not regression.slope(last - first).proven:
            return ()
        texts = [[units.level_text(self.name, level) for level in end] for end in ends]
        return tuple(
            Part(f"from {low} to {high}", regression.slope(step))
            for (low, high), step in zip(texts, (first, last), strict=True)
        )

    def _unlike(self, of: Contrasts, groups: Sequence[Sequence[int]]) -> tuple[Part, ...]:
        parts = [
            Part(self._named(groups[i]), regression.slope(of.of(i))) for i in regression.unlike(of)
        ]
        return tuple(sorted(parts, key=lambda part: part.slope.ratio))

    def _sloping(self, group: Sequence[int]) -> Floats:
        """Weights of least squares over the log2 of a group's levels."""
        return regression.weights([math.log2(float(cell[self.name])) for cell in self._of(group)])

    def _between(
        self, groups: Sequence[Sequence[int]], low: Level, high: Level, *, doubling: bool = False
    ) -> Contrasts:
        """One level over another one in each group, or per doubling of the level."""
        share = 1 / math.log2(float(high) / float(low)) if doubling else 1.0
        series = []
        for group in groups:
            names = [str(cell[self.name]) for cell in self._of(group)]
            signs = [(name == str(high)) - (name == str(low)) for name in names]
            series.append((group, share * np.array(signs, dtype=np.float64)))
        return regression.contrasts(self.logs, series)

    def _of(self, group: Sequence[int]) -> list[Levels]:
        return [self.cells[i] for i in group]

    def _have(self, group: Sequence[int]) -> set[str]:
        return {str(cell[self.name]) for cell in self._of(group)}

    def _named(self, group: Sequence[int]) -> str:
        cell = self.cells[group[0]]
        return units.described(cell, self.others) or "all"


def _times(slope: Slope, than: str = "as long") -> str:
    sentence = f"{brief(slope.ratio)} times {than}"
    if slope.decides:
        sentence += f" (95 % sure: {brief(slope.low)} to {brief(slope.high)})"
    return sentence
