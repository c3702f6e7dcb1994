"""Run files: one RunRecord as one HDF5 file, and back again exactly.  See docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py

from fsmatrix.results.evidence.evidence import Evidence, Rank
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files import atomic_write
from fsmatrix.results.files.hdf5 import hdf
from fsmatrix.results.files.hdf5.hdf import Source
from fsmatrix.results.files.hdf5.schema import (
    RUN_FORMAT,
    SCHEMA_VERSION,
    InvalidRecordError,
    decode_text,
    encode_text,
    from_json,
    to_json,
)
from fsmatrix.results.files.run import phases, texts
from fsmatrix.results.record import Finding, Monitor, RunRecord

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


def write_run(path: Path, record: RunRecord) -> None:
    """Store `record` at `path`, durable and whole (an existing file is replaced).

    InvalidRecordError if the record contradicts itself or holds values that are not JSON;
    OSError as the system gives it.
    """
    path = Path(path)
    atomic_write.write_whole(path, run_image(path, record))


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
    if record.monitor is not None:
        _write_monitor(root.group("monitor"), record.monitor)
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
        monitor=_read_monitor(root.group("monitor")) if "monitor" in root else None,
        evidence=read(Evidence, evidence, "evidence"),
        findings=_read_findings(root.group("findings")),
        texts=texts.read_run_texts(root.group(texts.GROUP)) if texts.GROUP in root else {},
    )


def _write_monitor(group: hdf.Group, monitor: Monitor) -> None:
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


def _read_monitor(group: Source) -> Monitor:
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
