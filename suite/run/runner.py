"""One run on a session: its steps in order, settled, cached, timed, and recorded."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from fsmatrix.backends.access import PathAccess, PathsAccess
from fsmatrix.backends.contract import Preload
from fsmatrix.backends.player.ops import driver_of
from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import StoreError
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import RunRecord, Status
from fsmatrix.suite.run import assemble
from fsmatrix.suite.run.assemble import RunBuilder, RunContext, RunFailed, RunSpec, now
from fsmatrix.suite.run.environment import REST_SECONDS, RunEnvironment, SessionContext
from fsmatrix.suite.run.health import SHOWN, Ends
from fsmatrix.suite.run.maxima import Ceilings
from fsmatrix.suite.session import programs
from fsmatrix.suite.session.client import (
    DeadlinePassed,
    NodeError,
    SessionDied,
    SessionError,
    StorageStalled,
    WhileStarting,
)
from fsmatrix.suite.session.messages import (
    OperationError,
    Playing,
    RankOutput,
    SampledKernel,
    StepAnswer,
    StepCommand,
    in_rows,
)
from fsmatrix.suite.session.programs import GRACE, Interrupted
from fsmatrix.suite.session.programs import run as run_program
from fsmatrix.suite.session.survey import addressed
from fsmatrix.suite.session.wire import PROGRAMS_LOOK, Arrays, telling
from fsmatrix.suite.workloads.workload import Argv, Function, Output, Step

CONTENT_STEP = 0x9E3779B97F4A7C15  # between the content seeds of two overwrite generations
MOST_COMMANDS = 16  # of one step that are kept each as it was executed


class Runner:
    """Carries out runs on one attachment."""

    def __init__(
        self, context: SessionContext, quiet: Callable[[], None], written: Callable[[], int]
    ) -> None:
        """`quiet` is called before each timed step: it ends what must not run beside one.

        `written`: bytes of results that the suite has written so far.
        """
        self.context = context
        self.session = context.session
        self.access = context.access
        self.settings = context.settings
        self.environment = RunEnvironment(context)
        self.ceilings = Ceilings(context.session, context.settings)
        self.quiet = quiet
        self.written = written

    def run(self, spec: RunSpec) -> tuple[RunRecord, SessionError | None]:
        """Execute a run.  A failure is in the record; the session's own is returned too."""
        started = now()
        begin = time.monotonic()
        run = RunContext(spec, begin + self.settings.time_per_run)
        builder = run.builder
        status: Status = "ok"
        error, failure, broken = "", {}, None
        parsed = Parsed()
        if spec.engine_before:
            builder.evidence = replace(builder.evidence, engine_before=spec.engine_before)
        try:
            broken = self._steps(run)
            parsed = self._measured(run)
        except RunFailed as problem:
            self._stopped()
            status, failure = problem.status, problem.facts
            error = _on_its_target(spec, str(problem))
        except NodeError as problem:
            self._stopped()
            status, error, failure = "failed", str(problem), problem.facts
        except SessionError as problem:
            broken = problem
            status = "timeout" if isinstance(problem, DeadlinePassed) else "failed"
            error, failure = str(problem), problem.facts
            if not isinstance(problem, StorageStalled):
                error += _storage_troubles(builder, self.environment.health_without_session())
        if status != "ok" and builder.phases:  # the session's own ones before the failure
            with suppress(RunFailed):
                parsed = self._read(run)
        elif parsed.failure:
            status, error = "failed", _on_its_target(spec, parsed.failure)
        monitor = None
        with suppress(RunFailed), _failing(run, "the samples cannot be used"):
            monitor = assemble.monitor(builder.kernels)
        nodes = None
        if self.context.nodes is not None:
            nodes, watched = self.context.nodes.taken()
            builder.evidence = replace(builder.evidence, nodes=watched)
        record = spec.record(
            started,
            session=self.context.session_id,
            status=status,
            error=error,
            failure=failure,
            argv=tuple(builder.argv),
            environment={**self.context.environment.document(), "realised": dict(spec.realised)},
            duration=time.monotonic() - begin,
            ranks=builder.ranks,
            phases=parsed.phases,
            monitor=monitor,
            nodes=nodes,
            evidence=builder.evidence,
            texts=builder.texts,
        )
        return record, broken

    def _stopped(self) -> None:
        """Interrupted if everything here is being stopped: what was ended by that did not fail."""
        if self.session.stop.is_coming(self.settings.in_job):
            raise Interrupted

    @staticmethod
    def _read(run: RunContext) -> Parsed:
        """What the outputs and samples tell; RunFailed if they cannot be understood."""
        spec, builder = run.spec, run.builder
        with _failing(run, f"the output of {spec.engine.name} cannot be used"):
            parsed = spec.workload.parse(spec.case, builder.outputs)
            monitor = assemble.monitor(builder.kernels)
            return spec.workload.with_samples(spec.case, parsed, monitor)

    def _measured(self, run: RunContext) -> Parsed:
        """The same of all steps; RunFailed also if nothing was measured."""
        spec, builder = run.spec, run.builder
        parsed = self._read(run)
        if not (parsed.phases or parsed.failure):
            raise RunFailed(
                f"nothing was measured: the workload {spec.case.workload} made no phase of what "
                'its steps gave (CONTRIBUTING.md, "A workload")'
            )
        if parsed.engine:
            engine = assemble.engine_output(parsed, spec.engine)
            builder.evidence = replace(builder.evidence, engine=engine)
        return parsed

    # -- the steps -------------------------------------------------------------------------
    def _steps(self, run: RunContext) -> SessionError | None:
        """All of them, and the removal of what they made; a session's error in that alone.

        Then the clients' ceiling: the run is over, and a session that ends in it fails no run.
        """
        spec, begin = run.spec, time.monotonic()
        steps: list[Step] = []
        with _failing(run, "the run cannot begin"):
            self.environment.world(run)
            run = replace(run, roots=self.environment.make_run(spec))
        try:
            with _failing(run, f"the workload {spec.case.workload} cannot be carried out"):
                steps += spec.workload.steps(spec.case, self.access, spec.engine)
                for step in steps:
                    self._in_its_place(run, step)
                steps += self._further(run)
        except (RunFailed, NodeError) as reason:
            self._clear_away(run, reason)
            raise
        return self._remove(run) or self._ceilings(run, steps, time.monotonic() - begin)

    def _further(self, run: RunContext) -> list[Step]:
        """The steps that depend on what came of those before; of these the last one counts."""
        spec, builder, steps = run.spec, run.builder, list[Step]()
        while step := spec.workload.next_step(spec.case, self.access, spec.engine, builder.outputs):
            builder.kernels.pop(step.name, None)
            self._in_its_place(run, step)
            steps.append(step)
        return steps

    def _ceilings(self, run: RunContext, steps: Sequence[Step], took: float) -> SessionError | None:
        ranks = addressed(self.session.hello.ranks, "rank", run.spec.case.geometry)
        own = [self.session.hello.ranks[rank] for rank in ranks]
        try:
            ceilings = self.ceilings.of(run, steps, own, took)
        except SessionError as problem:
            return problem
        run.builder.evidence = replace(run.builder.evidence, ceilings=ceilings)
        return None

    def _in_its_place(self, run: RunContext, step: Step) -> None:
        """A step, with what is done and looked at before and after it."""
        builder = run.builder
        if step.role == "timed":
            self.environment.settle(run, step)
            self.environment.look_at_health(run, step)
        self.environment.guard(run.spec)
        if step.reads:
            self.environment.cache(run, step)
        if step.role == "timed":
            self.quiet()
            before = self.written()
            with self.environment.health_watched(run, step), self._nodes_watched():
                builder.outputs += self._step(run, step)
            builder.wrote(self.written() - before)
            self.environment.look_at_health(run, step)
        else:
            builder.outputs += self._step(run, step)

    def _nodes_watched(self) -> AbstractContextManager[None]:
        nodes = self.context.nodes
        return nullcontext() if nodes is None else nodes.step()

    def _clear_away(self, run: RunContext, reason: RunFailed | NodeError) -> None:
        """Remove the place of a run that failed; what fails now never hides the reason."""
        if problem := self._remove(run):
            raise SessionDied(f"{reason}; then, removing: {problem}", **reason.facts) from reason

    def _remove(self, run: RunContext) -> SessionError | None:
        """Remove the run's place; what stays goes with the attachment, and the record says why.

        The session's error, if that is gone.
        """
        self._beside(run).unlink(missing_ok=True)
        try:
            self.environment.remove_run(run.spec)
        except SessionError as problem:
            run.builder.evidence = replace(run.builder.evidence, not_removed=str(problem))
            return None if isinstance(problem, NodeError) else problem
        return None

    def _step(self, run: RunContext, step: Step) -> list[Output]:
        if isinstance(step.what, Argv):
            return self._program(run, step, step.what)
        if isinstance(step.what, Function):
            answer, _ = self._command(run, step, function=step.what)
            return self._outputs(run, step, answer.outputs)
        playing = Playing(
            stream=step.what,
            seed=(run.spec.seed + step.what.generation * CONTENT_STEP) % (1 << 64),
            driver=driver_of(step.what.io, self.context.driver),
            implementation=self.settings.implementation,
            environment=self._variables(run),
        )
        answer, arrays = self._command(run, step, playing=playing)
        assert answer.merged is not None  # of a stream
        self._intercepted(run, step, answer.merged.printed)
        phase = assemble.stream_phase(step.name, answer.merged, arrays)
        for failure in answer.merged.failures:
            text = self._failure_text(run, failure, self._ranks(run, step))
            raise RunFailed(text, "failed", **failure.document())
        return [Output(step.name, "", 0, phase=phase)] if step.role == "timed" else []

    def _failure_text(self, run: RunContext, failure: OperationError, ranks: Sequence[Rank]) -> str:
        """Who met what error, in which file: with its path, where it has one."""
        root, at = run.roots[failure.rank % len(run.roots)], ""
        if isinstance(self.access, PathAccess | PathsAccess):
            failure = replace(failure, file=f"{root}/{failure.file}")
        elif len(run.roots) > 1:
            at = f"{root}: "
        return f"{at}{assemble.failure_text(failure, ranks)}"

    def _ranks(self, run: RunContext, step: Step) -> list[Rank]:
        """Who carries the step out."""
        ranks = self.session.hello.ranks
        return [ranks[rank] for rank in addressed(ranks, step.where, run.spec.case.geometry)]

    def _command(
        self,
        run: RunContext,
        step: Step,
        *,
        playing: Playing | None = None,
        function: Function | None = None,
        program: Argv | None = None,
    ) -> tuple[StepAnswer, Arrays]:
        geometry, builder = run.spec.case.geometry, run.builder
        assert builder.evidence.world is not None  # `_steps` begins with it
        ranks, affinity = self._ranks(run, step), self.settings.affinity
        command = StepCommand(
            to=in_rows([rank.rank for rank in ranks]),
            playing=playing,
            function=function,
            program=program,
            roots=run.roots,
            access=self.access.to_json(),
            nodes=geometry.nodes,
            threads=geometry.threads,
            seed=run.spec.seed,
            affinity=affinity,
            sample=step.role == "timed",
            oversubscribed=bool(builder.evidence.world.oversubscribed),
            timeout=run.left(),
            progress=str(self.session.progress.path),
        )
        # a program that passes the deadline is ended by its leader, which then answers
        rest = 2 * GRACE + REST_SECONDS if program is not None else 0.0
        late = f"{step.name}: no answer within {self.environment.limit}"
        stall = self.environment.stall_watch() if function is None else None
        look = stall.look if stall is not None else None
        answer, arrays = self.session.request(
            command, StepAnswer, run.left() + rest, late=late, look=look
        )
        if len(ranks) >= len(builder.ranks):
            builder.ranks = tuple(
                replace(rank, cpus=cpus, affinity=affinity)
                for rank, cpus in zip(ranks, answer.cpus, strict=True)
            )
        if step.role == "timed":
            self._sampled(run, step, answer.kernels)
        return answer, arrays

    def _sampled(self, run: RunContext, step: Step, kernels: Sequence[SampledKernel]) -> None:
        """Keep what the samplers saw of a timed step."""
        run.builder.sampled(step, kernels)
        if self.context.in_memory and not step.reads:
            run.builder.in_memory(step, run.spec.case.cache)

    def _program(self, run: RunContext, step: Step, what: Argv) -> list[Output]:
        if not isinstance(self.access, PathAccess):
            if any("{path}" in text for text in (*what.argv, *what.files.values())):
                raise RunFailed(f"{step.name}: the program needs a directory; the target has none")
            run = replace(run, roots=("",))

        def filled(text: str) -> str:
            text = text.replace("{path}", run.root).replace("{run}", run.spec.name)
            text = text.replace("{journal}", str(self.context.journal))
            text = text.replace("{beside}", str(self._beside(run)))
            return text.replace("{seed}", str(run.spec.seed))

        argv = tuple(programs.given(self._variables(run), [*map(filled, what.argv)]))
        files = {name: filled(text) for name, text in what.files.items()}
        begun = len(run.builder.argv)
        if step.where != "mpi":
            run.builder.argv += _of_each_node(argv, self._ranks(run, step))
            answer, _ = self._command(run, step, program=replace(what, argv=argv, files=files))
            started = dict.fromkeys(each.done.argv for each in answer.outputs)
            if len(started) <= MOST_COMMANDS:  # of a thousand ranks their pattern tells as much
                run.builder.argv[begun:] = started
            return self._of_programs(run, step, answer.outputs)
        launcher = replace(self.session.launcher, binding=what.binding)
        extra = {"LC_ALL": "C", **launcher.proof, **what.env}
        command = launcher.command(argv, run.spec.case.geometry, extra)
        run.builder.argv.append(tuple(command))
        watched = step.role == "timed"
        if watched:
            self.environment.watch(True)
        ends = Ends(lambda: self.session.stop.at_once, self.environment.stall_watch())
        with telling(str(self.session.progress.path), 0, programs.moved, PROGRAMS_LOOK):
            done = run_program(
                command,
                run.root or "/",
                run.left(),
                launcher.environment() | extra,
                self._kept_local(ends),
                files,
                what.collect,
                self.session.network if self._is_apart else nullcontext,
            )
        run.builder.argv[begun:] = [done.argv]
        if ends.stalled is not None:
            raise ends.stalled
        if self.session.stop.at_once:
            raise Interrupted
        if watched:
            self._sampled(run, step, self.environment.watch(False))
        return self._of_programs(run, step, [RankOutput(host="", rank=0, done=done)])

    def _beside(self, run: RunContext) -> Path:
        return self.context.journal / f"{run.spec.name}.beside"

    def _of_programs(
        self, run: RunContext, step: Step, answers: Sequence[RankOutput]
    ) -> list[Output]:
        """The outputs of a step's programs, and what a preloaded library says in them."""
        self._intercepted(run, step, [answer.done.stderr for answer in answers])
        return self._outputs(run, step, answers)

    def _intercepted(self, run: RunContext, step: Step, texts: Sequence[str]) -> None:
        """Keep what a preloaded library says in what a timed step's processes printed."""
        preload = self._preload(run)
        if preload is not None and step.role == "timed":
            run.builder.intercepted(step, preload.told(texts))

    def _preload(self, run: RunContext) -> Preload | None:
        """The library that is put into what works on the target."""
        return self.environment.backend.run_place(self.access, run.spec.name).preload

    def _variables(self, run: RunContext) -> dict[str, str]:
        """What puts it there."""
        preload = self._preload(run)
        return dict(preload.environment) if preload else {}

    @property
    def _is_apart(self) -> bool:
        """Whether MPI programs work in a network of their own."""
        return self.session.is_apart and not self.context.programs_speak

    def _kept_local(self, ends: Callable[[], bool]) -> Callable[[], bool]:
        """`ends`, keeping an MPI program local where it is not in a network of its own."""
        # a daemon of an emulated node calls its launcher by any address, also a link-local one,
        # and what is sent to that does not come over `lo`
        local = self.session.only_here and not self.session.launcher.emulated
        watched = local and not self._is_apart
        return WhileStarting(ends, programs.running) if watched else ends

    @staticmethod
    def _outputs(run: RunContext, step: Step, answers: Sequence[RankOutput]) -> list[Output]:
        given = assemble.outputs_of(step, answers)
        run.builder.texts |= assemble.texts_of(given, run.builder.next_step())
        if isinstance(step.what, Argv):
            began, ended = min(o.began for o in given), max(o.ended for o in given)
            run.builder.spent("program", ended - began)
        assemble.check(run.spec.workload, step, answers, given)
        return given


