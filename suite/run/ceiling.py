"""The clients' ceilings of a session's cases: when they are measured, and for how long."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from fsmatrix.results.evidence.evidence import Ceiling, Rank
from fsmatrix.suite.run.assemble import RunContext, Settings
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.messages import Playing, StepAnswer, StepCommand, in_rows
from fsmatrix.suite.workloads.base import Step

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
