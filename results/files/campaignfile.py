"""The campaign file: all runs in long form, one row per run and phase.  See docs/results.md.

It is made of run files, one run in memory at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence import workloads
from fsmatrix.results.files import hdf, runfile, safefile
from fsmatrix.results.files.hdf import TEXT, FaultTolerantFile
from fsmatrix.results.files.run_rows import OBSERVED_COLUMNS, USAGE_COLUMNS, Row, levels_of, rows_of
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import (
    CAMPAIGN_FORMAT,
    SCHEMA_VERSION,
    Appender,
    Coded,
    Table,
    create,
    encode_text,
    to_json,
)
from fsmatrix.results.files.texts import CampaignTexts, attach
from fsmatrix.results.record import RunRecord

# The variables of the campaign file: names, types, units, meanings.  See docs/results.md.


_RATES = USAGE_COLUMNS | OBSERVED_COLUMNS | workloads.OPEN_LOOP_COLUMNS | iterations.OWN_VARIABLES
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
    "client_ceiling": ("f8", "s-1", "operations of all workers on a driver that does nothing"),
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
    "lhcb": "what the LHCb analysis found (evidence/workloads.py), JSON; else empty",
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

CACHE = 1 << 17  # bytes of chunks that HDF5 keeps for each variable
Progress = Callable[[int], None]


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


Level = str | int | float | None


class Ragged:
    """One ragged dimension: its variables, and first row and size for each run."""

    def __init__(self, file: h5py.File, name: str, rows: int = 0) -> None:
        """`rows` along `run` are there already, and have none of it."""
        self.name = name
        self.row = Appender(file, f"{name}_run", "i8", attributes("1", "row along run"))
        self.first = Appender(file, f"{name}_first", "i8", attributes("1", f"first {name} row"))
        size = attributes("1", f"number of {name} rows") | {"sample_dimension": name}
        self.size = Appender(file, f"{name}_size", "i8", size)
        self.columns = {
            variable: Appender(file, variable, kind, attributes(unit, meaning))
            for variable, (kind, unit, meaning) in RAGGED[name].items()
        }
        self.length = 0
        self.first.extend(np.zeros(rows))
        self.size.extend(np.zeros(rows))

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
        """The appenders of its columns, to be flushed together."""
        return [self.row, self.first, self.size, *self.columns.values()]


@dataclass(frozen=True)
class Entry:
    """One run as a campaign file holds it."""

    rows: Sequence[Row]  # at least one
    levels: Mapping[str, Level]  # factor -> level
    environment: str  # JSON
    case: str  # canonical JSON
    texts: Mapping[str, str] = field(default_factory=dict)


def entry_of(record: RunRecord) -> Entry:
    """A record as a campaign file holds it."""
    return Entry(
        rows_of(record), levels_of(record), to_json(record.environment), record.case, record.texts
    )


class CampaignWriter:
    """Takes runs one by one, attempts at one repetition together; `finish` completes the file."""

    def __init__(self, file: h5py.File, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises if the file cannot be written any more; it is called often."""
        self.file = file
        self._check = check
        self.rows = 0
        self.runs = 0
        self.numbers = {
            name: self._number(name) for name in NUMBERS if name not in iterations.OWN_VARIABLES
        }
        self.texts = {name: Coded() for name in TEXTS}
        self.factors: dict[str, Coded] = {}
        self.ragged = {name: Ragged(file, name) for name in RAGGED if name != "iteration"}
        self.kinds: dict[str, int] = {}
        self.tables = {
            name: Table(file, f"{name}_json", attributes("", f"each different {name} once"))
            for name in ("environment", "case")
        }
        self.table_rows = {
            name: Appender(file, f"{name}_index", "i8", attributes("1", f"row of {name}_json"))
            for name in self.tables
        }
        self.texts_kept = CampaignTexts(file)
        self.last = array("b")
        self._previous: tuple[str, int] | None = None
        self._previous_row = 0

    def add(self, record: RunRecord) -> None:
        """The rows of one run."""
        self.put(entry_of(record))

    def put(self, entry: Entry) -> None:
        """As `add`, of a run that was in a campaign file before."""
        codes = {
            "environment": self.tables["environment"].code(
                _key(entry.environment), entry.environment
            ),
            "case": self.tables["case"].code(_key(entry.case), entry.case),
        }
        first = entry.rows[0]
        self._mark_last((first.texts["case_id"], int(first.numbers["repetition"])))
        self.texts_kept.add(self.rows, entry.texts)
        for row in entry.rows:
            for name in entry.levels:
                if name not in self.factors:
                    self.factors[name] = Coded(self.rows)
            for name, column in self.factors.items():
                column.append(entry.levels.get(name))
            for name, code in codes.items():
                self.table_rows[name].append(code)
            self._add_row(row)
            self.last.append(1)
            self.rows += 1
            self._check()
        self.runs += 1

    def _mark_last(self, repetition: tuple[str, int]) -> None:
        """Rows of an earlier attempt at the same repetition are not of the last one."""
        if repetition == self._previous:
            for row in range(self._previous_row, self.rows):
                self.last[row] = 0
        self._previous, self._previous_row = repetition, self.rows

    def _number(self, name: str) -> Appender:
        kind, unit, meaning = NUMBERS[name]
        return Appender(self.file, name, kind, attributes(unit, meaning))

    def _iterated(self) -> None:
        """Make what only campaigns with iterations have; the rows before have none."""
        self.ragged["iteration"] = Ragged(self.file, "iteration", self.rows)
        for name in iterations.OWN_VARIABLES:
            self.numbers[name] = self._number(name)
            self.numbers[name].extend(np.full(self.rows, np.nan))

    def _add_row(self, row: Row) -> None:
        if "iteration" not in self.ragged and (_iterations(row) or _own(row)):
            self._iterated()
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
        if "iteration" in self.ragged:
            self.ragged["iteration"].add(self.rows, _iterations(row))
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
            self._check()
        for name, meaning in TEXTS.items():
            self.texts[name].write(self.file, name, attributes("", meaning))
            self._check()
        for factor, name in names.items():
            self.factors[factor].write(self.file, name, {"long_name": f"factor {factor}"})
            self._check()
        last = create(
            self.file, "last_attempt", "i1", attributes("1", "1 = newest attempt"), self.rows
        )
        last[...] = np.frombuffer(self.last, dtype=np.int8)
        dims["run"] += ["last_attempt", *(f"{name}_index" for name in self.tables)]
        for name in self.ragged:
            dims["run"] += [f"{name}_first", f"{name}_size"]
            dims[name] = [f"{name}_run", *RAGGED[name]]
        dims |= {name: [f"{name}_json"] for name in self.tables}
        dims |= self._fixed()
        for dim, members in dims.items():
            attach(self.file, dim, [self.file[name] for name in members])
        self.texts_kept.finish()
        self._check()
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
        ragged = [column for appender in self.ragged.values() for column in appender.appenders()]
        tables = [table.column for table in self.tables.values()]
        return [*self.numbers.values(), *self.table_rows.values(), *ragged, *tables]

    def _fixed(self) -> dict[str, list[str]]:
        """Latency bins and names of the kinds."""
        names = [encode_text(kind) for kind in self.kinds]
        kinds = create(self.file, "kind_name", TEXT, attributes("", "kind of operation"))
        kinds.resize((len(names),))
        kinds[...] = names
        for name, edges in (
            ("bin_lower", histogram.lower_edges()),
            ("bin_upper", histogram.upper_edges()),
        ):
            meaning = attributes("s", "latency bin is [lower, upper)")
            create(self.file, name, "f8", meaning, histogram.BINS)[...] = edges / 1e9
        return {"kind": ["kind_name"], "bin": ["bin_lower", "bin_upper"]}


