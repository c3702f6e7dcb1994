"""One run on a session: its steps in order, settled, cached, timed, and recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.results.formats.base import Parsed, ParseError
from fsmatrix.results.record import RunRecord, Status
from fsmatrix.suite import assemble, outputs
from fsmatrix.suite.assemble import Gathered
from fsmatrix.suite.job import Job, Settings, now
from fsmatrix.suite.outputs import RunFailed
from fsmatrix.suite.session.client import Interrupted, Session
from fsmatrix.suite.session.death import DeadlinePassed, NodeError, SessionError
from fsmatrix.suite.session.programs import GRACE
from fsmatrix.suite.session.programs import run as run_program
from fsmatrix.suite.workloads.base import Argv, Function, Output, Step, Stream

CONTENT_STEP = 0x9E3779B97F4A7C15  # between the content seeds of two overwrite generations
REST_SECONDS = 5.0  # for what follows a run's own time: removal, answers


class Runner:
    """Carries out runs on one attachment."""

    def __init__(
        self,
        session: Session,
        access: Access,
        journal: Path,
        settings: Settings,
        quiet: Callable[[], None],
        provenance: Mapping[str, Any],
    ) -> None:
        """`quiet` is called before each timed step: it ends what must not run beside one."""
        self.session = session
        self.access = access
        self.journal = journal
        self.settings = settings
        self.quiet = quiet
        self.provenance = provenance

    def run(self, job: Job) -> tuple[RunRecord, SessionError | None]:
        """Execute a run.  A failure is in the record; the session's own is returned too."""
        started = now()
        begin = time.monotonic()
        gathered = Gathered()
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
            error, failure = str(problem), problem.facts
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
    def _parsed(job: Job, gathered: Gathered) -> Parsed:
        """What the outputs tell; RunFailed if they cannot be understood."""
        try:
            parsed = job.workload.parse(job.case, gathered.outputs)
        except ParseError as problem:
            raise RunFailed(
                f"the output of {job.engine.name} cannot be used: {problem}"
            ) from problem
        if parsed.engine:
            gathered.evidence["engine"] = outputs.engine_evidence(parsed, job.engine)
        return parsed

    # -- the steps -------------------------------------------------------------------------
    def _steps(
        self,
        job: Job,
        deadline: float,
        gathered: Gathered,
    ) -> None:
        self._world(job, gathered)
        root = self._make_directory(job)
        try:
            for step in job.workload.steps(job.case, self.access, job.engine):
                if step.role == "timed":
                    self._settle(step, deadline, gathered)
                if step.reads:
                    self._cache(job, step, deadline, gathered)
                if step.role == "timed":
                    self.quiet()
                gathered.outputs += self._step(job, step, root, deadline, gathered)
        except (RunFailed, NodeError):
            self._remove_directory(root)
            raise
        self._remove_directory(root)

    def _world(self, job: Job, gathered: Gathered) -> None:
        geometry = job.case.geometry
        ranks = [self.session.hello["ranks"][i] for i in self.session.members(geometry)]
        threads = geometry.threads * geometry.processes_per_node
        cpus = len(ranks[0]["cpus"]) if ranks else 0
        kernels = {rank["boot_id"] for rank in ranks}
        per_kernel = threads * geometry.nodes // max(len(kernels), 1)
        gathered.evidence["world"] = {
            "asked_ranks": geometry.processes,
            "got_ranks": len(ranks),
            "asked_nodes": geometry.nodes,
            "got_nodes": len({rank["node"] for rank in ranks}),
            "kernels": len(kernels),
            "oversubscribed": per_kernel > cpus,
            "emulated_nodes": len(kernels) < geometry.nodes,
        }
        on_target = False
        if isinstance(self.access, PathAccess):
            on_target = self.settings.out.stat().st_dev == Path(self.access.path).stat().st_dev
        gathered.evidence["output"] = {"on_target": on_target}

    def _make_directory(self, job: Job) -> str:
        if not isinstance(self.access, PathAccess):
            return ""
        root = str(Path(self.access.path) / job.name)
        command = {"do": "mkdir", "to": self.session.kernels, "path": root}
        answers = self.session.request(command, REST_SECONDS * 4).message["answers"]
        for answer in answers:
            if "error" in answer:
                raise RunFailed(f"{answer['error']} on {answer['host']}", host=answer["host"])
        return root

    def _remove_directory(self, root: str) -> None:
        if root:
            command = {"do": "rmdir", "to": self.session.kernels, "path": root}
            reply = self.session.request(command, self.settings.time_per_run + REST_SECONDS)
            self.session.checked(reply, "removal of the run's directory")

    def _settle(self, step: Step, deadline: float, gathered: Gathered) -> None:
        timeout = self.settings.settle_timeout
        begin = time.monotonic()
        answers = self.session.call(
            "settle",
            self.access.to_json(),
            self.journal,
            timeout + left(deadline),
            timeout=timeout,
        )
        values = [answer["value"] for answer in answers]
        worst = min(values, key=lambda value: value["reached"])
        gathered.spent("settle", time.monotonic() - begin)
        gathered.put("settle", step.name, worst)

    def _cache(self, job: Job, step: Step, deadline: float, gathered: Gathered) -> None:
        begin = time.monotonic()
        files = [str(Path(job.name) / name) for name in step.files or ("",)]
        answers = self.session.call(
            "cache",
            self.access.to_json(),
            self.journal,
            left(deadline),
            state="warm" if self.provenance["memory"] else job.case.cache,
            files=files,
            method=self._cache_method(job),
        )
        values = [answer["value"] for answer in answers]
        if self.provenance["memory"]:
            values = [{**value, "state": "memory"} for value in values]
        gathered.spent("cache", time.monotonic() - begin)
        # one kernel that did not reach the state spoils the run, and so does one time
        worst = min(values, key=lambda value: value["state"] == job.case.cache)
        found = {"declared": job.case.cache, "reads": True, **worst, "kernels": values}
        before = gathered.evidence.get("cache", {}).get(step.name, found)
        reached = before["state"] == job.case.cache
        gathered.put("cache", step.name, found if reached else before)

    def _cache_method(self, job: Job) -> str:
        """Only drop_caches empties the caches of inodes and names, and only root may."""
        wanted = job.workload.cold_metadata and os.geteuid() == 0 and not self.provenance["memory"]
        method = self.settings.cache_method
        return "drop_caches" if wanted and method == "auto" else method

    def _step(
        self,
        job: Job,
        step: Step,
        root: str,
        deadline: float,
        gathered: Gathered,
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
        job: Job,
        step: Step,
        kind: str,
        what: Mapping[str, Any],
        root: str,
        deadline: float,
        gathered: Gathered,
    ) -> Any:
        geometry = job.case.geometry
        command = {
            "do": "step",
            "to": self.session.addressed(step.where, geometry),
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
        reply = self.session.request(command, left(deadline) + rest)
        if len(reply.message["ranks"]) >= len(gathered.ranks):
            gathered.ranks = tuple(reply.message["ranks"])
        if step.role == "timed":
            self._seen(job, step, reply.message["kernels"], gathered)
        return reply

    def _seen(
        self, job: Job, step: Step, kernels: list[dict[str, Any]], gathered: Gathered
    ) -> None:
        """Keep what the samplers saw of a timed step."""
        gathered.seen(step, kernels)
        if self.provenance["memory"] and not step.reads:
            states = {"declared": job.case.cache, "reads": False, "state": "memory"}
            for phase in step.phases or (step.name,):
                gathered.put("cache", phase, states)

    def _program(
        self, job: Job, step: Step, what: Argv, root: str, deadline: float, gathered: Gathered
    ) -> list[Output]:
        def filled(text: str) -> str:
            return text.replace("{path}", root)

        argv = tuple(map(filled, what.argv))
        files = {name: filled(text) for name, text in what.files.items()}
        gathered.argv.append(argv)
        if step.where != "mpi":
            data = {"argv": argv, "env": dict(what.env), "files": files, "collect": what.collect}
            reply = self._command(job, step, "argv", data, root, deadline, gathered)
            return self._answers(job, step, reply.message["outputs"], gathered)
        launcher = replace(self.session.launcher, binding=what.binding)
        extra = {"LC_ALL": "C", **what.env}
        command = launcher.command(argv, job.case.geometry, extra)
        watched = step.role == "timed"
        if watched:
            self._watch(True)
        stop = self.session.stop
        done = run_program(
            command,
            root or "/",
            left(deadline),
            launcher.environment() | extra,
            lambda: stop.at_once,
            files,
            what.collect,
        )
        if stop.at_once:
            raise Interrupted
        if watched:
            self._seen(job, step, self._watch(False), gathered)
        return self._answers(job, step, [{"host": "", "rank": 0, **asdict(done)}], gathered)

    def _watch(self, begin: bool) -> list[dict[str, Any]]:
        """Begin or end sampling every kernel beside a program of the conductor's."""
        access = self.access.to_json()
        to = self.session.kernels
        command = {"do": "watch", "to": to, "begin": begin, "access": access}
        answers = self.session.checked(self.session.request(command, REST_SECONDS), "sampling")
        return [answer for answer in answers if "kernel" in answer]

    def _answers(
        self, job: Job, step: Step, answers: Sequence[Mapping[str, Any]], gathered: Gathered
    ) -> list[Output]:
        found = outputs.outputs_of(step, answers)
        gathered.texts |= outputs.texts_of(found, gathered.next_step())
        if isinstance(step.what, Argv):
            window = max(one.ended for one in found) - min(one.began for one in found)
            gathered.spent("program", window)
        outputs.check(job.workload, step, answers, found)
        return found


def left(deadline: float) -> float:
    """Seconds until a deadline on the monotonic clock, at least a little."""
    return max(deadline - time.monotonic(), 0.1)
