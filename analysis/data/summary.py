"""Medians and intervals of every cell: factor combination x phase x target."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import xarray as xr

from fsmatrix.analysis.data import cluster
from fsmatrix.analysis.data.cells import Cell, Counted, Measured, OwnSummary, own_of_cells, sort_key
from fsmatrix.analysis.data.cluster import Cluster
from fsmatrix.analysis.data.columns import Codes, Mask, combined
from fsmatrix.analysis.data.doubts import audits_of
from fsmatrix.analysis.data.factors import codes, groups, roles
from fsmatrix.analysis.data.load import Array, Rows, rows, runs_of
from fsmatrix.analysis.units import Level
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.record import SEVERITIES

Excluded = Literal["reference", "invalid"]  # what no cell counts unless it is asked for
NOT_FACTORS = ("reference",)
MOST_TARGETS = 12  # that stand beside each other, or are compared in pairs (66); more are ranked
RANK: dict[str, int] = {"": 0, **{severity: i for i, severity in enumerate(SEVERITIES, 1)}}


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

    @property
    def many_targets(self) -> bool:
        """Whether there are too many to stand beside each other."""
        return len(self.targets) > MOST_TARGETS

    def to_dict(self) -> list[dict[str, Json]]:
        """One flat dict per cell; values in SI units, NaN where there is no value."""
        return [_flat(cell, self) for cell in self.cells]


P = ParamSpec("P")
R = TypeVar("R")
_Made = tuple[xr.Dataset, dict[frozenset[Excluded], Summary]]
_made: ContextVar[_Made | None] = ContextVar("summaries", default=None)


def made_once(
    function: Callable[Concatenate[xr.Dataset, P], R],
) -> Callable[Concatenate[xr.Dataset, P], R]:
    """A function of a campaign, in which each summary of it is made once and shared.

    Only for functions in which nothing changes the Dataset.
    """

    @functools.wraps(function)
    def shared(ds: xr.Dataset, /, *args: P.args, **kwargs: P.kwargs) -> R:
        outer = _made.get()
        if outer is not None and outer[0] is ds:
            return function(ds, *args, **kwargs)
        token = _made.set((ds, {}))
        try:
            return function(ds, *args, **kwargs)
        finally:
            _made.reset(token)

    return shared


def summarise(ds: xr.Dataset, *, include: Collection[Excluded] = ()) -> Summary:
    """Summary of a campaign (`load.open_campaign`).

    Left out unless `include` names them: runs with a finding of severity "invalid" (they are
    counted, but in no median), and "reference" targets.
    """
    made = _made.get()
    if made is None or made[0] is not ds:
        return _summarised(ds, include)
    key = frozenset(include)
    if key not in made[1]:
        made[1][key] = _summarised(ds, include)
    return made[1][key]


def _summarised(ds: xr.Dataset, include: Collection[Excluded]) -> Summary:
    every = rows(ds)
    shown = ~every.reference | ("reference" in include)
    superseded = np.unique(runs_of(every.where(shown & ~every.current))).size
    kept = np.flatnonzero(shown & every.current)
    data = every.where(shown & every.current)
    names = [name for name in every.factors if name not in NOT_FACTORS]
    columns = {name: data.factor(name) for name in names}
    columns |= {name: data[name] for name in ("engine", "phase") if name in data.columns}
    first, group = combined([codes(column)[1] for column in columns.values()], len(data))
    few = {name: column[first] for name, column in columns.items()}
    varying, constants, attributes, derived = roles(few, data.timed[first])
    valid = ~data.invalid & ~data.failed
    evidence = _Evidence(
        audits=audits_of(ds, kept, group),
        refused=audits_of(ds, kept, group, ("invalid",)),
        warned=audits_of(ds, kept[valid], group[valid], ("warning",)),
        own=own_of_cells(ds, kept[valid], group[valid]),
    )
    used = ~data.failed & data.timed if "invalid" in include else data.counting
    counted = Counted(data, kept, group, used, first.size)
    cells = _cells(data, few, group, counted, evidence, attributes)
    return Summary(
        cells=tuple(sorted(cells, key=lambda cell: sort_key(cell, varying))),
        varying=varying,
        constants=constants,
        attributes=attributes,
        derived=derived,
        references=tuple(sorted(set(map(str, every["target"][every.reference])))),
        references_shown="reference" in include,
        invalid_runs=int(np.unique(runs_of(data.where(data.invalid))).size),
        invalid_included="invalid" in include,
        superseded=int(superseded),
        cluster=cluster.cluster_of(
            ds, data, columns, constants, {**derived, **dict.fromkeys(attributes, "target")}
        ),
    )


@dataclass(frozen=True)
class _Evidence:
    """Of each cell by its number: audits with a finding, the gravest, and its own iterations."""

    audits: Mapping[int, set[str]]
    refused: Mapping[int, set[str]]
    warned: Mapping[int, set[str]]
    own: Mapping[int, OwnSummary]


def _cells(
    data: Rows,
    few: Mapping[str, Array],
    group_of: Codes,
    measured: Counted,
    evidence: _Evidence,
    of_targets: Sequence[str],
) -> list[Cell]:
    """All cells.  A combination without any phase (all its runs failed before) gets the
    phases that other targets have for the same work; `of_targets` are targets' attributes."""
    size = len(next(iter(few.values())))
    base = groups((c for n, c in few.items() if n not in ("phase", "engine")), size)
    apart = ("phase", "engine", "target", *of_targets)
    work = groups((c for n, c in few.items() if n not in apart), size)
    failures = _distinct(base[group_of], data, data.failed)
    timed = few["phase"] != ""
    phased = set(base[timed].tolist())
    phases: dict[int, set[str]] = {}
    for number, phase in zip(work[timed].tolist(), few["phase"][timed].tolist(), strict=True):
        phases.setdefault(number, set()).add(phase)
    counted = Counter(group_of[data.invalid].tolist())
    severities = _worst(data["worst_finding"], group_of, size)
    every = list(zip(*(column.tolist() for column in few.values()), strict=True))
    cells = []
    for group in range(size):
        levels = dict(zip(few, every[group], strict=True))
        if timed[group]:
            names = [str(few["phase"][group])]
        elif int(base[group]) not in phased:
            names = sorted(phases.get(int(work[group]), {""}))
        else:
            names = []
        cells += [
            Cell(
                levels=levels | {"phase": name},
                runs=measured.runs[group],
                attachments=measured.attachments[group],
                failed=failures.get(int(base[group]), 0),
                invalid=counted[group],
                worst_finding=severities[group],
                findings=tuple(sorted(evidence.audits.get(group, ()))),
                metrics=Measured(measured, group),
                invalid_by=tuple(sorted(evidence.refused.get(group, ()))),
                doubts=tuple(sorted(evidence.warned.get(group, ()))),
                own=evidence.own.get(group),
            )
            for name in names
        ]
    return cells


