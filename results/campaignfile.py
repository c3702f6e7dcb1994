"""The campaign file: all runs in long form, one row per run and phase.  See docs/results.md."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import h5py
import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.columns import CHUNK, Appender, Coded, Table, create
from fsmatrix.results.hdf import NO_VARIABLE, TEXT
from fsmatrix.results.record import RunRecord
from fsmatrix.results.rows import Row, levels_of, rows_of
from fsmatrix.results.schema import CAMPAIGN_FORMAT, SCHEMA_VERSION, encode_text, to_json

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
    },
    "finding": {
        "finding_audit": (TEXT, "", "name of the audit"),
        "finding_version": ("i8", "1", "version of the audit"),
        "finding_severity": (TEXT, "", "info, warning or invalid"),
        "finding_message": (TEXT, "", "what was found"),
        "finding_phase": (TEXT, "", "phase that it names"),
        "finding_advice": (TEXT, "", "what to do"),
    },
}
FINDING_TEXTS = ("audit", "severity", "message", "phase", "advice")


def _attributes(unit: str, meaning: str) -> dict[str, str]:
    return {"units": unit, "long_name": meaning} if unit else {"long_name": meaning}


class Ragged:
    """One ragged dimension: its variables, and first row and size for each run."""

    def __init__(self, file: h5py.File, name: str) -> None:
        self.name = name
        self.row = Appender(file, f"{name}_run", "i8", _attributes("1", "row along run"))
        self.first = Appender(file, f"{name}_first", "i8", _attributes("1", f"first {name} row"))
        size = _attributes("1", f"number of {name} rows") | {"sample_dimension": name}
        self.size = Appender(file, f"{name}_size", "i8", size)
        self.columns = {
            variable: Appender(file, variable, kind, _attributes(unit, meaning))
            for variable, (kind, unit, meaning) in RAGGED[name].items()
        }
        self.length = 0

    def add(self, run: int, values: Mapping[str, Sequence[Any]]) -> None:
        """The values of one row along `run` (without values: none)."""
        size = len(next(iter(values.values()))) if values else 0
        self.first.append(self.length)
        self.size.append(size)
        self.row.extend(np.full(size, run))
        for name, column in values.items():
            self.columns[name].extend(column)
        self.length += size

    def appenders(self) -> list[Appender]:
        """All its datasets."""
        return [self.row, self.first, self.size, *self.columns.values()]


class CampaignWriter:
    """Takes run records one by one, ordered by run id; `finish` completes the file."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.rows = 0
        self.runs = 0
        self.numbers = {
            name: Appender(file, name, kind, _attributes(unit, meaning))
            for name, (kind, unit, meaning) in NUMBERS.items()
        }
        self.texts = {name: Coded() for name in TEXTS}
        self.factors: dict[str, Coded] = {}
        self.ragged = {name: Ragged(file, name) for name in RAGGED}
        self.kinds: dict[str, int] = {}
        self.tables = {
            name: Table(file, f"{name}_json", _attributes("", f"each different {name} once"))
            for name in ("environment", "case")
        }
        self.table_rows = {
            name: Appender(file, f"{name}_index", "i8", _attributes("1", f"row of {name}_json"))
            for name in self.tables
        }
        self.last = array("b")
        self._previous: tuple[str, int] | None = None
        self._previous_row = 0

    def add(self, record: RunRecord) -> None:
        """The rows of one run."""
        rows, levels = rows_of(record), levels_of(record)
        environment = to_json(record.environment)
        codes = {
            "environment": self.tables["environment"].code(_key(environment), environment),
            "case": self.tables["case"].code(_key(record.case), record.case),
        }
        self._mark_last((record.case_id, record.repetition))
        for row in rows:
            for name, value in levels.items():
                if name not in self.factors:
                    self.factors[name] = Coded(self.rows)
            for name, column in self.factors.items():
                column.append(levels.get(name))
            for name, code in codes.items():
                self.table_rows[name].append(code)
            self._add_row(row)
            self.last.append(1)
            self.rows += 1
        self.runs += 1

    def _mark_last(self, repetition: tuple[str, int]) -> None:
        """Rows of an earlier attempt at the same repetition are not of the last one."""
        if repetition == self._previous:
            for row in range(self._previous_row, self.rows):
                self.last[row] = 0
        self._previous, self._previous_row = repetition, self.rows

    def _add_row(self, row: Row) -> None:
        for name, column in self.numbers.items():
            missing = 0 if NUMBERS[name][0] == "i8" else float("nan")
            column.append(row.numbers.get(name, missing))
        for name, coded in self.texts.items():
            coded.append(row.texts[name])
        phase = row.phase
        self.ragged["worker"].add(
            self.rows,
            {
                f"worker_{name}": getattr(phase, name)
                for name in ("start", "end", "bytes", "operations", "errors")
            }
            if phase
            else {},
        )
        self.ragged["latency"].add(self.rows, self._latencies(row))
        self.ragged["interval"].add(self.rows, _series(row))
        self.ragged["finding"].add(self.rows, _findings(row))

    def _latencies(self, row: Row) -> dict[str, Any]:
        columns: dict[str, list[Any]] = {name: [] for name in RAGGED["latency"]}
        for kind, latency in row.phase.latency.items() if row.phase else ():
            bins = np.flatnonzero(latency.counts)
            code = self.kinds.setdefault(kind, len(self.kinds))
            columns["latency_kind"].append(np.full(bins.size, code))
            columns["latency_bin"].append(bins)
            columns["latency_count"].append(latency.counts[bins])
        return {n: np.concatenate(parts) for n, parts in columns.items() if parts}

    def finish(self, campaign: str, left_out: Sequence[Mapping[str, str]]) -> None:
        """Write what waits, decode the coded columns, attach the dimensions."""
        names = factor_names(self.factors, reserved())
        dims: dict[str, list[str]] = {"run": [*self.numbers, *TEXTS, *names.values()]}
        for column in self._appenders():
            column.flush()
        for name, meaning in TEXTS.items():
            self.texts[name].write(self.file, name, _attributes("", meaning))
        for factor, name in names.items():
            self.factors[factor].write(self.file, name, {"long_name": f"factor {factor}"})
        last = create(
            self.file, "last_attempt", "i1", _attributes("1", "1 = newest attempt"), self.rows
        )
        last[...] = np.frombuffer(self.last, dtype=np.int8)
        dims["run"] += ["last_attempt", *(f"{name}_index" for name in self.tables)]
        for name, variables in RAGGED.items():
            dims["run"] += [f"{name}_first", f"{name}_size"]
            dims[name] = [f"{name}_run", *variables]
        dims |= {name: [f"{name}_json"] for name in self.tables}
        dims |= self._fixed()
        self._attach(dims)
        coordinates = ["phase", *names.values()]
        self.file.attrs.update(
            {
                "format": CAMPAIGN_FORMAT,
                "schema_version": SCHEMA_VERSION,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "campaign": encode_text(campaign),
                "factors": to_json(names),
                "left_out": to_json(list(left_out)),
                "runs": self.runs,
                "coordinates": " ".join(coordinates),
            }
        )

    def _appenders(self) -> list[Appender]:
        ragged = [column for one in self.ragged.values() for column in one.appenders()]
        tables = [table.column for table in self.tables.values()]
        return [*self.numbers.values(), *self.table_rows.values(), *ragged, *tables]

    def _fixed(self) -> dict[str, list[str]]:
        """Latency bins and names of the kinds."""
        names = [encode_text(kind) for kind in self.kinds]
        kinds = create(self.file, "kind_name", TEXT, _attributes("", "kind of operation"))
        kinds.resize((len(names),))
        kinds[...] = names
        for name, edges in (
            ("bin_lower", histogram.lower_edges()),
            ("bin_upper", histogram.upper_edges()),
        ):
            meaning = _attributes("s", "latency bin is [lower, upper)")
            create(self.file, name, "f8", meaning, histogram.BINS)[...] = edges / 1e9
        return {"kind": ["kind_name"], "bin": ["bin_lower", "bin_upper"]}

    def _attach(self, dims: Mapping[str, Sequence[str]]) -> None:
        for dim, variables in dims.items():
            size = self.file[variables[0]].shape[0]
            scale = self.file.create_dataset(
                dim, shape=(size,), maxshape=(None,), dtype=">f4", chunks=(CHUNK,)
            )
            h5py.h5ds.set_scale(scale.id, (NO_VARIABLE % size).encode())
            for name in variables:
                h5py.h5ds.attach_scale(self.file[name].id, scale.id, 0)