def _series(row: Row) -> dict[str, Any]:
    phase = row.phase
    if phase is None:
        return {}
    given = {name: getattr(phase, name) for name in RAGGED["interval"]}
    sizes = [len(values) for values in given.values() if values is not None]
    if not sizes:
        return {}
    missing = {"i8": np.zeros(sizes[0], dtype=np.int64), "f8": np.full(sizes[0], np.nan)}
    return {
        name: values if values is not None else missing[RAGGED["interval"][name][0]]
        for name, values in given.items()
    }


def _iterations(row: Row) -> dict[str, Any]:
    table = iterations.filled(row.phase.iterations) if row.phase else {}
    return {iterations.PREFIX + name: column for name, column in table.items()}


def _own(row: Row) -> bool:
    """Whether the engine sums its iterations up."""
    return row.numbers.get(iterations.OWN + "iterations", 0) > 0


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


def merge_files(
    files: Iterable[Path],
    target: Path,
    campaign: str = "",
    root: Path | None = None,
    progress: Progress | None = None,
    made_of: Mapping[str, str] | None = None,
    wrong: Sequence[ResultError] = (),
) -> list[ResultError]:
    """Stream `files`, ordered by run id, into a campaign file at `target`.

    Files that cannot be used are left out, named in the file (relative to `root`) and
    returned, after what is `wrong` already.  `made_of` are attributes that tell the files
    (store.py).  `campaign` is the text of campaign.json; `progress` is told the number of
    files seen.  The file appears whole or not at all; OSError as the system gives it.
    """
    left_out: list[ResultError] = list(wrong)
    with writing(Path(target)) as writer:
        for seen, path in enumerate(files, 1):
            error = _add(writer, path)
            if error is not None:
                left_out.append(error)
            if progress is not None:
                progress(seen)
        writer.finish(campaign, [_named(error, root) for error in left_out])
        writer.file.attrs.update(made_of or {})
    return left_out


@contextlib.contextmanager
def writing(target: Path) -> Iterator[CampaignWriter]:
    """A campaign file that appears at `target` when the block ends, whole and durable.

    If the block raises, nothing appears.  OSError as the system gives it.
    """
    with safefile.replacing(target) as aside, closing(FaultTolerantFile(aside)) as stream:
        with h5py.File(stream, "w", libver=hdf.LIBVER, rdcc_nbytes=CACHE) as file:
            yield CampaignWriter(file, stream.check)
        stream.sync()
    safefile.sync_directory(target.parent)


def _add(writer: CampaignWriter, path: Path) -> ResultError | None:
    try:
        record = runfile.read_checked(path)
        entry = entry_of(record)  # before anything of it is in the file
        runfile.numbers(path, [row.numbers for row in entry.rows])
    except ResultError as error:
        return error
    except runfile.NONSENSE as error:  # evidence that is none
        return ResultError(path, f"holds a run that cannot be merged: {error}")
    writer.put(entry)
    return None


def _named(error: ResultError, root: Path | None) -> dict[str, str]:
    path = error.path
    inside = root is not None and path.is_relative_to(root)
    return {
        "file": str(path.relative_to(root)) if inside and root else path.name,
        "reason": error.reason,
    }
