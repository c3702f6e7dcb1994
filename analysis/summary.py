"""Medians and intervals of every cell: factor combination x phase x target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from fsmatrix.analysis import cluster
from fsmatrix.analysis.cluster import Cluster
from fsmatrix.analysis.columns import combined
from fsmatrix.analysis.factors import Mask, codes, groups, members, roles
from fsmatrix.analysis.load import Array, Rows, rows
from fsmatrix.analysis.medians import Median, of_runs
from fsmatrix.analysis.units import METRICS, Level
from fsmatrix.results.record import SEVERITIES

if TYPE_CHECKING:
    from rich.console import Group

NOT_FACTORS = ("reference",)
RANK: dict[str, int] = {"": 0, **{severity: i for i, severity in enumerate(SEVERITIES, 1)}}


@dataclass(frozen=True)
class Cell:
    """One combination of levels, one phase, one target."""

    levels: Mapping[str, Level]  # factor -> level; with target, engine and phase
    runs: int  # that the medians are of: ok and not invalid
    attachments: int
    failed: int  # runs of this combination that failed or timed out
    invalid: int  # runs left out because a finding says that they are invalid
    worst_finding: str
    findings: tuple[str, ...]  # audits, by name
    metrics: Mapping[str, Median]

    @property
    def target(self) -> str:
        """Name of the target."""
        return str(self.levels.get("target", ""))

    @property
    def notes(self) -> str:
        """What a reader must know: failed and invalid runs, findings."""
        parts = [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.invalid} invalid"] if self.invalid else []
        parts += [f"{self.worst_finding}: {', '.join(self.findings)}"] if self.findings else []
        return "; ".join(parts)


@dataclass(frozen=True)
class Summary:
    """All cells, and what varies between them."""

    cells: tuple[Cell, ...]
    varying: tuple[str, ...]  # factors that are columns; `target` last
    constants: Mapping[str, Level]  # factors of one level
    attributes: tuple[str, ...]  # factors that each target has one level of
    derived: Mapping[str, str]  # factors that follow another one -> that one
    references: tuple[str, ...]  # reference targets
    references_shown: bool
    invalid_runs: int
    invalid_included: bool
    superseded: int  # earlier attempts of runs that were tried again: in no cell
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets of the cells, sorted."""
        return tuple(sorted({cell.target for cell in self.cells}))

    def to_dict(self) -> list[dict[str, Any]]:
        """One flat dict per cell; values in SI units, NaN where there is no value."""
        return [_flat(cell, self) for cell in self.cells]

    def table(self, metrics: Sequence[str] = ()) -> Group:
        """Tables for the terminal with their legend: of these metrics, or the usual ones."""
        from rich.console import Group

        from fsmatrix.analysis.table import legend, tables, usual_tables

        return Group(*(tables(self, metrics) if metrics else usual_tables(self)), legend(self))


def summarise(
    ds: xr.Dataset, *, include_reference: bool = False, include_invalid: bool = False
) -> Summary:
    """Summary of a campaign (`load.open_campaign`).

    Runs with a finding of severity `invalid` are counted and left out of the medians unless
    `include_invalid`; reference targets are left out unless `include_reference`.
    """
    every = rows(ds)
    references = reference_targets(every)
    shown = _shown(every, include_reference)
    superseded = np.unique(every["run_id"][shown & ~current(every)]).size
    data = every.where(shown & current(every))
    names = [name for name in every.factors if name not in NOT_FACTORS]
    columns = {name: data.factor(name) for name in names}
    columns |= {name: data[name] for name in ("engine", "phase") if name in data.columns}
    first, group = combined([codes(column)[1] for column in columns.values()], len(data))
    few = {name: column[first] for name, column in columns.items()}
    varying, constants, attributes, derived = roles(few, data["phase"][first] != "")
    audits = _audits(ds, np.flatnonzero(shown & current(every)))
    cells = _cells(data, few, group, audits, include_invalid, attributes)
    return Summary(
        cells=tuple(sorted(cells, key=lambda cell: sort_key(cell, varying))),
        varying=varying,
        constants=constants,
        attributes=attributes,
        derived=derived,
        references=references,
        references_shown=include_reference,
        invalid_runs=int(np.unique(data["run_id"][invalid(data)]).size),
        invalid_included=include_invalid,
        superseded=int(superseded),
        cluster=cluster.of(
            ds, data, columns, constants, {**derived, **dict.fromkeys(attributes, "target")}
        ),
    )


def reference_targets(data: Rows) -> tuple[str, ...]:
    """Targets whose coordinate `reference` is true."""
    if "reference" not in data.factors:
        return ()
    return tuple(sorted({str(t) for t in data.factor("target")[is_reference(data)]}))


def is_reference(data: Rows) -> Mask:
    """Rows of reference targets."""
    values = data.factor("reference").astype(str)
    flags: Mask = np.isin(np.char.lower(values), ("true", "1", "1.0"))
    return flags


def _shown(data: Rows, include_reference: bool) -> Mask:
    keep = np.ones(len(data), dtype=bool)
    if not include_reference and "reference" in data.factors:
        keep &= ~is_reference(data)
    return keep


def current(data: Rows) -> Mask:
    """Rows of the newest attempt at their run."""
    return np.asarray(data["last_attempt"] != 0)


