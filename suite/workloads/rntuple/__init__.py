"""The workload `rntuple`: CERN's LHCb benchmark of columnar I/O, by ROOT or by uproot.

Each process writes one file (on DAOS: one ntuple of the run's container) in the phase `write`, and
reads the columns of the analysis back in the phase `read`: the benchmark's gen_lhcb and lhcb.  What
is found must be what was written (docs/hep.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.access import Access, DaosAccess
from fsmatrix.backends.daos import containers
from fsmatrix.results.case import Case
from fsmatrix.results.formats.base import Parsed
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.engines.python import answer, words
from fsmatrix.suite.session import programs
from fsmatrix.suite.workloads.base import Argv, Footprint, Output, Step, Workload, WorkloadOptions
from fsmatrix.suite.workloads.rntuple.options import CLUSTER, RntupleOptions
from fsmatrix.suite.workloads.rntuple.outputs import READ, WRITE, parsed
from fsmatrix.suite.workloads.streams.lhcb.columns import EVENT_BYTES, READ_BYTES
from fsmatrix.suite.workloads.streams.lhcb.request import Request

ROOT, UPROOT = "root", "uproot"
SOURCE_STEP = "source"
DIGEST = re.compile(r"^\\?([0-9a-f]{64}) ", re.MULTILINE)
DESCRIBE_SECONDS = 300.0


class Rntuple(Workload):
    """The LHCb analysis on RNTuple."""

    name: ClassVar[str] = "rntuple"
    Options: ClassVar[type[WorkloadOptions]] = RntupleOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "daos"})
    engines: ClassVar[tuple[str, ...]] = (ROOT, UPROOT)
    options: RntupleOptions

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """ROOT where it can be used; uproot where only that can."""
        return UPROOT if not usable(ROOT) and usable(UPROOT) else ROOT

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """The source is that of the plan; write; read."""
        options = self.options
        request = Request(
            events=self._events(engine),
            seed=options.event_seed,
            parts=case.geometry.processes,
            source=options.source.path if options.source else "",
            tree=options.tree,
            compression=options.compression,
            page_size=options.page_size,
            cluster_size=options.cluster_size,
            object_class=access.oclass if isinstance(access, DaosAccess) else "",
            threads=case.geometry.threads,
            fsync=options.fsync,
        )
        what = [
            Argv(
                (
                    engine.program,
                    *words(engine.name, step, request.text(), _place(access), "{rank}"),
                )
            )
            for step in (WRITE, READ)
        ]
        steps = [
            Step(WRITE, "rank", "timed", what[0]),
            Step(READ, "rank", "timed", what[1], reads=True),
        ]
        if options.source is not None:
            look = Argv(("sha256sum", options.source.path))
            steps.insert(0, Step(SOURCE_STEP, "node", "setup", look))
        return steps

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phases; a run that is not what was asked for has failed."""
        options, processes = self.options, case.geometry.processes
        data = str(options.source or f"seed {options.event_seed}")
        digests = {
            digest
            for output in outputs
            if output.step == SOURCE_STEP
            for digest in DIGEST.findall(output.stdout)
        }
        timed = [output for output in outputs if output.step in (WRITE, READ)]
        run = parsed(timed, data, processes, options.fsync)
        if options.source is not None and digests - {options.source.sha256}:
            changed = f"the nodes' source is not the one of the plan ({options.source})"
            return Parsed(failure="; ".join(filter(None, (changed, run.failure))))
        return run

    def explain(self, output: Output) -> str:
        """Why a program failed, in its own words."""
        reply = answer(output.stdout) or {}
        return str(reply.get("error", ""))

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        options, processes = self.options, case.geometry.processes
        if options.source is not None and not options.source.path:
            return f"source: where {options.source} lies is not known: give its path"
        if options.source is None and options.events < processes:
            return f"events: {options.events} cannot be divided among {processes} processes"
        if case.cache == "bypass":
            return "rntuple: neither ROOT nor uproot reads with O_DIRECT; say cache: cold or warm"
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        options, threads = self.options, case.geometry.threads
        if engine.name == UPROOT:
            if access == "daos":
                return "uproot has no DAOS: use the engine root, of a ROOT built with DAOS"
            if threads > 1:
                return f"uproot works in one thread, not {threads}: use more processes"
            if options.cluster_size != CLUSTER:
                return "cluster_size: uproot writes one page of each column as a cluster"
        elif engine.version:
            if access == "daos" and "has:daos" not in engine.features:
                return (
                    f"ROOT {engine.version} of {engine.path} was built without DAOS (PyPI's is): "
                    "name the Python of one that has it by FSMATRIX_ROOT"
                )
            if threads > 1 and "has:imt" not in engine.features:
                return f"ROOT {engine.version} was built without implicit multi-threading (imt)"
        if options.source is None or not options.source.path or not engine.version:
            return ""
        try:
            events = self._events(engine)
        except ValueError as error:
            return f"source: {error}"
        processes = case.geometry.processes
        if events < processes:
            return f"source: {events} events cannot be divided among {processes} processes"
        return ""

    def footprint(self, case: Case) -> Footprint:
        """As if nothing were compressed."""
        events = self.options.events
        if self.options.source is not None and self.options.source.path:
            size = Path(self.options.source.path).stat().st_size
            events = min(events, 4 * size // EVENT_BYTES)
        return Footprint(
            space=events * EVENT_BYTES,
            written=events * EVENT_BYTES,
            files=case.geometry.processes,
            read=events * READ_BYTES,
        )

    # -- parts -----------------------------------------------------------------------------
    def _events(self, engine: Engine) -> int:
        """Of all processes together; ValueError for a source that cannot be used."""
        source = self.options.source
        if source is None:
            return self.options.events
        there = _described(engine.name, engine.program, source.path, self.options.tree, str(source))
        return min(there, self.options.events)


def _place(access: Access) -> str:
    """Where a process writes: its file, or the run's container."""
    if isinstance(access, DaosAccess):
        return f"daos://{access.pool}/{containers.of_run(access.container, '{run}')}"
    return "{path}/lhcb-{rank}.root"


@lru_cache(maxsize=64)
def _described(name: str, program: str, path: str, tree: str, digest: str) -> int:  # noqa: ARG001
    """Events of a user's file, whose columns are right; ValueError with what is wrong."""
    argv = [program, *words(name, "describe", path, tree)]
    done = programs.run(argv, "/", DESCRIBE_SECONDS)
    reply = answer(done.stdout) or {}
    if "events" not in reply:
        reason = reply.get("error") or done.stderr.strip()[-300:] or f"status {done.returncode}"
        raise ValueError(str(reason))
    return int(str(reply["events"]))
