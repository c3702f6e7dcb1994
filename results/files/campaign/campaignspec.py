"""The variables of the campaign file: names, types, units, meanings.  See docs/results.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fsmatrix.results import iterations
from fsmatrix.results.files.campaign import observed
from fsmatrix.results.files.campaign.usage import COLUMNS
from fsmatrix.results.files.hdf5.hdf import TEXT

_RATES = COLUMNS | observed.COLUMNS | iterations.OWN_VARIABLES
# name -> (type, unit, meaning): variables [run]
NUMBERS: dict[str, tuple[str, str, str]] = {
    "repetition": ("i8", "1", "repetition of the case"),
    "attempt": ("i8", "1", "attempt at this repetition"),
    "block": ("i8", "1", "pass over all cases"),
    "duration": ("f8", "s", "wall time of the run, all steps together"),
    "began": ("f8", "s", "Unix time of the phase's agreed start"),
    "bandwidth": ("f8", "B s-1", "bytes of all workers / window"),
    "iops": ("f8", "s-1", "operations of all workers / window"),
    "window": ("f8", "s", "earliest start to latest end over all workers"),
    "io_window": ("f8", "s", "first to last data operation"),
    "io_bandwidth": ("f8", "B s-1", "bytes of all workers / io_window"),
    "first_finisher_rate": ("f8", "B s-1", "bytes until the first worker finished / that time"),
    "latency_mean": ("f8", "s", "mean latency"),
    "latency_min": ("f8", "s", "smallest latency"),
    "latency_max": ("f8", "s", "largest latency"),
    "latency_p50": ("f8", "s", "median latency"),
    "latency_p95": ("f8", "s", "95 % of the operations took less"),
    "latency_p99": ("f8", "s", "99 % of the operations took less"),
    "latency_p99_9": ("f8", "s", "99.9 % of the operations took less"),
    "bytes": ("f8", "B", "bytes of all workers"),
    "operations": ("f8", "1", "completed operations of all workers"),
    "errors": ("f8", "1", "failed operations of all workers"),
    "workers": ("i8", "1", "workers that the phase has data of"),
    "clock_uncertainty": ("f8", "s", "largest uncertainty of a worker's clock offset"),
    "interval_width": ("f8", "s", "width of one interval of the series; 0 = no series"),
    **{name: ("f8", *rest) for name, rest in _RATES.items()},
}
TEXTS: dict[str, str] = {
    "phase": "name of the phase",
    "run_id": "name of the run's file",
    "case_id": "id of the case",
    "work_id": "id of the case without its target: pairs runs across targets",
    "attachment": "mounting or provisioning of the target: the unit of independence",
    "session": "MPI world that executed the run",
    "job": "Slurm job",
    "hosts": "distinct hosts of the ranks",
    "status": "ok, failed or timeout",
    "worst_finding": "worst severity of the findings that concern this row",
    "engine": "program that did the work",
    "engine_version": "its version",
    "error": "why the run failed",
    "started": "UTC, ISO 8601",
    "latency_of": "kinds of operation that the latency columns pool",
    "lhcb": "what the LHCb analysis found (evidence/lhcb.py), JSON; else empty",
    "replay": "what became of a trace's operations (evidence/replay.py), JSON; else empty",
}
# dimension -> variable -> (type, unit, meaning)
RAGGED: dict[str, dict[str, tuple[Any, str, str]]] = {
    "worker": {
        "worker_start": ("f8", "s", "first operation began, after the phase's agreed start"),
        "worker_end": ("f8", "s", "last operation ended"),
        "worker_bytes": ("i8", "B", "bytes moved"),
        "worker_operations": ("i8", "1", "completed operations"),
        "worker_errors": ("i8", "1", "failed operations"),
    },
    "latency": {
        "latency_kind": ("i4", "1", "row of kind_name"),
        "latency_bin": ("i4", "1", "row of bin_lower and bin_upper"),
        "latency_count": ("i8", "1", "operations whose latency fell into the bin"),
    },
    "interval": {
        "interval_bytes": ("i8", "B", "bytes of all workers in this interval"),
        "interval_operations": ("i8", "1", "operations of all workers in this interval"),
        "interval_latency_max": ("f8", "s", "largest latency of an operation in this interval"),
    },
    "iteration": dict(iterations.VARIABLES),
    "finding": {
        "finding_audit": (TEXT, "", "name of the audit"),
        "finding_version": ("i8", "1", "version of the audit"),
        "finding_severity": (TEXT, "", "info, warning or invalid"),
        "finding_message": (TEXT, "", "what was found"),
        "finding_phase": (TEXT, "", "phase that it names"),
        "finding_advice": (TEXT, "", "what to do"),
    },
}
LATER = frozenset({"interval_latency_max"})  # came to a dimension that was there
FINDING_TEXTS = ("audit", "severity", "message", "phase", "advice")


def attributes(unit: str, meaning: str) -> dict[str, str]:
    """Attributes of a variable; an empty unit is left out."""
    return {"units": unit, "long_name": meaning} if unit else {"long_name": meaning}


def reserved() -> set[str]:
    """Names of variables and dimensions that a factor cannot have."""
    names = {*NUMBERS, *TEXTS, *RAGGED, "run", "bin", "kind", "environment", "case"}
    names |= {variable for variables in RAGGED.values() for variable in variables}
    names |= {f"{dim}_{part}" for dim in RAGGED for part in ("run", "first", "size")}
    names |= {f"{table}_{part}" for table in ("environment", "case") for part in ("json", "index")}
    return names | {"last_attempt", "kind_name", "bin_lower", "bin_upper"}


def factor_names(factors: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Factor -> name of its variable: a name that netCDF takes and nothing else has."""
    names: dict[str, str] = {}
    for factor in factors:
        name = "".join("_" if c.isspace() or c == "/" or not c.isprintable() else c for c in factor)
        if name in taken or not name[:1].isalnum():
            name = f"factor_{name}"
        while name in taken or name in names.values():
            name += "_"
        names[factor] = name
    return names
