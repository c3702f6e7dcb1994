"""What became of a campaign's runs, and its failed runs, as a report lists them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import Codes, coded, plain
from fsmatrix.analysis.data.load import Rows, runs_of
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.units import described
from fsmatrix.results.audits.tally import Tally


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


def counts(ds: xr.Dataset, data: Rows) -> Tally:
    """Newest attempts by outcome."""
    run, current = runs_of(data), data["last_attempt"] != 0
    ok, worst = current & (data["status"] == "ok"), data["worst_finding"]
    every, good, timeout = (
        np.unique(run[keep]) for keep in (current, ok, current & (data["status"] == "timeout"))
    )
    invalid = np.unique(run[ok & (worst == "invalid")])
    doubtful = np.setdiff1d(run[ok & (worst == "warning")], invalid)
    return Tally(
        valid=good.size - invalid.size,
        doubtful=doubtful.size,
        invalid=invalid.size,
        failed=every.size - good.size,
        timeout=timeout.size,
        doubtful_by=_audits(ds, run, doubtful, "warning"),
        invalid_by=_audits(ds, run, invalid, "invalid"),
    )


def _audits(ds: xr.Dataset, run: Codes, runs: Codes, severity: str) -> dict[str, int]:
    """Audits with findings so grave -> in how many of these runs; `run`: of each row."""
    if "finding_run" not in ds:
        return {}
    names, audit = coded(ds["finding_audit"].values)
    run = run[ds["finding_run"].values]
    grave = np.isin(run, runs) & (plain(ds["finding_severity"].values) == severity)
    pairs = np.unique(np.stack([run[grave], audit[grave]]), axis=1)
    number = np.bincount(pairs[1], minlength=len(names))
    return {str(name): int(count) for name, count in zip(names, number, strict=True) if count}


def failed_runs(data: Rows, summary: Summary) -> list[FailedRuns]:
    """Runs that failed or timed out, all attempts, by case and reason."""
    rows = np.flatnonzero(data["status"] != "ok")
    _, first = np.unique(data["run_id"][rows], return_index=True)
    names = [n for n in summary.varying if n not in ("target", "engine", "phase")]
    cases: dict[tuple[str, str, str, str], list[int]] = {}
    for row in rows[first].tolist():
        what = described({name: data.factor(name)[row].item() for name in names}, names)
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
