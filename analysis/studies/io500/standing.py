"""Where a run of one's own stands among submissions with as many client nodes."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.summary import Summary, summarise
from fsmatrix.analysis.studies.io500.submissions import NO_CLASS, Submission, size_class
from fsmatrix.analysis.units import labelled
from fsmatrix.results.formats.io500_text import (
    BANDWIDTHS,
    GIB,
    KILO,
    PHASES,
    RANDOM_READ,
    phase_of,
    score,
)

NO_SUBMISSION = "not-a-submission"  # the audit
SCORES = {"score": "", "bandwidth score": "GiB/s", "metadata score": "kIOPS"}


@dataclass(frozen=True)
class RankedPlace:
    """One value of one's own among others.  In IO500's units."""

    what: str  # a phase, or one of SCORES
    unit: str
    value: float
    below: int  # submissions of the class with a smaller value
    equal: int
    submissions: int  # of the class that have one
    percentile: float | None  # share of them below, equal ones half; None without any
    median: float | None  # of the class


@dataclass(frozen=True)
class RunStanding:
    """A configuration of one's own campaign."""

    name: str  # what tells it from the others
    engine: str
    nodes: int
    size: str  # class of client nodes
    by_rules: bool  # nothing says that the list would not accept it
    places: tuple[RankedPlace, ...]


def standings(ds: xr.Dataset, submissions: Sequence[Submission]) -> tuple[RunStanding, ...]:
    """Of every configuration of a campaign that has phases of IO500: medians over attachments.

    ValueError if there is none, or if its number of client nodes is not told.
    """
    summary = summarise(ds)
    by_work: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for cell in summary.cells:
        if phase_of(str(cell.levels["phase"])) and cell.runs:
            by_work[_key(cell)].append(cell)
    if not by_work:
        raise ValueError(_nothing(summary))
    return tuple(_standing(cells, summary, submissions) for cells in by_work.values())


def _nothing(summary: Summary) -> str:
    failed = sum(cell.failed for cell in summary.cells)
    if any(phase_of(str(cell.levels["phase"])) for cell in summary.cells):
        return f"no phase of IO500 has a valid result: {summary.invalid_runs} runs are invalid"
    names = sorted({str(cell.levels["phase"]) for cell in summary.cells} - {""})
    lost = f"; {failed} runs failed" if failed else ""
    return f"no phase of IO500 in it; there are {', '.join(names) or 'no phases'}{lost}"


def _key(cell: Cell) -> tuple[str, ...]:
    return tuple(repr(level) for name, level in cell.levels.items() if name != "phase")


def _standing(
    cells: Sequence[Cell], summary: Summary, submissions: Sequence[Submission]
) -> RunStanding:
    levels = cells[0].levels
    nodes = levels.get("nodes", math.nan)
    if isinstance(nodes, str) or not nodes >= 1:
        raise ValueError(
            "the number of client nodes is not told: there is no class to stand in "
            "(`fsmatrix import --set nodes=N` says it)"
        )
    size = size_class(int(nodes))
    peers = [
        submission for submission in submissions if submission.size == size and size != NO_CLASS
    ]
    values = {phase_of(str(cell.levels["phase"])): _value(cell) for cell in cells}
    values = {name: value for name, value in values.items() if value > 0}
    names = [name for name in summary.varying if name not in ("phase", "nodes", "target")]
    sentences = [labelled(name, levels[name]) for name in names if levels.get(name, "") != ""]
    return RunStanding(
        name=", ".join([str(levels.get("target", "")), *sentences]),
        engine=str(levels.get("engine", "")),
        nodes=int(nodes),
        size=size,
        by_rules=not any(NO_SUBMISSION in cell.findings for cell in cells),
        places=tuple(_places(values, peers)),
    )


def _value(cell: Cell) -> float:
    """In IO500's unit of the phase; NaN without one."""
    if phase_of(str(cell.levels["phase"])) in (*BANDWIDTHS, RANDOM_READ):
        return cell.metrics["bandwidth"].median / GIB
    return cell.metrics["iops"].median / KILO


def _places(values: Mapping[str, float], peers: Sequence[Submission]) -> list[RankedPlace]:
    own_score = score(values)
    totals = {
        "score": (own_score.total, [peer.score.total for peer in peers]),
        "bandwidth score": (
            own_score.bandwidth,
            [submission.score.bandwidth for submission in peers],
        ),
        "metadata score": (own_score.rate, [peer.score.rate for peer in peers]),
    }
    ranked_places = [
        _place(what, SCORES[what], own, [value for value in others if value is not None])
        for what, (own, others) in totals.items()
        if own is not None
    ]
    for name in (*PHASES, RANDOM_READ):
        if name in values:
            unit = "GiB/s" if name.startswith("ior") else "kIOPS"
            others = [peer.values[name] for peer in peers if name in peer.values]
            ranked_places.append(_place(name, unit, values[name], others))
    return ranked_places


def _place(what: str, unit: str, value: float, others: Sequence[float]) -> RankedPlace:
    below = sum(other < value for other in others)
    equal = sum(other == value for other in others)
    if not others:
        return RankedPlace(what, unit, value, 0, 0, 0, None, None)
    share = (below + equal / 2) / len(others)
    return RankedPlace(
        what, unit, value, below, equal, len(others), share, statistics.median(others)
    )