def _on_its_target(spec: RunSpec, reason: str) -> str:
    return f"target {spec.case.target}: {reason}"


def _of_each_node(argv: Sequence[str], ranks: Iterable[Rank]) -> Iterable[tuple[str, ...]]:
    """What is to be started, where it names the node: one for each that starts it."""
    nodes = dict.fromkeys(str(rank.node) for rank in ranks)
    return dict.fromkeys(tuple(word.replace("{node}", node) for word in argv) for node in nodes)


@contextmanager
def _failing(run: RunContext, what: str) -> Iterator[None]:
    """Whatever is raised fails this run, the campaign goes on; of a surprise the place is kept."""
    try:
        yield
    except (RunFailed, SessionError, StoreError, Interrupted):
        raise
    except Exception as problem:
        if not isinstance(problem, ResultError):
            run.builder.texts[assemble.TRACEBACK] = traceback.format_exc()
        raise RunFailed(f"{what}: {assemble.reason_of(problem)}") from problem


def _storage_troubles(builder: RunBuilder, now: Sequence[str]) -> str:
    """What is wrong with the storage, for the reason of a run whose session did not answer."""
    sentences = [*now, *(text for of_step in builder.evidence.health.values() for text in of_step)]
    shown = "; ".join(dict.fromkeys(sentences[:SHOWN]))
    return f"; the storage said: {shown}" if shown else ""
