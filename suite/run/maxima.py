"""Maxima that runs are held against: what the closed loop reached, and what the clients can make.

A load is a share of what its closed loop reached, in the stored run of that: the one of the same
repetition, and so of the same block, whichever process ran it.  A resumed campaign finds it where
the first one left it.  The clients' ceilings are measured here, for each case of a session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fsmatrix.results.evidence.evidence import Ceiling, Rank
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord, iops
from fsmatrix.suite.run.assemble import RunContext, RunSpec, Settings
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.messages import Playing, StepAnswer, StepCommand, in_rows
from fsmatrix.suite.workloads.workload import Step


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


# The clients' ceilings: when they are measured, and for how long.


SHARE = 0.05  # of the time of the runs before, in the same session
SHORTEST = 0.05  # s: below, one scheduling delay decides
LONGEST = 1.0  # s
ROUND_TRIP = 0.005  # s: command, clocks, threads
PATIENCE = 30.0  # s, for an answer beyond that time


class Ceilings:
    """Measured once for each case of a session, after one of its runs has earned the time.

    After, so that no run begins on clients that were just busy, and so that the cost is known.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        self._known: dict[str, Mapping[str, Ceiling]] = {}  # by case
        self._earned = 0.0  # seconds, less what was spent

    def of(
        self, run: RunContext, steps: Sequence[Step], ranks: Sequence[Rank], took: float
    ) -> Mapping[str, Ceiling]:
        """Those of a run's timed streams, by phase; `took`: seconds of the run.

        SessionError if the session ends.
        """
        self._earned += SHARE * took
        wanted = [step for step in steps if step.role == "timed" and step.ceiling is not None]
        if not self._settings.client_ceiling or not wanted:
            return {}
        case = run.spec.case.case_id
        if case in self._known:
            return self._known[case]
        each = min(self._earned / len(wanted) - ROUND_TRIP, LONGEST)
        if each < SHORTEST:
            reason = f"{SHARE:.0%} of the session's runs so far are too short"
            return {step.name: Ceiling(rate=None, why_not=reason) for step in wanted}
        begin = time.monotonic()
        self._known[case] = {step.name: self._measured(run, step, ranks, each) for step in wanted}
        self._earned -= time.monotonic() - begin
        return self._known[case]

    def _measured(
        self, run: RunContext, step: Step, ranks: Sequence[Rank], seconds: float
    ) -> Ceiling:
        assert step.ceiling is not None  # of those that are wanted
        geometry, settings = run.spec.case.geometry, self._settings
        command = StepCommand(
            to=in_rows([rank.rank for rank in ranks]),
            playing=Playing(
                stream=step.ceiling,
                seed=run.spec.seed,
                driver="null",
                implementation=settings.implementation,
                ceiling=seconds,
            ),
            roots=("",),
            access={},
            nodes=geometry.nodes,
            threads=geometry.threads,
            seed=run.spec.seed,
            affinity=settings.affinity,
            sample=False,
            oversubscribed=False,
            timeout=seconds,
        )
        late = f"{step.name}: the clients' ceiling was not measured within {PATIENCE:g} s"
        answer, _ = self._session.request(command, StepAnswer, seconds + PATIENCE, late=late)
        if not answer.ceiling:
            reason = f"no operation was made in {seconds:.3g} s"
            return Ceiling(rate=None, seconds=seconds, why_not=reason)
        return Ceiling(rate=answer.ceiling, seconds=seconds)
