"""Run files: one RunRecord as one HDF5 file, and back again exactly.  See docs/results.md.

A file's form says nothing about its contents: somebody may have written anything into it.  Whether
a record that was read fits itself is checked: ids, states, sizes, values.  What does not fit is
named and left out of everything that looks at many runs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.evidence.evidence import Evidence, Rank
from fsmatrix.results.evidence.stored import JsonObject, StoredError, read
from fsmatrix.results.files import hdf, phases, safefile, texts
from fsmatrix.results.files.hdf import Source
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import (
    RUN_FORMAT,
    SCHEMA_VERSION,
    InvalidRecordError,
    decode_text,
    encode_text,
    from_json,
    to_json,
)
from fsmatrix.results.record import (
    ID_LENGTH,
    SEVERITIES,
    Finding,
    Monitor,
    Phase,
    RunRecord,
    Status,
    digest,
)

TEXTS = (
    "case",
    "case_id",
    "work_id",
    "attachment",
    "session",
    "job",
    "status",
    "error",
    "engine",
    "engine_version",
    "started",
)
NUMBERS = ("repetition", "attempt", "block")
# stored as JSON; `coordinates` is named `factors` in the file: a root attribute of the name
# `coordinates` has another meaning in netCDF
JSON = {
    "failure": "failure",
    "argv": "argv",
    "coordinates": "factors",
    "environment": "environment",
    "companions": "companions",
    "ranks": "ranks",
}
FINDING_TEXTS = ("audit", "severity", "message", "advice", "phase")

STATES = get_args(Status)
NUMBER = 1 << 31  # repetitions, attempts, blocks are below
NAME = 500  # characters of a name: columns of strings are as wide as the longest
LEVEL = 1 << 16  # characters of a level: options of a program may be one
HOSTS = 1 << 18  # characters of all host names: 10,000 nodes
FACTORS = 500  # each is a column; campaigns have some twenty
PHASES = 10_000  # a run has one to some hundred (IO500: 13)
ANONYMISED = "anonymised"  # in `environment`: the case's names were replaced, its ids stayed
NOT_WORK = ("target", "level", "device_state")  # of a case
# what rows and columns make of contents that are not what they should be
NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


def write_run(path: Path, record: RunRecord) -> None:
    """Store `record` at `path`, durable and whole (an existing file is replaced).

    InvalidRecordError if the record contradicts itself or holds values that are not JSON;
    OSError as the system gives it.
    """
    path = Path(path)
    safefile.write_whole(path, run_image(path, record))


def run_image(path: Path, record: RunRecord) -> bytes:
    """The bytes of a run file; `path` is for messages only."""
    phases.check(path, record.phases)
    try:
        return hdf.image(lambda file: _fill(file, record))
    except TypeError as error:
        raise InvalidRecordError(path, f"the record cannot be stored: {error}") from error


def read_run(path: Path) -> RunRecord:
    """The record in a run file.  ResultError (newer, foreign, damaged, misfit) if there is none."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        try:
            return _record(Source(file))
        except StoredError as error:
            raise InvalidRecordError(path, f"holds a run that cannot be used: {error}") from error


def read_status(path: Path) -> str:
    """`status` alone: ok, failed or timeout.  ResultError as `read_run`."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        return str(file.attrs["status"])


def read_verdict(path: Path) -> tuple[str, tuple[Finding, ...]]:
    """`status` and `findings` alone.  ResultError as `read_run`."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        return str(file.attrs["status"]), _read_findings(Source(file).group("findings"))


def read_outline(path: Path) -> tuple[str, tuple[Finding, ...], str, float]:
    """`read_verdict`, `started` (UTC, ISO 8601) and `duration` (s).  ResultError as `read_run`."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        status, started = (decode_text(file.attrs[name]) for name in ("status", "started"))
        findings = _read_findings(Source(file).group("findings"))
        return status, findings, started, float(file.attrs["duration"])


def read_phases(path: Path) -> tuple[Phase, ...]:
    """The phases alone.  ResultError as `read_run`."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        return phases.read(Source(file))


def read_duration(path: Path) -> float | None:
    """Seconds of wall time of a run that is ok, else None.  ResultError as `read_run`."""
    with hdf.reading(Path(path), RUN_FORMAT) as file:
        return float(file.attrs["duration"]) if file.attrs["status"] == "ok" else None


def _fill(file: h5py.File, record: RunRecord) -> None:
    root = hdf.Group(file)
    root.attributes({"format": RUN_FORMAT, "schema_version": SCHEMA_VERSION})
    root.attributes({name: encode_text(getattr(record, name)) for name in TEXTS})
    root.attributes({name: int(getattr(record, name)) for name in NUMBERS})
    root.attributes({"duration": float(record.duration)})
    root.attributes({stored: to_json(getattr(record, name)) for name, stored in JSON.items()})
    phases.write(root, record.phases)
    for name, monitor in (("monitor", record.monitor), ("nodes", record.nodes)):
        if monitor is not None:
            write_monitor(root.group(name), monitor)
    root.group("evidence").attributes({"evidence": to_json(record.evidence.document())})
    _write_findings(root.group("findings"), record.findings)
    if record.texts:
        texts.write_run_texts(root.group(texts.GROUP), record.texts)