def reserved() -> set[str]:
    """Names of variables and dimensions that a factor cannot have."""
    names = {*NUMBERS, *TEXTS, *RAGGED, "run", "bin", "kind", "environment", "case"}
    names |= {variable for variables in RAGGED.values() for variable in variables}
    names |= {f"{dim}_{part}" for dim in RAGGED for part in ("run", "first", "size")}
    names |= {f"{table}_{part}" for table in ("environment", "case") for part in ("json", "index")}
    return names | {"last_attempt", "kind_name", "bin_lower", "bin_upper"}


def factor_names(factors: Mapping[str, Any], taken: set[str]) -> dict[str, str]:
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


def _series(row: Row) -> dict[str, Any]:
    phase = row.phase
    if phase is None:
        return {}
    given = {name: getattr(phase, name) for name in RAGGED["interval"]}
    sizes = [len(values) for values in given.values() if values is not None]
    if not sizes:
        return {}
    return {
        name: values if values is not None else np.zeros(sizes[0], dtype=np.int64)
        for name, values in given.items()
    }


def _findings(row: Row) -> dict[str, Any]:
    if not row.findings:
        return {}
    columns: dict[str, Any] = {
        f"finding_{name}": [encode_text(getattr(finding, name)) for finding in row.findings]
        for name in FINDING_TEXTS
    }
    return columns | {"finding_version": [finding.version for finding in row.findings]}


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
