"""One run on a session: its steps in order, settled, cached, timed, and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.results.formats.base import Parsed, ParseError
from fsmatrix.results.record import RunRecord, Status
from fsmatrix.suite.run import assemble, outputs
from fsmatrix.suite.run.assemble import RunBuilder
from fsmatrix.suite.run.environment import REST_SECONDS, Surroundings, left
from fsmatrix.suite.run.outputs import RunFailed
from fsmatrix.suite.run.spec import RunSpec, Settings, now
from fsmatrix.suite.session import programs
from fsmatrix.suite.session.client.client import Session
from fsmatrix.suite.session.client.death import DeadlinePassed, NodeError, SessionDied, SessionError
from fsmatrix.suite.session.client.loopback import WhileStarting
from fsmatrix.suite.session.programs import GRACE
from fsmatrix.suite.session.programs import run as run_program
from fsmatrix.suite.session.stopping import Interrupted
from fsmatrix.suite.session.survey import addressed
from fsmatrix.suite.workloads.base import Argv, Function, Output, Step, Stream

CONTENT_STEP = 0x9E3779B97F4A7C15  # between the content seeds of two overwrite generations


class Runner:
    """Carries out runs on one attachment."""

    def __init__(
        self,
        session: Session,
        access: Access,
        journal: Path,
        settings: Settings,
        quiet: Callable[[], None],
        written: Callable[[], int],
        provenance: Mapping[str, Any],
    ) -> None:
        """`quiet` is called before each timed step: it ends what must not run beside one.

        `written`: bytes of results that the suite has written so far.
        """
        self.session = session
        self.access = access
        self.journal = journal
        self.around = Surroundings(session, access, journal, settings, provenance)
        self.settings = settings
        self.quiet = quiet
        self.written = written
        self.provenance = provenance

    def run(self, job: RunSpec) -> tuple[RunRecord, SessionError | None]:
        """Execute a run.  A failure is in the record; the session's own is returned too."""
        started = now()
        begin = time.monotonic()
        gathered = RunBuilder()
        status: Status = "ok"
        error, failure, broken = "", {}, None
        parsed = Parsed()
        if job.engine_before:
            gathered.evidence["engine_before"] = job.engine_before
        try:
            self._steps(job, begin + self.settings.time_per_run, gathered)
            parsed = self._parsed(job, gathered)
        except RunFailed as problem:
            status, error, failure = problem.status, str(problem), problem.facts
        except NodeError as problem:
            status, error, failure = "failed", str(problem), problem.facts
        except SessionError as problem:
            broken = problem
            status = "timeout" if isinstance(problem, DeadlinePassed) else "failed"
            error, failure = str(problem) + _storage_said(gathered), problem.facts
        if status != "ok" and gathered.phases:  # the session's own ones before the failure
            parsed = job.workload.parse(job.case, gathered.outputs)
        elif parsed.failure:
            status, error = "failed", parsed.failure
        record = job.record(
            started,
            session=self.provenance["session"],
            status=status,
            error=error,
            failure=failure,
            argv=tuple(gathered.argv),
            environment={**self.provenance["environment"], "realised": dict(job.realised)},
            duration=time.monotonic() - begin,
            ranks=gathered.ranks,
            phases=parsed.phases,
            monitor=assemble.monitor(gathered.kernels),
            evidence=gathered.evidence,
            texts=gathered.texts,
        )
        return record, broken

    @staticmethod
    def _parsed(job: RunSpec, gathered: RunBuilder) -> Parsed:
        """What the outputs tell; RunFailed if they cannot be understood."""
        try:
            parsed = job.workload.parse(job.case, gathered.outputs)
        except ParseError as problem:
            raise RunFailed(
                f"the output of {job.engine.name} cannot be used: {problem}"
            ) from problem
        if not (parsed.phases or parsed.failure):
            raise RunFailed(
                f"nothing was measured: the workload {job.case.workload} made no phase of what "
                'its steps gave (CONTRIBUTING.md, "A workload")'
            )
        if parsed.engine:
            gathered.evidence["engine"] = outputs.engine_evidence(parsed, job.engine)
        return parsed

    # -- the steps -------------------------------------------------------------------------
    def _steps(
        self,
        job: RunSpec,
        deadline: float,
        gathered: RunBuilder,
    ) -> None:
        self.around.world(job, gathered)
        root = self.around.make_run(job)
        try:
            for step in job.workload.steps(job.case, self.access, job.engine):
                if step.role == "timed":
                    self.around.settle(step, deadline, gathered)
                    self.around.look_at_health(step, gathered)
                if step.reads:
                    self.around.cache(job, step, deadline, gathered)
                if step.role == "timed":
                    self.quiet()
                    before = self.written()
                    with self.around.health_watched(step, gathered):
                        gathered.outputs += self._step(job, step, root, deadline, gathered)
                    gathered.evidence["output"]["written"] += self.written() - before
                    self.around.look_at_health(step, gathered)
                else:
                    gathered.outputs += self._step(job, step, root, deadline, gathered)
        except (RunFailed, NodeError) as reason:
            self._clear_away(job, reason, gathered)
            raise
        self.around.remove_run(job)

    def _clear_away(
        self, job: RunSpec, reason: RunFailed | NodeError, gathered: RunBuilder
    ) -> None:
        """Remove the place of a run that failed; what fails now never hides the reason."""
        try:
            self.around.remove_run(job)
        except NodeError as problem:  # the rest goes with the attachment
            gathered.evidence["not_removed"] = str(problem)
        except SessionError as problem:
            raise SessionDied(f"{reason}; then, removing: {problem}", **reason.facts) from reason

    def _step(
        self,
        job: RunSpec,
        step: Step,
        root: str,
        deadline: float,
        gathered: RunBuilder,
    ) -> list[Output]:
        if isinstance(step.what, Argv):
            return self._program(job, step, step.what, root, deadline, gathered)
        what: dict[str, Any] = asdict(step.what)
        if isinstance(step.what, Stream):
            what["seed"] = (job.seed + step.what.generation * CONTENT_STEP) % (1 << 64)
            what["driver"] = self.provenance["driver"]
            what["implementation"] = self.settings.implementation
            kind = "stream"
        else:
            assert isinstance(step.what, Function)
            kind = "function"
        reply = self._command(job, step, kind, what, root, deadline, gathered)
        if kind == "function":
            return self._answers(job, step, reply.message["outputs"], gathered)
        phase = assemble.stream_phase(step.name, reply.message, reply.arrays)
        for failure in reply.message["failures"]:
            raise RunFailed(assemble.failure_text(failure, reply.message["ranks"]), **failure)
        return [Output(step.name, "", 0, phase=phase)] if step.role == "timed" else []

    def _command(
        self,
        job: RunSpec,
        step: Step,
        kind: str,
        what: Mapping[str, Any],
        root: str,
        deadline: float,
        gathered: RunBuilder,
    ) -> Any:
        geometry = job.case.geometry
        command = {
            "do": "step",
            "to": addressed(self.session.hello["ranks"], step.where, geometry),
            "kind": kind,
            "what": what,
            "root": root,
            "access": self.access.to_json(),
            "nodes": geometry.nodes,
            "threads": geometry.threads,
            "seed": job.seed,
            "affinity": self.settings.affinity,
            "sample": step.role == "timed",
            "oversubscribed": gathered.evidence["world"]["oversubscribed"],
            "timeout": left(deadline),
        }
        # a program that passes the deadline is ended by its leader, which then answers
        rest = 2 * GRACE + REST_SECONDS if kind == "argv" else 0.0
        late = f"{step.name}: no answer within {self.around.limit}"
        reply = self.session.request(command, left(deadline) + rest, late=late)
        if len(reply.message["ranks"]) >= len(gathered.ranks):
            gathered.ranks = tuple(reply.message["ranks"])
        if step.role == "timed":
            self._seen(job, step, reply.message["kernels"], gathered)
        return reply

    def _seen(
        self, job: RunSpec, step: Step, kernels: list[dict[str, Any]], gathered: RunBuilder
    ) -> None:
        """Keep what the samplers saw of a timed step."""
        gathered.seen(step, kernels)
        if self.provenance["memory"] and not step.reads:
            states = {"declared": job.case.cache, "reads": False, "state": "memory"}
            for phase in step.phases or (step.name,):
                gathered.put("cache", phase, states)

    def _program(
        self, job: RunSpec, step: Step, what: Argv, root: str, deadline: float, gathered: RunBuilder
    ) -> list[Output]:
        if not isinstance(self.access, PathAccess):
            root = ""

        def filled(text: str) -> str:
            return text.replace("{path}", root).replace("{run}", job.name)

        argv = tuple(map(filled, what.argv))
        files = {name: filled(text) for name, text in what.files.items()}
        gathered.argv.append(argv)
        if step.where != "mpi":
            data = {"argv": argv, "env": dict(what.env), "files": files, "collect": what.collect}
            reply = self._command(job, step, "argv", data, root, deadline, gathered)
            return self._answers(job, step, reply.message["outputs"], gathered)
        launcher = replace(self.session.launcher, binding=what.binding)
        extra = {"LC_ALL": "C", **launcher.proof, **what.env}
        command = launcher.command(argv, job.case.geometry, extra)
        watched = step.role == "timed"
        if watched:
            self.around.watch(True)
        stop = self.session.stop
        done = run_program(
            command,
            root or "/",
            left(deadline),
            launcher.environment() | extra,
            self._ends(),
            files,
            what.collect,
        )
        if stop.at_once:
            raise Interrupted
        if watched:
            self._seen(job, step, self.around.watch(False), gathered)
        return self._answers(job, step, [{"host": "", "rank": 0, **asdict(done)}], gathered)

    def _ends(self) -> Callable[[], bool]:
        """What says that an MPI program is to be ended; it is asked again and again."""
        stop = self.session.stop

        def at_once() -> bool:
            return stop.at_once

        # a daemon of an emulated node calls its launcher by any address, also a link-local one,
        # and what is sent to that does not come over `lo`
        local = self.session.only_here and not self.session.launcher.emulated
        return WhileStarting(at_once, programs.running) if local else at_once

    def _answers(
        self, job: RunSpec, step: Step, answers: Sequence[Mapping[str, Any]], gathered: RunBuilder
    ) -> list[Output]:
        found = outputs.outputs_of(step, answers)
        gathered.texts |= outputs.texts_of(found, gathered.next_step())
        if isinstance(step.what, Argv):
            window = max(one.ended for one in found) - min(one.began for one in found)
            gathered.spent("program", window)
        outputs.check(job.workload, step, answers, found)
        return found


def _storage_said(gathered: RunBuilder) -> str:
    """What was wrong with the storage, for the reason of a run whose session did not answer."""
    said = [text for found in gathered.evidence.get("health", {}).values() for text in found]
    return f"; the storage said: {'; '.join(dict.fromkeys(said[:3]))}" if said else ""