def _record(root: Source) -> RunRecord:
    attributes = root.attributes()
    values: dict[str, Any] = {name: decode_text(attributes[name]) for name in TEXTS}
    values |= {name: int(attributes[name]) for name in NUMBERS}
    values |= {name: from_json(attributes[stored]) for name, stored in JSON.items()}
    evidence = from_json(root.group("evidence").attributes()["evidence"])
    values["argv"] = tuple(tuple(argv) for argv in values["argv"])
    values["companions"] = tuple(values["companions"])
    values["ranks"] = tuple(
        read(Rank, rank, f"ranks[{i}]") for i, rank in enumerate(values["ranks"])
    )
    return RunRecord(
        **values,
        duration=float(attributes["duration"]),
        phases=phases.read(root),
        monitor=read_monitor(root.group("monitor")) if "monitor" in root else None,
        nodes=read_monitor(root.group("nodes")) if "nodes" in root else None,
        evidence=read(Evidence, evidence, "evidence"),
        findings=_read_findings(root.group("findings")),
        texts=texts.read_run_texts(root.group(texts.GROUP)) if texts.GROUP in root else {},
    )


def write_monitor(group: hdf.Group, monitor: Monitor) -> None:
    """time [sample]; series [host, metric, sample]; sizes of at least one, padded with NaN."""
    names = tuple(monitor.series)
    group.attributes(
        {
            "hosts": len(monitor.hosts),
            "metrics": len(names),
            "samples": len(monitor.time),
            "units": to_json(monitor.units),
        }
    )
    time = phases.padded([monitor.time], len(monitor.time), float("nan"))[0]
    table = phases.cube([monitor.series[name] for name in names], len(monitor.hosts), len(time))
    group.coordinate("host", phases.texts(monitor.hosts), {"long_name": "host of the kernel"})
    group.coordinate("metric", phases.texts(names), {"long_name": "metric"})
    group.dimension("sample", len(time))
    group.variable("time", time, ["sample"], {"units": "s", "long_name": "Unix time"})
    group.variable(
        "series",
        table,
        ["host", "metric", "sample"],
        {"long_name": "sampled series; units by metric in the group's attribute `units`"},
    )


def read_monitor(group: Source) -> Monitor:
    """Inverse of `write_monitor`."""
    attributes = group.attributes()
    hosts, metrics, samples = (int(attributes[n]) for n in ("hosts", "metrics", "samples"))
    table = group.array("series")
    return Monitor(
        hosts=phases.strings(group, "host")[:hosts],
        time=group.array("time")[:samples],
        series={
            name: table[:hosts, index, :samples].copy()
            for index, name in enumerate(phases.strings(group, "metric")[:metrics])
        },
        units=from_json(attributes["units"]),
    )


