"""What is done around the steps of a run: its place, caches, settling, health, sampling."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

import fsmatrix
from fsmatrix.backends.access import Access
from fsmatrix.backends.contract import BACKENDS, Backend
from fsmatrix.results.evidence.evidence import (
    CacheState,
    HealthLooks,
    KernelCache,
    OutputPlace,
    Rank,
    Settling,
    World,
)
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, StoredError, read, texts
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.record import Geometry
from fsmatrix.suite.nodes.node_watch import NodeWatch
from fsmatrix.suite.plan.estimate import with_links
from fsmatrix.suite.run.assemble import RunContext, RunFailed, RunSpec, Settings
from fsmatrix.suite.run.health import (
    HEALTH_SECONDS,
    LAST_LOOK,
    WATCH_SECONDS,
    HealthWatch,
    StallWatch,
    asked_once,
    united,
)
from fsmatrix.suite.session.client import NodeError, Session
from fsmatrix.suite.session.messages import Answer, Call, SampledKernel, Samples, Watch, in_rows
from fsmatrix.suite.session.survey import disagreements, members
from fsmatrix.suite.workloads.workload import Step

# Where and with what a run was made: recorded by allow-list, never a secret.


# Environment variables that say how a run was started; everything else stays private.
ALLOWED = (
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_RESTART_COUNT",
    "FSMATRIX_PARALLEL_JOBS",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "LOADEDMODULES",
    "OMP_NUM_THREADS",
)
LIBRARIES = ("numpy", "h5py", "mpi4py")


@dataclass(frozen=True, kw_only=True)
class Environment(Stored):
    """Of all runs of a session."""

    machine: JsonObject  # of `machine`
    mpi: str
    launcher: JsonObject
    nodes: tuple[str, ...]
    target: JsonObject  # as its backend describes it, and its deployment


def machine() -> JsonObject:
    """This host: kernel, CPU, memory, Python, libraries."""
    return {
        "fsmatrix": fsmatrix.__version__,
        "host": platform.node(),
        "kernel": platform.release(),
        "system": _os_name(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": sys.version.split()[0],
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "variables": {name: os.environ[name] for name in ALLOWED if name in os.environ},
    }


def gather(
    backend: Backend, access: Access, session: Session, target: str, planned: Deployment
) -> Environment:
    """The environment of all runs of a session: machine, MPI, launcher, storage.

    `planned`: what was known of the target's deployment before; the storage itself counts first.
    """
    described = backend.describe(access)
    known = backend.deployment(described).completed(planned).document()
    own: JsonObject = {"name": target, "backend": backend.name}
    return of_session(session, {**own, **described, "deployment": known})


def of_session(session: Session, target: JsonObject) -> Environment:
    """The environment with that target."""
    launcher = session.launcher
    return Environment(
        machine=machine(),
        mpi=session.hello.mpi,
        launcher={
            "name": launcher.name,
            "version": launcher.probe_result.version,
            "emulated": launcher.emulated,
            "options": launcher.options,
            "hosts": launcher.hosts,
            "binding": launcher.binding,
            "words": session.words,
        },
        nodes=tuple(sorted({rank.host for rank in session.hello.ranks})),
        target=target,
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


S = TypeVar("S", bound=Stored)
REST_SECONDS = 5.0  # for what follows a run's own time: removal, answers


@dataclass(frozen=True)
class SessionContext:
    """What the runs of one session share."""

    session: Session
    access: Access
    journal: Path  # directory of journals
    settings: Settings
    session_id: str
    environment: Environment
    driver: str  # of the backend
    in_memory: bool  # the target's file system has no storage
    programs_speak: bool = True  # programs that work on the target speak to its servers
    nodes: NodeWatch | None = None  # what watches the storage nodes


class RunEnvironment:
    """Asks the node leaders of one session for what a run needs beside its steps."""

    def __init__(self, context: SessionContext) -> None:
        self.session = context.session
        self.access = context.access
        self.backend = BACKENDS.load(context.access.backend)
        self.journal = context.journal
        self.settings = context.settings
        self.in_memory = context.in_memory
        # what the storage said of itself before the last step; None: not asked yet
        self._before: list[str] | None = None

    @property
    def limit(self) -> str:
        """What a run's deadline comes from."""
        return f"limits.time_per_run ({self.settings.time_per_run:g} s)"

    def world(self, run: RunContext) -> None:
        """Who takes part, and whether the results lie on the system under test.

        RunFailed if the ranks of this geometry are not there, node by node.
        """
        geometry, builder = run.spec.case.geometry, run.builder
        everybody = self.session.hello.ranks
        ranks = [everybody[i] for i in members(everybody, geometry)]
        world = world_of(geometry, ranks)
        try:
            lies = {Path(folder).stat().st_dev for folder in self.access.folders}
        except OSError as error:
            raise RunFailed(f"{error.filename}: {error.strerror}") from error
        on_target = self.settings.out.stat().st_dev in lies
        builder.evidence = replace(
            builder.evidence,
            world=world,
            output=OutputPlace(on_target=on_target, written=0),
            limits=with_links(run.spec.limits, ranks),
        )
        if len(ranks) < geometry.processes:
            raise RunFailed(self._misplaced(geometry), evidence=world.document())

    def _misplaced(self, geometry: Geometry) -> str:
        """What was asked for and where the launcher put the ranks of the whole session."""
        ranks = self.session.hello.ranks
        placed = Counter(rank.node for rank in ranks)
        hosts = {rank.node: rank.host for rank in ranks}
        where = ", ".join(f"{count} on {hosts[node]}" for node, count in sorted(placed.items()))
        return (
            f"{geometry.nodes} client nodes with {geometry.processes_per_node} processes each "
            f"were asked for, the launcher {self.session.launcher.name!r} placed {where}: check "
            "its hosts, and the nodes and tasks per node of the allocation"
        )

    def make_run(self, spec: RunSpec) -> tuple[str, ...]:
        """The run's own place, on every kernel; its roots as drivers and programs know them.

        RunFailed if its processes cannot be the same number in each.
        """
        roots = self.backend.run_place(self.access, spec.name).roots
        processes = spec.case.geometry.processes
        if processes % len(roots):
            raise RunFailed(
                f"{len(roots)} devices cannot have the same number of {processes} processes each"
            )
        self.session.call(self._make_run(spec), REST_SECONDS * 4)
        return roots

    def _make_run(self, spec: RunSpec) -> Call:
        return self._call("make_run", name=spec.name, programs=spec.engine.name != "player")

    def remove_run(self, spec: RunSpec) -> None:
        """Remove the run's own place."""
        remove = self._call("remove_run", name=spec.name)
        self.session.call(remove, self.settings.time_per_run + REST_SECONDS)

    def _call(self, function: str, **arguments: Json) -> Call:
        """A node-side method of the backend on every kernel."""
        kernels = self.session.hello.kernels
        return Call.of(kernels, function, self.access, self.journal, **arguments)

    def _has_own(self, method: str) -> bool:
        """Whether the backend has a node-side method of its own: a call costs a round trip."""
        own, inherited = getattr(self.backend, method), getattr(Backend, method)
        return bool(own.__func__ is not inherited.__func__)

    def guard(self, spec: RunSpec) -> None:
        """The last look before a step, on every kernel; NodeError if nothing may be written now."""
        if self.backend.guarded:
            self.session.call(self._make_run(spec), HEALTH_SECONDS)

    def look_at_health(self, run: RunContext, step: Step) -> None:
        """What the storage says is wrong with it, asked by one leader."""
        if not self._has_own("health"):
            return
        self._unwell(run, step, self._health())

    def _health(self) -> list[str]:
        one_leader = self.session.hello.kernels[:1]
        call = Call.of(one_leader, "health", self.access, self.journal)
        answers = self.session.call(call, HEALTH_SECONDS)
        self._before = [text for answer in answers for text in texts(vars(answer), "value")]
        return self._before

    def stall_watch(self) -> StallWatch | None:
        """What ends a step in which no operation completes; None where nothing can be asked."""
        if not self._has_own("health"):
            return None
        known = self._health() if self._before is None else self._before
        self.session.progress.clear()
        idle, seconds = self.session.progress.idle, self.settings.time_without_progress
        return StallWatch(idle, seconds, partial(self.backend.responds, self.access), known)

    def health_without_session(self) -> list[str]:
        """What the storage says is wrong with it, asked by the conductor: its session is gone."""
        if self.session.stop.at_once:
            return []
        return asked_once(partial(self.backend.health, self.access), HEALTH_SECONDS)

    @staticmethod
    def _unwell(run: RunContext, step: Step, sentences: Iterable[str]) -> None:
        health = run.builder.evidence.health
        both = tuple(united([*health.get(step.name, ()), *sentences]))
        run.builder.evidence = replace(run.builder.evidence, health={**health, step.name: both})

    @contextmanager
    def health_watched(self, run: RunContext, step: Step) -> Iterator[None]:
        """Look at the health just before the step, while it runs and just after it.

        The conductor looks, over a connection of its own: no measured process takes part.
        """
        asked = self.backend.watch(self.access)
        if asked is None:
            yield
            return
        watch = HealthWatch(asked)
        try:
            yield
        finally:
            sentences = watch.stop(0.0 if self.session.stop.at_once else LAST_LOOK)
            self._unwell(run, step, sentences)
            watched = run.builder.evidence.health_watch
            before = watched.get(step.name, HealthLooks(looks=0, interval=WATCH_SECONDS))
            looks = replace(
                before,
                looks=before.looks + watch.looks,
                events=(*before.events, *watch.events),
            )
            run.builder.evidence = replace(
                run.builder.evidence, health_watch={**watched, step.name: looks}
            )

    def settle(self, run: RunContext, step: Step) -> None:
        """Wait, bounded, until every kernel is quiet."""
        timeout = self.settings.settle_timeout
        begin = time.monotonic()
        limit = f"settle.timeout ({timeout:g} s) and what was left of {self.limit}"
        call = self._call("settle", timeout=timeout)
        answers = self.session.call(call, timeout + run.left(), limit)
        kernels = [_read(Settling, answer, "settle") for answer in answers]
        worst = min(kernels, key=lambda kernel: kernel.reached)
        run.builder.spent("settle", time.monotonic() - begin)
        settle = {**run.builder.evidence.settle, step.name: worst}
        run.builder.evidence = replace(run.builder.evidence, settle=settle)

    def cache(self, run: RunContext, step: Step) -> None:
        """Make the declared cache state on every kernel, and keep the evidence."""
        begin, declared = time.monotonic(), run.spec.case.cache
        files = [str(Path(run.spec.name) / name) for name in step.files or ("",)]
        state, method = "warm" if self.in_memory else declared, self._cache_method(run.spec)
        call = self._call("cache", state=state, files=files, method=method)
        answers = self.session.call(call, run.left(), self.limit)
        kernels = tuple(_read(KernelCache, answer, "cache") for answer in answers)
        if self.in_memory:
            kernels = tuple(replace(kernel, state="memory") for kernel in kernels)
        run.builder.spent("cache", time.monotonic() - begin)
        # one kernel that did not reach the state spoils the run, and so does one time
        worst = min(kernels, key=lambda kernel: kernel.state == declared)
        evidence = CacheState(
            declared=declared,
            reads=True,
            state=worst.state,
            method=worst.method,
            facts=worst.facts,
            kernels=kernels,
        )
        states = run.builder.evidence.cache
        before = states.get(step.name, evidence)
        kept = evidence if before.state == declared else before
        run.builder.evidence = replace(run.builder.evidence, cache={**states, step.name: kept})

    def _cache_method(self, spec: RunSpec) -> str:
        """Only drop_caches empties the caches of inodes and names, and only root may."""
        wanted = spec.workload.cold_metadata and os.geteuid() == 0 and not self.in_memory
        method = self.settings.cache_method
        return "drop_caches" if wanted and method == "auto" else method

    def watch(self, begin: bool) -> tuple[SampledKernel, ...]:
        """Begin or end sampling every kernel beside a program of the conductor's."""
        to = in_rows(self.session.hello.kernels)
        command = Watch(to=to, begin=begin, access=self.access.to_json())
        samples, _ = self.session.request(command, Samples, REST_SECONDS)
        return samples.kernels


def world_of(geometry: Geometry, ranks: Sequence[Rank]) -> World:
    """What was asked for, and who `ranks` (of the hello) really are."""
    on_kernel: dict[str, list[Rank]] = {}
    for rank in ranks:
        on_kernel.setdefault(rank.boot_id, []).append(rank)
    crowded = any(
        len(here) * geometry.threads > len(set().union(*(rank.cpus for rank in here)))
        for here in on_kernel.values()
    )
    nodes = len({rank.node for rank in ranks})
    return World(
        asked_ranks=geometry.processes,
        got_ranks=len(ranks),
        asked_nodes=geometry.nodes,
        got_nodes=nodes,
        kernels=len(on_kernel),
        processors=len({rank.processor for rank in ranks}),
        shared_memories=len({rank.shared for rank in ranks}),
        disagreements=tuple(disagreements(ranks)),
        oversubscribed=crowded,
        emulated_nodes=len(on_kernel) < nodes,
    )


def _read(kind: type[S], answer: Answer, function: str) -> S:
    """What a backend's node-side method answered; NodeError if it is of another form."""
    try:
        return read(kind, answer.value, "its answer")
    except StoredError as error:
        raise NodeError(f"{function} on {answer.host}: {error}", host=answer.host) from error
