"""Cells that one side of a comparison has and another one lost: never run, failed, or invalid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fsmatrix.analysis.comparison.rows import Levels, Table
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.axes import factor_columns
from fsmatrix.analysis.data.columns import combined
from fsmatrix.analysis.data.factors import Mask
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.units import labelled

Why = Literal["missing", "failed", "invalid"]
WHYS: tuple[Why, ...] = ("missing", "failed", "invalid")
NO_PHASE = ("phase", "engine")  # what a run that failed may lack


@dataclass(frozen=True)
class Lost:
    """A cell without a counterpart.

    `missing`: no run of it, or of other work; `failed`: no run of it ended well; `invalid`:
    findings say of all that did that they do not count.
    """

    side: str
    levels: Levels
    named: str
    why: Why
    detail: str

    @property
    def says(self) -> str:
        """It in a sentence."""
        return f"{self.side}: {self.named or 'the only cell'} is {self.why} ({self.detail})"


def cells_of(of: Table, side: str) -> list[Levels]:
    """The levels of every cell of a side that has a value."""
    if side not in of.sides.levels:
        return []
    use = np.flatnonzero(of.sides.codes == of.sides.levels.index(side))
    axes = list(of.factors.values())
    first = combined([axis.codes[use] for axis in axes], use.size)[0]
    return [{axis.name: axis.levels[axis.codes[row]] for axis in axes} for row in use[first]]


def lost(
    of: Table, side: str, cells: Sequence[tuple[Levels, str]], varying: Sequence[str]
) -> list[Lost]:
    """Why `side` has no value of these cells; beside each what is known already, or ""."""
    data = rows(of.ds)
    axes = factor_columns(of.ds, data.factors)
    keys = [axes[name] for name in of.by]
    wanted = of.side_levels.get(side)
    rows_of_campaign = of.current.copy()
    for axis, level in zip(keys, wanted or (), strict=bool(wanted)):
        rows_of_campaign &= np.array([own == level for own in axis.levels])[axis.codes]
    every_lost = []
    for levels, reason in cells:
        here = rows_of_campaign.copy()
        for name, level in levels.items():
            if name in axes and name not in NO_PHASE and level == level and level != "":
                here &= np.array([own == level for own in axes[name].levels])[axes[name].codes]
        why, detail = _why(data, here, str(levels.get("phase", "")))
        named = ", ".join(labelled(n, levels[n]) for n in varying if levels.get(n, "") != "")
        every_lost.append(
            Lost(side, levels, named, why, reason if why == "missing" and reason else detail)
        )
    return every_lost


def _why(data: Rows, here: Mask, phase: str) -> tuple[Why, str]:
    if not here.any():
        return "missing", "no run of it"
    ended = here & (data["status"] == "ok")
    if not ended.any():
        errors = [text for text in data["error"][here].tolist() if text]
        first = f": {errors[0]}" if errors else ""
        return "failed", f"{_runs(data, here)} runs, none succeeded{first}"
    timed = ended & (data["phase"] == phase) if phase else ended
    if not timed.any():
        return "missing", f"{_runs(data, ended)} runs, none with the phase {phase}"
    if (timed & summary.invalid(data) == timed).all():
        return "invalid", f"{_runs(data, timed)} runs, all with a finding that makes them invalid"
    return "missing", "no comparable value"


def _runs(data: Rows, here: Mask) -> int:
    return len(set(data["run_id"][here].tolist()))
