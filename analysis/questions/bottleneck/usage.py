"""How much of network, devices and client CPUs a run used: evidence for a bottleneck.

Campaign files have it as the variables USAGE_COLUMNS (results/files/rows.py), but those of
before it had: then run files are read, if told where; otherwise only the finding `cpu-saturated`
tells of a CPU at its limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.study import Study
from fsmatrix.results.files import runfile
from fsmatrix.results.files.rows import USAGE_COLUMNS, Usage, usage_of
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord

__all__ = ["USAGE_COLUMNS", "Usage", "by_cell", "link_limit", "of_campaign", "of_store"]

CPU_AUDIT = "cpu-saturated"
CPU_AUDIT_SHARE = 0.95  # what that audit calls busy (results/audits/machine.py)
_LINK = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMG])bit", re.ASCII)
_SCALE = {"K": 1e3, "M": 1e6, "G": 1e9}
Name = tuple[str, str]  # run id, phase


def of_campaign(ds: xr.Dataset) -> dict[Name, Usage]:
    """From a campaign file's own variables and findings."""
    data = rows(ds)
    names = list(zip(data["run_id"].tolist(), data["phase"].tolist(), strict=True))
    columns = {
        name: data[name].astype(np.float64).tolist()
        for name in USAGE_COLUMNS
        if name in data.columns
    }
    usages = {
        name: Usage(**{column: values[i] for column, values in columns.items()})
        for i, name in enumerate(names)
    }
    if "cpu_busy" not in columns and "finding_run" in ds:
        audits = ds["finding_audit"].values.astype(str).tolist()
        for row, audit in zip(ds["finding_run"].values.tolist(), audits, strict=True):
            if audit == CPU_AUDIT:
                usages[names[int(row)]] = Usage(cpu_busy=CPU_AUDIT_SHARE)
    return usages


def of_store(
    directory: Path | str, run_ids: Iterable[str], left_out: list[ResultError] | None = None
) -> dict[Name, Usage]:
    """From the run files of a store; runs that it does not have are left out.

    So are those that cannot be read or do not fit, each with an error in `left_out`.
    """
    store = Store.open(directory)
    usages: dict[Name, Usage] = {}
    for run_id in dict.fromkeys(run_ids):
        record = read_or_none(store, run_id, [] if left_out is None else left_out)
        if record is None:
            continue
        try:
            for phase in record.phases:
                usages[run_id, phase.name] = usage_of(record, phase)
        except runfile.NONSENSE as error:
            if left_out is not None:
                left_out.append(ResultError(store.path(run_id), f"its counters: {error}"))
    return usages


def read_or_none(store: Store, run_id: str, left_out: list[ResultError]) -> RunRecord | None:
    """A run of a store; None if it is not there, or with an error in `left_out` if it is no run."""
    if run_id not in store:
        return None
    try:
        return runfile.read_checked(store.path(run_id))
    except ResultError as error:
        left_out.append(error)
        return None


def left_out_sentences(left_out: Iterable[ResultError]) -> list[str]:
    """A sentence for each file that was left out."""
    return [f"{error.path.name} is left out: {error.reason}." for error in left_out]


def by_cell(
    ds: xr.Dataset, of: Study, usages: Mapping[Name, Usage]
) -> list[dict[str, list[Usage]]]:
    """Attachment -> usages, for each cell of `of.valued`."""
    data = rows(ds)
    names = list(zip(data["run_id"].tolist(), data["phase"].tolist(), strict=True))
    attachments = data["attachment"].tolist()
    result: list[dict[str, list[Usage]]] = [{} for _ in of.valued]
    for own, cell in zip(result, of.valued, strict=True):
        for row in cell.cell.rows.tolist():
            if names[row] in usages:
                own.setdefault(attachments[row], []).append(usages[names[row]])
    return result


def link_limit(network: Any, storage_nodes: float) -> float:
    """Bytes per second of all storage nodes' links together ("1Gbit" each); NaN if unknown."""
    match = _LINK.fullmatch(network.strip()) if isinstance(network, str) else None
    if match is None or not storage_nodes > 0:
        return math.nan
    return float(match[1]) * _SCALE[match[2]] / 8 * storage_nodes
