"""The workload `mdtest`: the external program mdtest of IOR 3.2 to 4.1.

With a cold cache on paths and CephFS each of its phases is an invocation of its own on the
same tree, with the cache state made before it.  Each iteration has invocations of its own:
mdtest prints only extremes and a mean over its own iterations (-i), from which the time of
all does not follow.  Iterations are parts of a run, never repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from fsmatrix.backends.access import Access
from fsmatrix.results.case import Case
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.formats.mdtest import joined, parse_with_ranks
from fsmatrix.results.formats.mdtest.text import NAMES
from fsmatrix.results.record import Phase
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.engines.mdtest import RANKS_CSV, UNTOLD
from fsmatrix.suite.workloads.base import Footprint, Output, Step, Workload, WorkloadOptions
from fsmatrix.suite.workloads.mdtest.argv import APIS, RANKS, Invocation
from fsmatrix.suite.workloads.mdtest.options import PHASES, MdtestOptions

TOGETHER = "mdtest"  # step of an invocation that does all phases
TIMED = frozenset({TOGETHER, *PHASES})
MOST_NOTES = 50
OTHER_MPI = (
    "the launcher belongs to another MPI than the one that mdtest was built with, so that each "
    "process was a world of its own: use that MPI's mpirun or srun --mpi=pmix, or load an "
    "mdtest built with this one"
)


class Mdtest(Workload):
    """Rates of metadata operations by the program mdtest."""

    name: ClassVar[str] = "mdtest"
    Options: ClassVar[type[WorkloadOptions]] = MdtestOptions
    accesses: ClassVar[frozenset[str]] = frozenset(APIS)
    engines: ClassVar[tuple[str, ...]] = ("mdtest",)
    by_launcher: ClassVar[bool] = True
    cold_metadata: ClassVar[bool] = True
    options: MdtestOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Invocations of mdtest; see the module's text for which are apart."""
        options = self.options
        call = Invocation(options, case, access, engine, self.api(access.type))
        creates, removes = "create" in options.phases, "remove" in options.phases
        prepare = Step("create-prepare", "mpi", "setup", call.argv(("create",), setup=True))
        # the suite removes the run's directory on a path, and nothing elsewhere
        cleanup = Step("remove-cleanup", "mpi", "setup", call.argv(("remove",), setup=True))
        steps: list[Step] = []
        for index in range(options.iterations):
            last = index + 1 == options.iterations
            if not creates and (removes or index == 0):
                steps.append(prepare)
            steps += self._iteration(call, self._apart(case, access.type))
            if not removes and (access.type != "path" if last else creates):
                steps.append(cleanup)
        return steps

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """One run; its failure says where mdtest did something else than was asked for."""
        if not any(output.step in TIMED for output in outputs):
            raise ParseError("mdtest", 0, "no timed invocation of mdtest gave any output")
        runs = [(output.step, self._invocation(case, output)) for output in outputs]
        parts: dict[str, list[Phase]] = {}
        for step, run in runs:
            for phase in run.phases if step in TIMED else ():
                parts.setdefault(phase.name, []).append(phase)
        phases = tuple(joined(parts[name]) for name in NAMES.values() if name in parts)
        failures = [f"{step}: {run.failure}" for step, run in runs if run.failure]
        failures = failures or self._missing(parts)
        notes: dict[tuple[str, str, str], Note] = {}
        for _, run in runs:
            for note in run.notes:
                notes.setdefault((note.key, note.message, note.phase), note)
        first = next(run for step, run in runs if step in TIMED)
        return replace(
            first,
            phases=phases,
            options={**first.options, "iterations": self.options.iterations},
            failure="; ".join(dict.fromkeys(failures)),
            notes=tuple(notes.values())[:MOST_NOTES],
        )

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        if case.geometry.threads != 1:
            return "mdtest has no threads: use threads: 1 and more processes per node"
        if self.options.stride and case.geometry.processes == 1:
            return "stride: with a single process this shifts nothing; use two or more"
        return self.options.misaligned() if case.cache == "bypass" else ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        options = self.options
        api = self.api(access)
        if api not in APIS.get(access, ()):
            return f"api {api} does not work on an access of type {access}"
        if options.dfs and api != "DFS":
            return "dfs_oclass, dfs_dir_oclass and dfs_chunk_size work on DFS containers only"
        if (options.direct or case.cache == "bypass") and api in ("MPIIO", "MMAP", "CEPHFS"):
            return f"mdtest has no O_DIRECT for {api}: cache must be cold or warm, direct off"
        if options.direct and api != "POSIX":
            return f"direct: {api} knows no O_DIRECT"
        apart = self._apart(case, access) and len(options.phases) > 1
        if options.stonewall and apart and engine.version and RANKS_CSV not in engine.features:
            return (
                f"stonewall with a cold cache: mdtest {engine.version} does not tell how many "
                "files its later invocations find; 4.0 does"
            )
        if options.stonewall and access != "path" and (apart or "remove" not in options.phases):
            return f"stonewall in several invocations needs a path for their status, not {access}"
        return self._engine_unsupported(case, api, engine)

    def footprint(self, case: Case) -> Footprint:
        """Exact for fixed work; under stonewalling an upper bound.  Inodes count as files."""
        options, ranks = self.options, case.geometry.processes
        tree = options.tree
        files = 0 if options.dirs_only else tree.items * ranks
        directories = 0 if options.files_only else tree.items * ranks
        trees = tree.directories * (ranks if options.unique_dir else 1)
        times = options.iterations if {"create", "remove"} & set(options.phases) else 1
        return Footprint(
            space=files * options.write_bytes,
            written=files * options.write_bytes * times,
            files=files + directories + trees + 2,  # its directory, and that of the iteration
        )

    def api(self, access: str) -> str:
        """What is given to -a on this type of access."""
        if self.options.api != "auto":
            return self.options.api
        return APIS.get(access, ("?",))[0]

    # -- parts -----------------------------------------------------------------------------
    def _apart(self, case: Case, access: str) -> bool:
        """Whether each phase is an invocation of its own."""
        return case.cache == "cold" and access in ("path", "cephfs")

    def _iteration(self, call: Invocation, apart: bool) -> list[Step]:
        options = self.options
        if apart:
            return [
                Step(
                    phase,
                    "mpi",
                    "timed",
                    call.argv((phase,)),
                    reads=phase != "create",
                    phases=options.expected(phase),
                )
                for phase in options.phases
            ]
        expected = [name for phase in options.phases for name in options.expected(phase)]
        reads = "create" not in options.phases
        what = call.argv(options.phases)
        return [Step(TOGETHER, "mpi", "timed", what, reads=reads, phases=tuple(expected))]

    def _invocation(self, case: Case, output: Output) -> Parsed:
        """What one invocation gave; its failure if its world was another one."""
        source = f"mdtest ({output.step})"
        ranks = output.files.get(RANKS, "")
        try:
            runs = parse_with_ranks(output.stdout, ranks, source)
        except ParseError as error:
            lines = output.stderr.strip().splitlines()
            if not lines:
                raise
            raise ParseError(source, 0, f"{error.reason}; it says: {lines[0]}") from error
        asked = case.geometry
        alone = asked.processes > 1 and all(run.processes == 1 for run in runs)
        failure = runs[0].failure
        if alone:
            failure = f"it ran as worlds of 1 task instead of one of {asked.processes}: {OTHER_MPI}"
        elif len(runs) > 1:
            failure = f"one invocation gave {len(runs)} outputs"
        elif runs[0].processes != asked.processes:
            failure = f"it saw {runs[0].processes} tasks, {asked.processes} were started"
        elif runs[0].nodes != asked.nodes:
            failure = f"it saw {runs[0].nodes} client nodes, {asked.nodes} were asked for"
        return replace(runs[0], failure=failure)

    def _missing(self, parts: dict[str, list[Phase]]) -> list[str]:
        """Phases that are not there as often as they should."""
        options = self.options
        expected = [name for phase in options.phases for name in options.expected(phase)]
        counts = {name: len(parts.get(name, ())) for name in expected}
        return [
            f"{name} is there {count} of {options.iterations} times"
            for name, count in counts.items()
            if count != options.iterations
        ]

    def _engine_unsupported(self, case: Case, api: str, engine: Engine) -> str:
        has, options = engine.features, self.options
        if not engine.version:
            return ""  # not probed yet
        if f"api:{api}" not in has and UNTOLD not in has:
            apis = sorted(name[4:] for name in has if name.startswith("api:"))
            version = engine.version
            return f"this mdtest {version} was built without {api} (it has {', '.join(apis)})"
        direct = options.direct or (case.cache == "bypass" and api == "POSIX")
        if direct and "option:posix.odirect" not in has:
            return f"this mdtest {engine.version} has no option for O_DIRECT"
        if "rename" in options.phases and "option:U" not in has:
            return f"this mdtest {engine.version} cannot be told to rename (-U): 4.1 is needed"
        return ""
