"""The CERN study: two installations cell by cell, IOR over tasks, RNTuple's parameters.

What the report says of its own numbers is data: the claims of the study `cern` (docs/claims.md).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.compared import wins
from fsmatrix.analysis.questions.curves import Curves, curves
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.intervals import from_logs
from fsmatrix.analysis.stats.testing.verdict import Verdict, verdicts
from fsmatrix.analysis.studies.claims.cells import ClaimCell, scope_of
from fsmatrix.analysis.studies.claims.scope import Reach, data_of
from fsmatrix.analysis.studies.claims.study import (
    Claim,
    ClaimedRange,
    Compare,
    StudyFile,
    StudySource,
)
from fsmatrix.analysis.units import METRICS, Level
from fsmatrix.results.evidence.values import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TOLERANCE = 0.05
TASKS = ("tasks", "processes_per_node", "processes")


@dataclass(frozen=True)
class Installations:
    """Two installations, cell by cell; ratios are those of the first over the second."""

    first: str
    second: str
    metric: str
    cells: tuple[ClaimCell, ...]
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]

    @property
    def better(self) -> tuple[int, int]:
        """Cells in which the bare number of the first, of the second is better."""
        up = units.more_is_better(self.metric)
        return wins([cell.value for cell in self.cells], up)

    @property
    def ratio(self) -> float:
        """Geometric mean of the cells' ratios."""
        return float(np.exp(np.mean([math.log(cell.value) for cell in self.cells])))

    @property
    def says(self) -> list[str]:
        """Who wins, by how much, and what is beyond noise."""
        n, (first, second) = len(self.cells), self.better
        values = [cell.value for cell in self.cells]
        sentences = [
            f"{self.metric}: {self.first} has the better number in {first}, {self.second} in "
            f"{second} of {n} cells; ratio {min(values):.3f} to {max(values):.3f}, geometric mean "
            f"{self.ratio:.3f}."
        ]
        kinds: Counter[str] = Counter(v.kind for v in self.verdicts)
        if all(min(cell.units) < 2 for cell in self.cells):
            sentences.append(
                "Each cell has one value of each: how much of it is noise is not known."
            )
        else:
            counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
            sentences.append(f"Beyond noise ({self.first} against {self.second}): {counts}.")
        return [*sentences, *self.remarks]

    def table(self) -> pd.DataFrame:
        """One row per cell."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **dict(cell.key),
                    "ratio": cell.value,
                    "low": cell.low,
                    "high": cell.high,
                    "better": self.first if self._first(cell) else self.second,
                    "verdict": verdict.kind if min(cell.units) > 1 else "noise not known",
                }
                for cell, verdict in zip(self.cells, self.verdicts, strict=True)
            ]
        )

    def _first(self, cell: ClaimCell) -> bool:
        up = units.more_is_better(self.metric)
        return (cell.value > 1) == up

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        rows = self.table().to_dict("records")
        data: dict[str, Json] = plain(
            {
                "first": self.first,
                "second": self.second,
                "metric": self.metric,
                "geometric_mean": self.ratio,
                "cells": rows,
                "says": self.says,
            }
        )
        return data

    def figure(self) -> Figure:
        """One row per cell: the ratio, on which side of 1."""
        from fsmatrix.analysis.draw import drawing

        ordered = sorted(self.cells, key=lambda cell: cell.value)
        figure, ax = drawing.panel(
            title=f"{self.metric}: {self.first} over {self.second}",
            notes=self.says[1:],
            width=6.8,
            height=0.6 + 0.17 * len(ordered),
        )
        for place, cell in enumerate(ordered):
            shade = drawing.colour(0 if self._first(cell) else 1)
            ax.plot([1, cell.value], [place, place], color=shade, linewidth=1.2, alpha=0.5)
            if cell.decides:
                ax.plot([cell.low, cell.high], [place, place], color=shade, linewidth=2)
            ax.plot(
                cell.value,
                place,
                "o",
                color=shade,
                markersize=4,
                markerfacecolor=shade if cell.decides else "white",
            )
        ax.axvline(1.0, color="black", linewidth=0.8)
        ax.set_yticks(range(len(ordered)), [_words(cell) for cell in ordered], fontsize=6.5)
        ax.set_xlabel(f"ratio; right of 1: {self.first} has more. Hollow: no interval.", fontsize=8)
        return figure


def installations(
    ds: xr.Dataset,
    of: Mapping[str, Level],
    over: Mapping[str, Level],
    *,
    metric: str = "bandwidth",
    where: Mapping[str, Level] | None = None,
    x: float = TOLERANCE,
) -> Installations:
    """Cells with the levels `of` against those with `over`, all else being equal.

    `of`, `over`: such as {"target": "a", "trial": 1}.  ValueError where no cell has both.
    """
    claim = Claim(
        id="installations",
        says="",
        number="",
        place="",
        metric=(metric,),
        where={name: (level,) for name, level in (where or {}).items()},
        compare=Compare(of=dict(of), over=dict(over)),
        claimed=ClaimedRange(low=1.0),
    )
    names = {} if metric in METRICS else {metric: metric}
    file = StudyFile(
        study="cells", title="", source=StudySource(paper=""), metrics=names, claims=(claim,)
    )
    data = data_of(ds, file)
    scope = scope_of(data, file, claim)
    if not scope.cells:
        raise ValueError(f"nothing to compare: {scope.absent}")
    up = units.more_is_better(metric)
    judged = verdicts([from_logs(cell.parts) for cell in scope.cells], x, more_is_faster=up)
    remarks = [f"{note}." for note in scope.notes]
    reach = Reach(data, file, claim, metric)
    for side in (of, over):
        cells = [c for c in data.studies[metric].valued if reach.inside(c) and reach.has(c, side)]
        doubts = Counter(name for c in cells for name in c.cell.findings)
        words = _name(side)
        remarks += [f"{words}: {name} in {number} cells." for name, number in doubts.items()]
    return Installations(
        _name(of),
        _name(over),
        metric,
        scope.cells,
        tuple(judged),
        (*remarks, *data.studies[metric].setting),
    )


def tasks(ds: xr.Dataset, metric: str = "bandwidth") -> Curves:
    """Bandwidth over the number of tasks, a line for each block size and what else varies."""
    return curves(ds, metric, TASKS, panel=("phase", "pattern"))


def parameters(ds: xr.Dataset, metric: str = "bandwidth") -> Curves:
    """RNTuple over page sizes: lines by installation, trial, compression and object class."""
    return curves(ds, metric, ("page_size",), panel=("phase", "compression"))


def influence(ds: xr.Dataset, factor: str, metric: str = "bandwidth") -> list[Installations]:
    """Each level of a factor against its first one (object class, compression, trial...).

    ValueError with fewer than two levels.
    """
    column = ds.attrs.get("factors", "")
    if f'"{factor}"' not in str(column):
        raise ValueError(f"no factor {factor!r} in this campaign")
    values = ds[json.loads(column)[factor]].values.tolist()
    levels: list[Level] = sorted({v for v in values if v == v and v != ""}, key=str)
    if len(levels) < 2:
        raise ValueError(f"{factor} has one level: nothing to compare")
    return [
        installations(ds, {factor: level}, {factor: levels[0]}, metric=metric)
        for level in levels[1:]
    ]


def _name(side: Mapping[str, Level]) -> str:
    return ", ".join(
        str(level) if name == "target" else units.labelled(name, level)
        for name, level in side.items()
    )


def _words(cell: ClaimCell) -> str:
    return ", ".join(units.labelled(name, level) for name, level in cell.key if level != "")
