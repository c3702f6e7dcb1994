"""Failed runs and findings of a campaign, as a report lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis.load import Rows, runs_of
from fsmatrix.analysis.summary import RANK, Summary
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
class FindingGroup:
    """One audit's findings of one severity."""

    audit: str
    severity: str
    runs: int
    targets: tuple[str, ...]
    messages: tuple[str, ...]  # different ones, the most frequent first
    more_messages: int
    advice: str


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


def finding_groups(ds: xr.Dataset, data: Rows, most_messages: int = 3) -> list[FindingGroup]:
    """Findings by audit and severity, the worst first."""
    if "finding_run" not in ds or ds.sizes.get("finding", 0) == 0:
        return []
    text = {
        name: ds[f"finding_{name}"].values.astype(str)
        for name in ("audit", "severity", "message", "advice")
    }
    row = ds["finding_run"].values
    result = []
    for audit, severity in sorted(set(zip(text["audit"], text["severity"], strict=True))):
        mine = (text["audit"] == audit) & (text["severity"] == severity)
        messages = _frequent(text["message"][mine])
        result.append(
            FindingGroup(
                audit=str(audit),
                severity=str(severity),
                runs=int(np.unique(data["run_id"][row[mine]]).size),
                targets=tuple(sorted({str(t) for t in data.factor("target")[row[mine]]})),
                messages=tuple(messages[:most_messages]),
                more_messages=max(len(messages) - most_messages, 0),
                advice=next(iter(_frequent(text["advice"][mine])), ""),
            )
        )
    return sorted(result, key=lambda group: (-RANK.get(group.severity, 0), -group.runs))


def _frequent(texts: Sequence[str] | np.ndarray[tuple[int, ...], np.dtype[np.str_]]) -> list[str]:
    values, number = np.unique(np.asarray(texts), return_counts=True)
    return [str(values[i]) for i in np.argsort(-number, kind="stable")]
