"""Loads: a run whose rate is a share of what its closed loop reached, in the stored run of that.

The closed loop is the one of the same repetition, and so of the same block, whichever process ran
it: a resumed campaign finds it where the first one left it.
"""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord, iops
from fsmatrix.suite.run.assemble import RunSpec


class LoadUnknown(Exception):
    """There is nothing that the load could be a share of; the text says why."""


def measured(store: Store, spec: RunSpec) -> RunSpec:
    """The run with the rates that its load means.

    LoadUnknown where the closed loop was not measured, or where its rates cannot be offered.
    """
    record = _closed_loop(store, spec)
    work = spec.workload.measured(_maxima(record))
    if reason := work.refusal(spec.case):
        raise LoadUnknown(f"not begun: {reason} (a share of {record.run_id})")
    return replace(spec, workload=work)


def _closed_loop(store: Store, spec: RunSpec) -> RunRecord:
    """The newest attempt that went well, or the newest."""
    newest: RunRecord | None = None
    for attempt in reversed(store.attempts(spec.closed_loop, spec.repetition)):
        try:
            record = store.read(f"{spec.closed_loop}-r{spec.repetition:04d}-a{attempt}")
        except ResultError:
            continue
        if record.status == "ok":
            return record
        newest = newest or record
    if newest is None:
        raise LoadUnknown(f"not begun: its closed loop {spec.closed_loop} was not run in its block")
    raise LoadUnknown(f"not begun: its closed loop {newest.run_id} failed: {newest.error}")


def _maxima(record: RunRecord) -> dict[str, float]:
    """Phase -> operations per second; LoadUnknown if one is no measurement."""
    for finding in record.findings:
        if finding.severity == "invalid":
            raise LoadUnknown(
                f"not begun: its closed loop {record.run_id} is invalid: {finding.audit}, "
                f"{finding.message}"
            )
    maxima = {phase.name: iops(phase) for phase in record.phases}
    for name, rate in maxima.items():
        if not rate > 0:
            raise LoadUnknown(f"not begun: {name} of its closed loop {record.run_id} did nothing")
    return maxima
