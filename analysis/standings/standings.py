"""Where each target stands in every cell of a campaign, from the comparisons that were made."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from fsmatrix.analysis.comparison.compared import Compared, varying_names
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.study import Values, per_attachment
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.standings.standing import (
    Order,
    Pair,
    certain,
    ordered,
    pair,
    weakest,
)
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import (
    Level,
    Metric,
    is_size,
    labelled,
    level_text,
    metric_of,
    own_metric,
)
from fsmatrix.results.evidence.values import Json

PER = " per node"
LED = (Certainty.PROVEN, Certainty.LIKELY)  # somebody is ahead
SIDE = ("target",)  # never what tells cells apart
Key = tuple[Level, ...]


@dataclass(frozen=True)
class Standing:
    """One cell: who is ahead, by how much, how sure, and on what it stands."""

    levels: Mapping[str, Level]  # of what tells the cells apart
    named: str  # they in words
    metric: Metric
    order: Order
    values: tuple[Values, ...]  # of each target with a value, the best median first
    pairs: tuple[Pair, ...]
    lost: tuple[tuple[str, str], ...]  # target without a valid value, and why
    doubts: tuple[str, ...]  # audits that warn, with their targets; then other doubts

    @property
    def state(self) -> Certainty:
        """How sure it is; `invalid`: fewer than two targets have a valid value, others lost it."""
        lost = self.lost and len(self.values) < 2
        return Certainty.INVALID if lost else self.order.state

    @property
    def leaders(self) -> tuple[str, ...]:
        """Who is ahead; nobody where that cannot be told."""
        return self.order.leaders if self.state in LED else ()

    @property
    def proven(self) -> tuple[str, ...]:
        """Who is proven to be ahead of all others: a lead that is likely is none in words."""
        return self.leaders if self.state is Certainty.PROVEN else ()

    @property
    def margin(self) -> float:
        """By how much the leaders are ahead of everybody behind them, at least; NaN without."""
        margins = [
            pair.over(first)
            for first in self.leaders
            for pair in self.pairs
            if first in (pair.a, pair.b) and pair.other(first) not in self.leaders
        ]
        return min(margins, default=float("nan"))

    @property
    def blocks(self) -> int:
        """Independent values of the target that has the fewest."""
        return min((value.median.independent for value in self.values), default=0)

    def to_dict(self) -> dict[str, Json]:
        """How sure, who leads, the groups behind, and by how much, as a ratio."""
        data: dict[str, Json] = plain(
            {
                "certainty": self.state,
                # as it was called before there was one word for it
                "state": "unclear" if self.state is Certainty.UNDECIDED else self.state,
                "leaders": self.leaders,
                "groups": self.order.groups,
                "margin": self.margin,
            }
        )
        return data


@dataclass(frozen=True)
class Standings:
    """All cells of a campaign in which targets can be held against each other."""

    targets: tuple[str, ...]
    cells: tuple[Standing, ...]
    names: tuple[str, ...]  # factors that tell the cells apart
    compared: tuple[Comparison, ...]
    summary: Summary

    def of(self, cell: Cell) -> Standing | None:
        """The standing that a cell of the summary is part of; None of references."""
        return self._by_key.get(_key(cell.levels, self.names))

    @functools.cached_property
    def _by_key(self) -> dict[Key, Standing]:
        return {_key(cell.levels, self.names): cell for cell in self.cells}

    def count(self, *states: Certainty) -> int:
        """Cells in one of these states."""
        return sum(cell.state in states for cell in self.cells)


def standings(ds: xr.Dataset, summary: Summary, compared: Sequence[Comparison]) -> Standings:
    """The cells of a summary with what these comparisons of its targets say.

    Of few targets: `compared` are their pairs, each phase in its own metric; linear in the cells.
    """
    names = _names(summary, compared)
    pairs: dict[Key, dict[tuple[str, str], list[Compared]]] = defaultdict(lambda: defaultdict(list))
    for comparison in compared:
        for cell in comparison.cells:
            pairs[_key(cell.levels, names)][comparison.a, comparison.b].append(cell)
    targets = tuple(name for name in summary.targets if name not in summary.references)
    groups: dict[Key, list[Values]] = defaultdict(list)
    for values in _valued(ds, summary, targets):
        groups[_key(values.cell.levels, names)].append(values)
    several = varying_names([dict(zip(names, key, strict=True)) for key in groups])
    cells = tuple(
        _standing(dict(zip(names, key, strict=True)), several, values, pairs.get(key, {}))
        for key, values in groups.items()
    )
    return Standings(targets, cells, names, tuple(compared), summary)


def _names(summary: Summary, compared: Sequence[Comparison]) -> tuple[str, ...]:
    """What tells cells apart: what varies, without what differs between sides of one cell."""
    every = [cell for comparison in compared for cell in comparison.cells]
    return tuple(
        name
        for name in summary.varying
        if name not in SIDE and all(name in cell.levels for cell in every)
    )


def _key(levels: Mapping[str, Level], names: Iterable[str]) -> Key:
    """Levels that equal themselves: NaN is no key."""
    key = (levels.get(name, "") for name in names)
    return tuple(level if level == level else "" for level in key)


def _valued(ds: xr.Dataset, summary: Summary, targets: Sequence[str]) -> list[Values]:
    """The cells of these targets in the metric of their own phase, with their values."""
    cells = [cell for cell in summary.cells if cell.target in targets]
    data = rows(ds)
    by_metric = {name: per_attachment(data, name, cells) for name in ("bandwidth", "iops")}
    return [by_metric[_metric(cell)][place] for place, cell in enumerate(cells)]


def _metric(cell: Cell) -> str:
    """As `compare` judges it: data without bytes by operations per second too."""
    name = own_metric(str(cell.levels.get("engine", "")), str(cell.levels.get("phase", "")))
    return "iops" if not cell.metrics[name].runs and cell.metrics["iops"].runs else name


def _standing(
    levels: Mapping[str, Level],
    several: Sequence[str],
    every: Sequence[Values],
    compared: Mapping[tuple[str, str], Sequence[Compared]],
) -> Standing:
    values = sorted((cell for cell in every if cell.values.size), key=lambda v: -v.median.median)
    have = list(dict.fromkeys(value.cell.target for value in values))
    pairs = [weakest([pair(a, b, cell) for cell in cells]) for (a, b), cells in compared.items()]
    proven = ordered(have, [certain(pair) for pair in pairs])  # what is only likely hides it not
    lost = [(cell.cell.target, _why(cell.cell)) for cell in every if cell.cell.target not in have]
    metrics = {_metric(cell.cell) for cell in (values or every)}
    return Standing(
        levels=levels,
        named=", ".join(level_words(n, levels[n]) for n in several if levels[n] != ""),
        metric=metric_of(min(metrics), (cell.cell.levels for cell in every)),
        order=proven if proven.state is Certainty.PROVEN else ordered(have, pairs),
        values=tuple(values),
        pairs=tuple(pairs),
        lost=tuple(lost),
        doubts=_doubts(values, pairs),
    )


def level_words(name: str, level: Level) -> str:
    """A level in few words: "4 KiB", "2 processes"."""
    return level_text(name, level) if is_size(name) else labelled(name, level).removesuffix(PER)


def _doubts(values: Sequence[Values], pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Each audit once with all targets of which it warns, then what else the comparisons doubt."""
    warned: dict[str, list[str]] = defaultdict(list)
    for cell in values:
        for audit in cell.cell.doubts:
            warned[audit].append(cell.cell.target)
    audits = [f"{audit} ({', '.join(sorted(names))})" for audit, names in sorted(warned.items())]
    single = {f"{audit} in {name} only" for audit, names in warned.items() for name in names}
    others = dict.fromkeys(doubt for pair in pairs for doubt in pair.cell.doubts)
    return (*audits, *(doubt for doubt in others if doubt not in single))


def _why(cell: Cell) -> str:
    """Why a target has no valid value: "2 failed; 4 invalid (read-served-by-cache)"."""
    audits = f" ({', '.join(cell.invalid_by)})" if cell.invalid_by else ""
    parts = [f"{cell.failed} failed"] if cell.failed else []
    parts += [f"{cell.invalid} invalid{audits}"] if cell.invalid else []
    return "; ".join(parts) or "not measured"
