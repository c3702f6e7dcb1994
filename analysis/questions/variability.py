"""How runs vary in every cell, and how many attachments would narrow the interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.counted_rows import Levels, Table, table
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.data import matrices
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import follows, levels_of, rows_by_group
from fsmatrix.analysis.data.metric_cells import metric_for
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates import variability as estimates
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Median, of_runs
from fsmatrix.analysis.stats.estimates.variability import Variability
from fsmatrix.analysis.stats.repetitions import MOST, Repetitions, for_width
from fsmatrix.analysis.stats.words import IMPORTED
from fsmatrix.analysis.units import OWN, Unit, brief
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HALF_WIDTH = 0.05  # of the median
MOST_ROWS = 60  # cells in a figure


@dataclass(frozen=True)
class Varied:
    """One cell: its median, how its runs vary, and how many attachments it takes."""

    named: str
    levels: Levels
    median: Median
    variability: Variability
    repetitions: Repetitions


@dataclass(frozen=True)
class Spreads:
    """All cells of a campaign."""

    metric: str
    title: str
    unit: Unit
    half_width: float
    cells: tuple[Varied, ...]
    question: str  # "variability" or "repetitions": what is said and drawn

    @property
    def says(self) -> list[str]:
        """What stands out."""
        return self._needed() if self.question == "repetitions" else self._varied()

    def _varied(self) -> list[str]:
        spreads = [(100 * c.variability.cv, c.named) for c in self.cells if c.variability.runs > 1]
        if not spreads:
            return ["One run per cell: nothing is known about its variation."]
        worst, where = max(spreads)
        typical = float(np.median([spread for spread, _ in spreads]))
        sentences = [
            f"{self.title}: coefficient of variation {brief(typical, 2)} % in the typical cell, "
            f"{brief(worst, 2)} % in the worst ({where or 'the only one'})."
        ]
        return sentences + [
            f"{cell.named or 'The only cell'}: {line}."
            for cell in self.cells
            for line in cell.variability.says[1:]
        ]

    def _needed(self) -> list[str]:
        answered = [c for c in self.cells if c.repetitions.known]
        width = f"+- {100 * self.half_width:.3g} %"
        unknown = len(self.cells) - len(answered)
        sentences = []
        if answered:
            numbers = [c.repetitions.needed for c in answered]
            enough = sum(c.repetitions.more == 0 for c in answered)
            most = (
                "more than can be planned"
                if None in numbers
                else str(max(n for n in numbers if n is not None))
            )
            sentences.append(
                f"{self.title} within {width} at {100 * LEVEL:.3g} %: {enough} of {len(answered)} "
                f"cells have enough attachments; the most that one needs is {most}."
            )
        if unknown:
            why = next(c.repetitions.says for c in self.cells if not c.repetitions.known)
            sentences.append(
                f"{why}." if why == IMPORTED else f"{unknown} cells cannot tell: {why}."
            )
        return sentences

    def table(self) -> pd.DataFrame:
        """One row per cell; spreads in per cent."""
        import pandas as pd

        shown = self._row_needed if self.question == "repetitions" else self._row_varied
        return pd.DataFrame([{"cell": c.named or "the only cell", **shown(c)} for c in self.cells])

    def _row_varied(self, cell: Varied) -> dict[str, Json]:
        variability = cell.variability
        return {
            f"median, {self.unit.label}": cell.median.median / self.unit.divisor,
            "runs": variability.runs,
            "attachments": variability.attachments,
            "cv, %": 100 * variability.cv,
            "robust, %": 100 * variability.robust_cv,
            "between, %": 100 * variability.between,
            "within, %": 100 * variability.within,
            "drift p": variability.drift.p,
            "modes p": variability.p_modes_between,
            "remarks": "; ".join(variability.says[1:]),
        }

    def _row_needed(self, cell: Varied) -> dict[str, Json]:
        needed = cell.repetitions
        half = (cell.median.high - cell.median.low) / 2 / cell.median.median
        return {"have": needed.have, "half width, %": 100 * half, "in words": needed.says}

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "metric": self.metric,
                "half_width": self.half_width,
                "says": self.says,
                "cells": [
                    {
                        "levels": c.levels,
                        "median": c.median,
                        "variability": c.variability.to_dict(),
                        "repetitions": c.repetitions.to_dict(),
                    }
                    for c in self.cells
                ],
            }
        )
        return data

    def figure(self) -> Figure:
        """A row for each cell, the widest first: its spread, or attachments it has and needs."""
        from fsmatrix.analysis.draw import drawing

        needed = self.question == "repetitions"
        measured = [
            c for c in self.cells if (c.repetitions.known if needed else c.variability.runs)
        ]
        cells = sorted(measured, key=lambda c: -self._size(c))[:MOST_ROWS]
        left = len(self.cells) - len(cells)
        figure, ax = drawing.panel(
            title=f"{self.title}: " + ("attachments needed" if needed else "variation"),
            notes=[f"{left} cells are not shown."] if left else [],
            width=8.6,
            height=0.24 * len(cells) + 1.0,
        )
        places = [-float(i) for i in range(len(cells))]
        for number, (label, values, marker) in enumerate(self._series(cells)):
            if not np.isfinite(values).any():
                continue
            ax.plot(
                values,
                places,
                marker,
                color=drawing.colour(number),
                label=label,
                linestyle="none",
                markersize=5,
                alpha=0.85,
            )
        names = [
            (c.named or "the only cell").replace("$", r"\$")
            + (f" (more than {MOST})" if needed and c.repetitions.needed is None else "")
            for c in cells
        ]
        ax.set_yticks(places, names, fontsize=drawing.SMALL)
        ax.set_ylim(-len(cells) + 0.4, 0.6)
        ax.set_xlim(left=0)
        ax.grid(visible=True, axis="x", color="#e4e7eb", linewidth=0.8)
        ax.set_xlabel("attachments" if needed else "per cent", fontsize=drawing.MEDIUM)
        drawing.legend(figure, [[ax]])
        return figure

    def _series(self, cells: Sequence[Varied]) -> list[tuple[str, list[float], str]]:
        """(label, a value for each cell, marker) of what the figure shows."""
        if self.question == "repetitions":
            wanted = f"needed for +- {100 * self.half_width:.3g} %"
            return [
                ("have", [c.repetitions.have for c in cells], "o"),
                (wanted, [c.repetitions.needed or math.nan for c in cells], "D"),
            ]
        return [
            ("between attachments", [100 * c.variability.between for c in cells], "s"),
            ("within attachments", [100 * c.variability.within for c in cells], "^"),
            ("coefficient of variation", [100 * c.variability.cv for c in cells], "o"),
        ]

    def _size(self, cell: Varied) -> float:
        if self.question == "repetitions":
            return float(cell.repetitions.needed or math.inf)
        return cell.variability.cv if cell.variability.cv == cell.variability.cv else -1.0


def variability(
    ds: xr.Dataset,
    metric: str = OWN,
    question: str = "variability",
    *,
    half_width: float = HALF_WIDTH,
    unit: Unit | None = None,
    where: Levels | None = None,
) -> Spreads:
    """Variability and planning of every cell; ValueError without a run that counts.

    `metric`: a name; OWN: bandwidth, or iops where no run has bytes.
    """
    if not 0 < half_width < 1:
        raise ValueError(f"the half width must be a share such as 0.05, not {half_width}")
    metric = metric_for(ds, metric)
    shown = matrices.unit_of(ds, metric, unit.label if unit else None)
    of = table(ds, metric, ("target",), where)
    kind = of.metric(metric) if metric in units.METRICS else None
    if unit is None and kind is not None:
        shown = units.fitting(kind.quantity, [float(np.median(of.values))])
    axes = {"target": of.sides, **of.factors}
    groups = rows_by_group(combined([axis.codes for axis in axes.values()], of.values.size)[1])
    rows = [
        {name: axis.levels[axis.codes[group[0]]] for name, axis in axes.items()} for group in groups
    ]
    column = {name: levels_of(rows, name) for name in axes}
    names, imported = list(axes), record_of(ds).imported
    varying = [
        name
        for i, name in enumerate(names)
        if len(set(column[name])) > 1
        and not any(follows(column[name], column[owner]) for owner in names[:i])
    ]
    cells = [
        _cell(of, group, levels, varying, half_width, imported)
        for group, levels in zip(groups, rows, strict=True)
    ]
    return Spreads(
        metric,
        kind.title if kind else metric,
        shown,
        half_width,
        tuple(sorted(cells, key=lambda c: c.named)),
        question,
    )


def _cell(
    of: Table,
    group: Any,
    levels: Levels,
    varying: Sequence[str],
    half_width: float,
    imported: bool,
) -> Varied:
    ordered = group[np.argsort(of.order[group], kind="stable")]
    values, owners = of.values[ordered], of.attachments[ordered]
    never = Repetitions(1, None, None, None, known=False, never=IMPORTED)
    return Varied(
        named=units.described(levels, varying),
        levels=levels,
        median=of_runs(values, owners),
        variability=estimates.variability(values, owners),
        repetitions=never if imported else for_width(values, owners, half_width),
    )
