"""What the audits found in a campaign: by audit and severity, with the cells and runs concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.counted_rows import Levels, at_levels
from fsmatrix.analysis.data.columns import Array, Codes, coded, combined, plain
from fsmatrix.analysis.data.factors import OF_PHASES, roles, rows_by_group
from fsmatrix.analysis.data.load import Rows, rows, runs_of
from fsmatrix.analysis.data.matrices import Axis, factor_columns
from fsmatrix.analysis.data.summary import RANK
from fsmatrix.analysis.result import plain as plain_data
from fsmatrix.analysis.units import Level, described
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Concerned:
    """One cell that a finding concerns."""

    named: str  # levels of the factors that vary
    levels: Mapping[str, Level]
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class FindingGroup:
    """One audit's findings of one severity."""

    audit: str
    severity: str
    runs: int
    targets: tuple[str, ...]
    messages: tuple[str, ...]  # different ones, the most frequent first
    advice: str
    cells: tuple[Concerned, ...]  # the one with most runs first


@dataclass(frozen=True)
class Findings:
    """All findings of a campaign, or of some of its levels."""

    runs: int  # all that were looked at, every attempt
    cells: int
    failed: int  # of the runs; an audit has little to look at in them
    concerned: int  # cells that carry a warning, or are invalid
    groups: tuple[FindingGroup, ...]  # the worst severity first

    @property
    def says(self) -> list[str]:
        """How many cells carry what."""
        failed = f" ({self.failed} failed)" if self.failed else ""
        what = f"{plural(self.runs, 'run')}{failed} in {plural(self.cells, 'cell')}"
        if not self.groups:
            return [f"{what}: the audits found nothing."]
        share = self.concerned / self.cells
        return [
            f"{what}; {self.concerned} of them ({share:.0%}) have warnings, or runs that do not "
            "count."
        ]

    def table(self) -> pd.DataFrame:
        """One row per audit, severity and cell."""
        import pandas as pd

        columns = ["severity", "audit", "cell", "runs", "most frequent message", "run ids"]
        return pd.DataFrame(
            [
                (
                    g.severity,
                    g.audit,
                    cell.named,
                    len(cell.run_ids),
                    g.messages[0],
                    " ".join(cell.run_ids),
                )
                for g in self.groups
                for cell in g.cells
            ],
            columns=columns,
        )

    def figure(self) -> Figure:
        """Share of runs that carry each audit; ValueError if there is none."""
        from fsmatrix.analysis.draw import drawing

        if not self.groups:
            raise ValueError("the audits found nothing: there is nothing to draw")
        names = [f"{g.audit} ({g.severity})" for g in self.groups]
        figure, ax = drawing.panel(
            title="Runs with findings", notes=[], width=8.6, height=0.3 * len(names) + 1.0
        )
        places = [-float(i) for i in range(len(names))]
        severities = list(dict.fromkeys(g.severity for g in self.groups))
        for number, severity in enumerate(severities):
            of_severity = [i for i, g in enumerate(self.groups) if g.severity == severity]
            ax.barh(
                [places[i] for i in of_severity],
                [100 * self.groups[i].runs / self.runs for i in of_severity],
                color=drawing.colour(number),
                label=severity,
            )
        ax.set_yticks(places, [name.replace("$", r"\$") for name in names], fontsize=drawing.SMALL)
        ax.set_xlim(0, 100)
        ax.set_xlabel("per cent of runs", fontsize=drawing.MEDIUM)
        drawing.legend(figure, [[ax]])
        return figure

    def to_dict(self) -> dict[str, Json]:
        """All of it; `share`: of all runs."""
        data: dict[str, Json] = plain_data(
            {
                "says": self.says,
                "runs": self.runs,
                "cells": self.cells,
                "failed": self.failed,
                "concerned": self.concerned,
                "findings": [{**vars(g), "share": g.runs / self.runs} for g in self.groups],
            }
        )
        return data