def invalid(data: Rows) -> Mask:
    """Rows of runs that ended well and that a finding calls invalid."""
    return np.asarray((data["worst_finding"] == "invalid") & (data["status"] == "ok"))


def _cells(
    data: Rows,
    few: Mapping[str, Array],
    group_of: npt.NDArray[np.int64],
    audits: Mapping[int, set[str]],
    include_invalid: bool,
    of_targets: Sequence[str],
) -> list[Cell]:
    """All cells.  A combination without any phase (all its runs failed before) gets the
    phases that other targets have for the same work; `of_targets` are targets' attributes."""
    size = len(next(iter(few.values())))
    base = groups((c for n, c in few.items() if n not in ("phase", "engine")), size)[group_of]
    apart = ("phase", "engine", "target", *of_targets)
    work = groups((c for n, c in few.items() if n not in apart), size)[group_of]
    failed = data["status"] != "ok"
    failures = {
        int(base[group[0]]): int(np.unique(data["run_id"][group][failed[group]]).size)
        for group in members(base)
    }
    timed = data["phase"] != ""
    phased = set(base[timed].tolist())
    phases: dict[int, set[str]] = {}
    for number, phase in zip(work[timed].tolist(), data["phase"][timed].tolist(), strict=True):
        phases.setdefault(number, set()).add(phase)
    cells = []
    attachments = codes(data["attachment"])[1]
    for group in members(group_of):
        row = int(group[0])
        levels = {name: column[group_of[row]].item() for name, column in few.items()}
        found = {audit for row in group.tolist() for audit in audits.get(row, ())}
        if timed[row]:
            names = [str(data["phase"][row])]
        elif int(base[row]) not in phased:
            names = sorted(phases.get(int(work[row]), {""}))
        else:
            names = []
        for name in names:
            cells.append(
                _cell(
                    data,
                    group,
                    attachments[group],
                    levels | {"phase": name},
                    failures[int(base[row])],
                    found,
                    include_invalid,
                )
            )
    return cells


def _cell(
    data: Rows,
    group: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    levels: Mapping[str, Level],
    failed: int,
    found: set[str],
    include_invalid: bool,
) -> Cell:
    part = _take(data, group)
    ok = (part["status"] == "ok") & (part["phase"] != "")
    bad = invalid(part)
    used = ok if include_invalid else ok & ~bad
    severities = map(str, np.unique(part["worst_finding"]))
    worst = max(severities, key=lambda severity: RANK.get(severity, 0), default="")
    attachments = places[used]
    return Cell(
        levels=levels,
        runs=int(used.sum()),
        attachments=int(np.unique(attachments).size),
        failed=failed,
        invalid=int(bad.sum()),
        worst_finding=worst,
        findings=tuple(sorted(found)),
        metrics={name: of_runs(values_of(part, name)[used], attachments) for name in METRICS},
    )


def _take(data: Rows, group: npt.NDArray[np.int64]) -> Rows:
    needed = {"status", "phase", "worst_finding", "bytes", "run_id", *METRICS}
    return Rows({n: c[group] for n, c in data.columns.items() if n in needed}, data.factors)


def values_of(part: Rows, metric: str) -> npt.NDArray[np.float64]:
    """A metric's values; a phase that moved no bytes has no bandwidth."""
    if metric not in part.columns:
        return np.full(len(part), np.nan)
    values = part[metric].astype(np.float64)
    if metric == "bandwidth" and "bytes" in part.columns:
        values = np.where(part["bytes"] == 0, np.nan, values)
    return values


def _audits(ds: xr.Dataset, kept: npt.NDArray[np.int64]) -> dict[int, set[str]]:
    """Place among the kept rows -> names of the audits that found something there."""
    found: dict[int, set[str]] = {}
    if "finding_run" in ds:
        place = np.full(ds.sizes["run"], -1, dtype=np.int64)
        place[kept] = np.arange(kept.size)
        names = ds["finding_audit"].values.astype(str).tolist()
        for row, name in zip(place[ds["finding_run"].values].tolist(), names, strict=True):
            if row >= 0:
                found.setdefault(row, set()).add(name)
    return found


def sort_key(cell: Cell, varying: Sequence[str]) -> tuple[tuple[int, float, str], ...]:
    """Order of cells by these factors: missing levels, then numbers, then texts."""
    key = []
    for name in varying:
        level = cell.levels[name]
        if isinstance(level, str):
            key.append((2 if level else 0, 0.0, level))
        else:
            key.append((1, level, "") if level == level else (0, 0.0, ""))
    return tuple(key)


def _flat(cell: Cell, summary: Summary) -> dict[str, Any]:
    flat: dict[str, Any] = {name: cell.levels[name] for name in summary.varying}
    flat |= {"runs": cell.runs, "attachments": cell.attachments, "failed": cell.failed}
    flat |= {"invalid": cell.invalid, "worst_finding": cell.worst_finding}
    flat["findings"] = list(cell.findings)
    for name, median in cell.metrics.items():
        flat |= {name: median.median, f"{name}_low": median.low, f"{name}_high": median.high}
        flat |= {f"{name}_coverage": median.coverage, f"{name}_kind": median.kind}
    return flat