def _write_findings(group: hdf.Group, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    group.dimension("finding", len(findings))
    for name in FINDING_TEXTS:
        column = phases.texts([getattr(finding, name) for finding in findings])
        group.variable(name, column, ["finding"], {})
    group.variable("evidence", [to_json(f.evidence) for f in findings], ["finding"], {})
    group.variable(
        "version",
        phases.integers([finding.version for finding in findings]),
        ["finding"],
        {"long_name": "version of the audit"},
    )


def _read_findings(group: Source) -> tuple[Finding, ...]:
    if "audit" not in group:
        return ()
    columns = {name: phases.strings(group, name) for name in FINDING_TEXTS}
    versions = group.array("version")
    evidence = group.texts("evidence")
    return tuple(
        Finding(
            version=int(versions[index]),
            evidence=from_json(evidence[index]),
            **{name: column[index] for name, column in columns.items()},  # type: ignore[arg-type]
        )
        for index in range(len(versions))
    )


class MisfitError(ResultError):
    """A run file whose contents contradict themselves, or its name."""


def read_checked(path: Path) -> RunRecord:
    """The record of a run file in a store.  ResultError if it cannot be read or does not fit."""
    record = read_run(path)
    check_record(path, record)
    return record


def check_record(path: Path, record: RunRecord) -> None:
    """MisfitError with the first thing that does not fit."""
    if path.stem != record.run_id:
        raise MisfitError(path, f"holds run {record.run_id[:NAME]}: renamed, or copied here")
    try:
        reason = next(_misfits(record), "")
        phases.check(path, record.phases)
    except NONSENSE as error:
        raise MisfitError(path, f"holds a run that cannot be merged: {error}") from error
    if reason:
        raise MisfitError(path, f"holds a run that cannot be merged: {reason}")


def _misfits(record: RunRecord) -> Iterator[str]:
    yield from _documents(record)
    yield from _case(record)
    if record.status not in STATES:
        yield f"its status is {record.status[:NAME]!r}, not one of {', '.join(STATES)}"
    for name in ("repetition", "attempt", "block"):
        if not 0 <= getattr(record, name) < NUMBER:
            yield f"{name} is {getattr(record, name)}"
    if not (math.isfinite(record.duration) and record.duration >= 0):
        yield f"its duration is {record.duration}"
    if len(record.phases) > PHASES:
        yield f"it has {len(record.phases)} phases"
    for phase in record.phases:
        yield from _phase(phase)
    for finding in record.findings:
        if finding.severity not in SEVERITIES:
            yield f"a finding has the severity {finding.severity[:NAME]!r}"
        if len(finding.audit) > NAME or len(finding.phase) > NAME:
            yield "a finding has a name that is too long"


def _case(record: RunRecord) -> Iterator[str]:
    """Ids are hashes of the case: nobody can give a run another's id by mistake."""
    case = from_json(record.case)
    if not isinstance(case, dict) or not all(
        isinstance(case.get(name), str) and 0 < len(case[name]) <= NAME
        for name in ("target", "workload")
    ):
        yield f"not the canonical JSON of a case: {record.case[:80]!r}"
        return
    for name in ("options", "level", "geometry"):
        if not isinstance(case.get(name, {}), dict):
            yield f"its case has {name} that are no mapping"
    if record.environment.get(ANONYMISED) is True:
        return
    expected = hashlib.sha256(record.case.encode()).hexdigest()[:ID_LENGTH]
    if record.case_id not in (expected, digest(case)):
        yield f"its case has the id {digest(case)}, not {record.case_id[:NAME]}"
    work = digest({name: value for name, value in case.items() if name not in NOT_WORK})
    if record.work_id != work:
        yield f"its work has the id {work}, not {record.work_id[:NAME]}"


def _documents(record: RunRecord) -> Iterator[str]:
    """What stands in the file as JSON is of the types that we write."""
    for name in ("failure", "coordinates", "environment"):
        if not isinstance(getattr(record, name), dict):
            yield f"{name} is no mapping"
            return
    if not all(isinstance(word, str) for words in record.argv for word in words):
        yield "argv holds something else than words"
    if not all(isinstance(run_id, str) for run_id in record.companions):
        yield "companions holds something else than ids"
    if sum(map(len, {rank.host for rank in record.ranks})) > HOSTS:
        yield "its ranks have host names that are too long"
    if len(record.coordinates) > FACTORS:
        yield f"it has {len(record.coordinates)} factors"
    for name, level in record.coordinates.items():
        if not 0 < len(name) <= NAME or len(str(level)) > LEVEL:
            yield f"the factor {name[:80]!r} has a name or a level that is too long"


def _phase(phase: Phase) -> Iterator[str]:
    name = f"phase {phase.name[:80]!r}"
    if len(phase.name) > NAME or any(len(k) > NAME for k in (*phase.latency, *phase.timeline)):
        yield f"{name} has a name that is too long"
    for field in ("began", "clock_uncertainty", "interval"):
        value = getattr(phase, field)
        if not math.isfinite(value) or value < 0:
            yield f"{name}: {field} is {value}"
    for field in (*phases.TIMES, *phases.OPTIONAL_TIMES):
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "f" or np.isinf(values).any()):
            yield f"{name}: {field} holds what is no time"
    for field in (*phases.COUNTS, *phases.SERIES):
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "i" or (values < 0).any()):
            yield f"{name}: {field} holds what is no count"
    for field in phases.TIME_SERIES:
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "f" or iterations.impossible(values)):
            yield f"{name}: {field} holds what is no time"
    for kind, latency in phase.latency.items():
        numbers = (latency.total, latency.minimum, latency.maximum)
        if (latency.counts < 0).any() or any(math.isinf(n) or n < 0 for n in numbers):
            yield f"{name}: latencies of {kind[:80]!r} are negative or infinite"
    if reason := iterations.misfit(phase.iterations, phase.summary):
        yield f"{name}: {reason}"
    for column, values in phase.iterations.items():
        if iterations.impossible(values):
            yield f"{name}: {column} of an iteration is negative or infinite"
    if any(math.isinf(value) or value < 0 for value in phase.summary.values()):
        yield f"{name}: a summary of iterations is negative or infinite"
    if not isinstance(phase.facts, dict) or not isinstance(phase.errors_by_errno, dict):
        yield f"{name}: facts or errors_by_errno is no mapping"


def numbers(path: Path, rows: Sequence[JsonObject]) -> None:
    """MisfitError if a column of numbers of these rows would get something else."""
    for row in rows:
        for name, value in row.items():
            if not isinstance(value, int | float | np.number):
                raise MisfitError(path, f"holds a run that cannot be merged: {name} is no number")