def _distinct(group_of: Codes, data: Rows, keep: Mask) -> dict[int, int]:
    """Group -> different runs among the rows `keep`."""
    if not keep.any():
        return {}
    runs = runs_of(data.where(keep))
    pairs = combined([group_of[keep], runs], runs.size)[0]
    return Counter(group_of[keep][pairs].tolist())


def _worst(findings: Array, group_of: Codes, size: int) -> list[str]:
    """The worst severity in each of `size` groups."""
    levels, place = codes(findings)
    order = np.argsort([RANK.get(str(level), 0) for level in levels], kind="stable")
    ranks = np.argsort(order)  # by severity, then by name
    worst = np.zeros(size, dtype=np.int64)
    np.maximum.at(worst, group_of, ranks[place])
    return [str(levels[order[rank]]) for rank in worst]


def _flat(cell: Cell, summary: Summary) -> dict[str, Json]:
    flat: dict[str, Json] = {name: cell.levels[name] for name in summary.varying}
    flat |= {"runs": cell.runs, "attachments": cell.attachments, "failed": cell.failed}
    flat |= {"invalid": cell.invalid, "worst_finding": cell.worst_finding}
    flat["findings"] = list(cell.findings)
    for name, median in cell.metrics.items():
        flat |= {name: median.median, f"{name}_low": median.low, f"{name}_high": median.high}
        flat |= {f"{name}_coverage": median.coverage, f"{name}_kind": median.kind}
    return flat
