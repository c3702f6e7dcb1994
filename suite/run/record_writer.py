"""Keeps records: judged and written while the next run settles, never while one is timed.

A run counts as finished when its file is on the disk; what was not flushed when the conductor
dies is run again.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType

from fsmatrix.results.audits import judged
from fsmatrix.results.audits.audit import Tally
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.files.store import Store, StoreError
from fsmatrix.results.record import Finding, RunRecord
from fsmatrix.suite.run.assemble import TRACEBACK
from fsmatrix.suite.run.events import Event, Facts, Listener


@dataclass
class Summary:
    """What came of a campaign's run."""

    tally: Tally = field(default_factory=Tally)  # of all runs, those stored before too
    ok: int = 0  # of this process, valid or not
    failures: list[tuple[str, str]] = field(default_factory=list)  # run id, reason
    skipped: int = 0  # stored before
    interrupted: bool = False
    signal: int = 0  # the signal that asked to stop
    stopped: str = ""  # why it ended before its end


class RecordWriter:
    """Writes one record at a time, in a thread of its own; a context manager."""

    def __init__(self, store: Store, summary: Summary, tell: Listener) -> None:
        self.store = store
        self.summary = summary
        self.tell = tell
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="keeper")
        self._pending: Future[RunRecord] | None = None
        self.written = 0  # bytes of records, counted when they are on the disk

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        try:
            self.flush()
        finally:
            self._pool.shutdown()

    def keep(self, record: RunRecord) -> None:
        """Begin to store a record; StoreError if an earlier one could not be stored."""
        self.flush()
        self._pending = self._pool.submit(self._store, record)

    def flush(self) -> None:
        """Wait until everything is on the disk, and tell of it."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        record = pending.result()
        findings = tuple(f"{finding.audit} ({finding.severity})" for finding in record.findings)
        target = str(record.coordinates.get("target", ""))
        tally = self.count(target, record.status, record.findings, record.run_id)
        facts = Facts(run=record.run_id, status=record.status, findings=findings, tally=tally)
        if record.status == "ok":
            self.summary.ok += 1
            self.tell(Event("finished", record.run_id, facts))
        else:
            self.summary.failures.append((record.run_id, record.error))
            facts = replace(facts, begun=bool(record.session))
            self.tell(Event("failed", f"{record.run_id}: {record.error}", facts))

    def count(
        self, target: str, status: str, findings: Sequence[Finding], run: str | None = None
    ) -> Tally:
        """With one more run; an audit that calls one invalid is told, with its remedy, once."""
        before, self.summary.tally = self.summary.tally, self.summary.tally.plus(status, findings)
        new = self.summary.tally.invalid_by.keys() - before.invalid_by.keys()
        first = {f.audit: f for f in reversed(findings) if f.severity == "invalid"}
        for audit, finding in first.items():
            if audit in new:
                where = ", ".join(filter(None, (target, finding.phase)))
                text = f"{audit} ({where}): {finding.message}; what to do: {finding.advice}"
                self.tell(Event("invalid", text, Facts(run=run, target=target)))
        return self.summary.tally

    def _store(self, record: RunRecord) -> RunRecord:
        try:
            record = judged(record)
            self._write(record)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - what a workload or an audit made of the run
            record = _without_results(record, error)
            self._write(record)
        return record

    def _write(self, record: RunRecord) -> None:
        try:
            self.written += self.store.write(record).stat().st_size
        except OSError as error:
            raise StoreError(
                self.store.path(record.run_id), f"cannot be written: {error.strerror}"
            ) from error


def _without_results(record: RunRecord, error: Exception) -> RunRecord:
    """The record of a failed run instead of one that cannot be judged or stored."""
    return replace(
        record,
        status="failed",
        error=f"what the run gave cannot be stored: {type(error).__name__}: {error}",
        failure={},
        phases=(),
        monitor=None,
        evidence=Evidence(),
        findings=(),
        texts={TRACEBACK: "".join(traceback.format_exception(error))},
    )
