"""Failed runs of a campaign, as a report lists them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsmatrix.analysis.data.load import Rows, runs_of
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.units import labelled


@dataclass(frozen=True)
class FailedRuns:
    """Runs of one case that failed for one reason."""

    target: str
    what: str  # levels of the factors that vary
    status: str
    error: str
    run_ids: tuple[str, ...]
    blocks: tuple[int, ...]
    repeated: int  # how many of them have a later attempt


@dataclass(frozen=True)
class Counts:
    """Runs by outcome; `ok` includes `invalid`."""

    runs: int
    ok: int
    failed: int
    timeout: int
    invalid: int
    warned: int


def counts(data: Rows) -> Counts:
    """Newest attempts by outcome."""
    current = data.where(data["last_attempt"] != 0)
    status, worst, run = current["status"], current["worst_finding"], runs_of(current)

    def number(keep: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int:
        return int(np.unique(run[keep]).size)

    return Counts(
        runs=number(np.ones(len(current), dtype=bool)),
        ok=number(status == "ok"),
        failed=number(status == "failed"),
        timeout=number(status == "timeout"),
        invalid=number((worst == "invalid") & (status == "ok")),
        warned=number((worst == "warning") & (status == "ok")),
    )


def failed_runs(data: Rows, summary: Summary) -> list[FailedRuns]:
    """Runs that failed or timed out, all attempts, by case and reason."""
    rows = np.flatnonzero(data["status"] != "ok")
    _, first = np.unique(data["run_id"][rows], return_index=True)
    names = [n for n in summary.varying if n not in ("target", "engine", "phase")]
    cases: dict[tuple[str, str, str, str], list[int]] = {}
    for row in rows[first].tolist():
        what = ", ".join(labelled(name, data.factor(name)[row].item()) for name in names)
        error = str(data["error"][row])
        key = (str(data.factor("target")[row]), what, str(data["status"][row]), error)
        cases.setdefault(key, []).append(row)
    return [
        FailedRuns(
            *key,
            run_ids=tuple(str(data["run_id"][row]) for row in members),
            blocks=tuple(sorted({int(data["block"][row]) for row in members})),
            repeated=sum(not data["last_attempt"][row] for row in members),
        )
        for key, members in sorted(cases.items())
    ]
