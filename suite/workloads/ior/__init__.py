"""The workload `ior`: the external program IOR, 3.2 to 4.1, on every access that it speaks.

With a cold cache on paths and CephFS each iteration is an invocation that writes and one that
reads, with the cache state made in between, so that no iteration reads what an earlier one
left in memory.  Otherwise one invocation does all (`-i`).  Iterations are parts of a run,
never repetitions: the phases `write` and `read` hold their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fsmatrix.backends.access import Access
from fsmatrix.results.case import Case
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.formats.ior import failure_of
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import Argv, Footprint, Output, Step, Workload, WorkloadOptions
from fsmatrix.suite.workloads.ior.argv import APIS, Invocation
from fsmatrix.suite.workloads.ior.options import IorOptions
from fsmatrix.suite.workloads.ior.outputs import Expected, combine


class Ior(Workload):
    """Bandwidth of reads and writes by the program IOR."""

    name: ClassVar[str] = "ior"
    Options: ClassVar[type[WorkloadOptions]] = IorOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "dfs", "rados", "cephfs"})
    engines: ClassVar[tuple[str, ...]] = ("ior",)
    by_launcher: ClassVar[bool] = True
    options: IorOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Invocations of IOR; see the module's text for when writing and reading are apart."""
        options = self.options
        call = Invocation(options, case, access, engine, self.api(access.type))
        apart = self._apart(case, access.type)
        everything = options.iterations
        if options.operations == "write":
            return [self._step("write", call.argv("w", everything))]
        steps: list[Step] = []
        rounds = range(everything if apart else 1)
        if options.operations == "both" and not apart:
            what = call.argv("wr", everything)
            phases = ("write", "read")
            return [Step("write+read", "mpi", "timed", what, phases=phases)]
        if options.operations == "read":
            prepare = call.argv("w", 1, keep=True, setup=True)
            steps.append(Step("write-prepare", "mpi", "setup", prepare))
        for index in rounds:
            if options.writes:
                steps.append(self._step("write", call.argv("w", 1, keep=True)))
            # the directory of a run on a path is removed by the suite
            keep = access.type == "path" or index + 1 < len(rounds)
            read = call.argv("r", 1 if apart else everything, keep=keep)
            steps.append(self._step("read", read))
        return steps

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """One run; its failure says where IOR did something else than was asked for."""
        options = self.options
        fixed = not options.stonewall and not options.extra_arguments
        even = options.file_per_process or not options.random_offset
        expected = Expected(
            nodes=case.geometry.nodes,
            processes=case.geometry.processes,
            iterations=options.iterations,
            phases=tuple(
                name for name in ("write", "read") if options.operations in (name, "both")
            ),
            bytes=self._space(case) if fixed else None,
            even=even and (not options.stonewall or options.stonewall_wear_out),
        )
        return combine(expected, outputs)

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        if case.geometry.threads != 1:
            return "ior has no threads: use threads: 1 and more processes per node"
        return self.options.misaligned() if case.cache == "bypass" else ""

    def explain(self, output: Output) -> str:
        """Why ior failed, from what it and its launcher printed."""
        return failure_of(f"{output.stdout}\n{output.stderr}")

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        options = self.options
        api = self.api(access)
        if api not in APIS.get(access, ()):
            return f"api {api} does not work on an access of type {access}"
        if text := self._cache_unsupported(case, access, api):
            return text
        if options.dfs and api != "DFS":
            return "dfs_oclass, dfs_dir_oclass and dfs_chunk_size work on DFS containers only"
        return self._engine_unsupported(case, api, engine)

    def footprint(self, case: Case) -> Footprint:
        """Exact for fixed work; under stonewalling space and traffic are upper bounds."""
        options = self.options
        space = self._space(case)
        timed = options.iterations * (options.writes + options.reads)
        return Footprint(
            space=space,
            written=space * (options.iterations if options.writes else 1),
            files=case.geometry.processes if options.file_per_process else 1,
            seconds=options.stonewall * timed if options.stonewall else None,
            read=space * options.iterations if options.reads else 0,
        )

    def api(self, access: str) -> str:
        """What is given to -a on this type of access."""
        if self.options.api != "auto":
            return self.options.api
        return APIS.get(access, ("?",))[0]

    # -- parts -----------------------------------------------------------------------------
    def _space(self, case: Case) -> int:
        options = self.options
        return options.block_size * options.segments * case.geometry.processes

    def _apart(self, case: Case, access: str) -> bool:
        """Whether writing and reading are separate invocations, one pair per iteration."""
        return case.cache == "cold" and access in ("path", "cephfs")

    def _step(self, name: str, what: Argv) -> Step:
        return Step(name, "mpi", "timed", what, reads=name == "read")

    def _cache_unsupported(self, case: Case, access: str, api: str) -> str:
        options = self.options
        if (case.cache == "bypass" or options.direct) and api in ("MPIIO", "CEPHFS"):
            return f"ior has no O_DIRECT for {api}: cache must be cold or warm, direct off"
        if options.direct and api != "POSIX":
            return f"direct: {api} knows no O_DIRECT"
        walled = options.stonewall and options.operations == "both" and self._apart(case, access)
        if walled and not options.stonewall_wear_out:
            return (
                "stonewall with a cold cache: reading is an invocation of its own and would not "
                "know how far each process wrote; use stonewall_wear_out, or operations: write"
            )
        if walled and access != "path":
            return f"stonewall with reading apart from writing needs a path, not {access}"
        return ""

    def _engine_unsupported(self, case: Case, api: str, engine: Engine) -> str:
        has, options = engine.features, self.options
        if not engine.version:
            return ""  # not probed yet
        if f"api:{api}" not in has and "api:?" not in has:
            apis = sorted(name[4:] for name in has if name.startswith("api:"))
            return f"this ior {engine.version} was built without {api} (it has {', '.join(apis)})"
        direct = options.direct or (case.cache == "bypass" and api == "POSIX")
        if direct and not has & {"option:posix.odirect", "option:B"}:
            return f"this ior {engine.version} has no option for O_DIRECT"
        checked = options.check_read or options.check_write
        if checked and options.data_packet == "incompressible" and "packet:random" not in has:
            return (
                f"ior {engine.version} finds every byte of incompressible data wrong: check_read "
                "and check_write need ior 4.0 with it"
            )
        if options.data_packet == "random" and "packet:random" not in has:
            return f"data_packet: random needs ior 4.0, this is {engine.version}"
        return ""