def findings(
    ds: xr.Dataset, *, where: Levels | None = None, audits: Sequence[str] = ()
) -> Findings:
    """Findings about the runs of these levels, all attempts; of these audits only, if any.

    ValueError for an unknown factor, level or audit, and without a run.
    """
    data = rows(ds)
    factors = factor_columns(ds, data.factors)
    kept = at_levels(factors, where or {}, len(data))
    if not kept.any():
        raise ValueError("no run has all of these levels")
    groups = finding_groups(ds, data, kept, factors)
    present = {group.audit for group in groups}
    if unknown := [name for name in audits if name not in present]:
        there = ", ".join(sorted(present)) or "no finding"
        raise ValueError(f"no finding of an audit {unknown[0]!r}: there are {there}")
    chosen = tuple(group for group in groups if not audits or group.audit in audits)
    cells = _cells(factors, data)
    notable = kept & np.isin(data["worst_finding"], ("warning", "invalid"))
    return Findings(
        runs=int(np.unique(runs_of(data)[kept]).size),
        cells=int(np.unique(cells[kept]).size),
        failed=int(np.unique(runs_of(data)[kept & data.failed]).size),
        concerned=int(np.unique(cells[notable]).size),
        groups=chosen,
    )


def finding_groups(
    ds: xr.Dataset,
    data: Rows,
    kept: Array | None = None,
    factors: Mapping[str, Axis] | None = None,
) -> list[FindingGroup]:
    """Findings by audit and severity, the worst first; `kept` [row]: of these rows only."""
    if "finding_run" not in ds or ds.sizes.get("finding", 0) == 0:
        return []
    row = ds["finding_run"].values
    places = np.arange(row.size) if kept is None else np.flatnonzero(kept[row])
    if places.size == 0:
        return []
    factors = factor_columns(ds, data.factors) if factors is None else factors
    cells = _cells(factors, data)
    names = _varying(factors, data)
    audit, severity = (
        coded(ds[f"finding_{name}"].values[places]) for name in ("audit", "severity")
    )
    group = combined([audit[1], severity[1]], places.size)[1]
    texts = {name: ds[f"finding_{name}"].values for name in ("message", "advice")}
    targets, run_ids = data.factor("target"), data["run_id"]
    groups = []
    for members in rows_by_group(group):
        where = row[places[members]]
        concerned = _concerned(where, cells, run_ids, factors, names)
        groups.append(
            FindingGroup(
                audit=str(audit[0][audit[1][members[0]]]),
                severity=str(severity[0][severity[1][members[0]]]),
                runs=int(np.unique(run_ids[where]).size),
                targets=tuple(sorted({str(name) for name in np.unique(targets[where])})),
                messages=tuple(_frequent(texts["message"][places[members]])),
                advice=next(iter(_frequent(texts["advice"][places[members]])), ""),
                cells=concerned,
            )
        )
    return sorted(groups, key=lambda g: (-RANK.get(g.severity, 0), -g.runs, g.audit))


def _cells(factors: Mapping[str, Axis], data: Rows) -> Codes:
    """Number of each row's cell, shape [row].

    A run that failed before its first phase is in the first cell of the other runs of its case.
    """
    size = len(data)
    cells = combined([axis.codes for axis in factors.values()], size)[1]
    case = combined([axis.codes for name, axis in factors.items() if name not in OF_PHASES], size)[
        1
    ]
    timed = np.flatnonzero(data.timed)
    timed_cases, first = np.unique(case[timed], return_index=True)
    early = np.flatnonzero(~data.timed & np.isin(case, timed_cases))
    cells[early] = cells[timed[first[np.searchsorted(timed_cases, case[early])]]]
    return cells


def _varying(factors: Mapping[str, Axis], data: Rows) -> tuple[str, ...]:
    """The factors that tell cells apart, the target last."""
    first = combined([axis.codes for axis in factors.values()], len(data))[0]
    few = {name: np.array(axis.levels)[axis.codes[first]] for name, axis in factors.items()}
    return roles(few, data.timed[first])[0]


def _concerned(
    where: Codes, cells: Codes, run_ids: Array, factors: Mapping[str, Axis], names: Sequence[str]
) -> tuple[Concerned, ...]:
    """The cells of these rows."""
    places = []
    for part in rows_by_group(cells[where]):
        first = where[part[0]]
        levels = {name: axis.levels[axis.codes[first]] for name, axis in factors.items()}
        ids = tuple(sorted({str(run_id) for run_id in run_ids[where[part]]}))
        places.append(Concerned(described(levels, names), levels, ids))
    return tuple(sorted(places, key=lambda cell: (-len(cell.run_ids), cell.named)))


def _frequent(texts: Array) -> list[str]:
    """Different texts, the most frequent first."""
    levels, codes = coded(plain(texts))
    number = np.bincount(codes, minlength=len(levels))
    return [str(levels[i]) for i in np.argsort(-number, kind="stable")]
