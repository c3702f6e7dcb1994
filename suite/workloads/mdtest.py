"""The workload `mdtest`: the external program mdtest of IOR 3.2 to 4.1.

With a cold cache on paths and CephFS each of its phases is an invocation of its own on the
same tree, with the cache state made before it.  Each iteration has invocations of its own:
mdtest prints only extremes and a mean over its own iterations (-i), from which the time of
all does not follow.  Iterations are parts of a run, never repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends.access import Access
from fsmatrix.results.formats.mdtest import joined, parse_with_ranks
from fsmatrix.results.formats.mdtest.argv import Tree, parse_arguments
from fsmatrix.results.formats.mdtest.mdtest_text import NAMES
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.record import Case, Phase
from fsmatrix.results.units import Size, format_size
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.mdtest import RANKS_CSV, UNTOLD
from fsmatrix.suite.workloads.workload import (
    AioriOptions,
    Argv,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
    place,
    status_file,
    target_arguments,
    unlike_api,
)

# Options of the workload `mdtest`.


PhaseName = Literal["create", "stat", "read", "rename", "remove"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)  # in mdtest's order
DEFAULT_PHASES: tuple[PhaseName, ...] = ("create", "stat", "read", "remove")
LETTERS: dict[str, str] = {"create": "C", "stat": "T", "read": "E", "rename": "U", "remove": "r"}
DIRECT_UNIT = 512  # smallest logical block of a device
MOST_DIRECTORIES = 1_000_000
# what may be added by extra_arguments, of mdtest's options that have no prefix of a module
EXTRA = frozenset(
    {
        "buffer_offset",
        "collective_creates",
        "dataPacketType",
        "global_dir_layout",
        "make_node",
        "pre_delay",
        "random-seed",
        "random_stat",
        "time_unique_dir_overhead",
        "verify_read",
        "verify_write",
        "call_sync",
        "allocateBufferOnGPU",
        "GPUid",
        "gpu_direct",
    }
)
# of the modules: how, never where (dfs., cephfs.) nor what is read beside (mpiio.hintsFileName)
MODULES = frozenset(
    {"posix.rangelocks", "mpiio.showHints", "mmap.madv_dont_need", "mmap.madv_pattern"}
)
Count = Annotated[int, Field(ge=1, le=10**12)]


class MdtestOptions(AioriOptions):
    """mdtest's options by names of their own.  Sizes in bytes, times in seconds."""

    api: Literal["auto", "POSIX", "MPIIO", "MMAP", "DFS", "CEPHFS"] = Field(
        "auto", description="-a; auto: what belongs to the access (paths: POSIX)"
    )
    items: Count = Field(
        1000, description="-n, files, and as many directories, of each process; all of a tree"
    )
    items_per_directory: Count | None = Field(
        None, description="-I, instead of items: in each directory of the tree"
    )
    depth: Annotated[int, Field(ge=0, le=64)] = Field(0, description="-z, levels of the tree")
    branching_factor: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="-b, directories in each directory of the tree"
    )
    leaf_only: bool = Field(False, description="-L, items only at the lowest level of the tree")
    unique_dir: bool = Field(False, description="-u, a tree for each process")
    files_only: bool = Field(False, description="-F")
    dirs_only: bool = Field(False, description="-D")
    write_bytes: Size = Field(0, description="-w, into each file after it is created")
    read_bytes: Size = Field(0, description="-e, from each file; 0: files are opened and closed")
    stride: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="-N, items of the process so far away (in nodes, where ranks fill nodes)"
    )
    iterations: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="invocations one after the other: parts of one run, not repetitions"
    )
    sync: bool = Field(False, description="-y, fsync of each file after it is written")
    phases: tuple[PhaseName, ...] = Field(
        DEFAULT_PHASES, description="-C -T -E -U -r; without create, files are made in a setup"
    )

    @field_validator("phases")
    @classmethod
    def _in_order(cls, value: tuple[PhaseName, ...]) -> tuple[PhaseName, ...]:
        """In mdtest's order, so that the same set is the same case."""
        if len(set(value)) != len(value) or not value:
            raise ValueError(f"phases must name some, each once: {', '.join(value) or 'none'}")
        return tuple(name for name in PHASES if name in value)

    @field_validator("extra_arguments")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in parse_arguments(value):
            if name not in EXTRA | MODULES:
                raise ValueError(
                    f"extra_arguments: {name} is set by the suite, has an option of its own, or "
                    "changes what is printed"
                )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> MdtestOptions:
        for problem in (self._items, self._bytes, self._walled, self._selected, self._api):
            if text := problem():
                raise ValueError(text)
        return self

    @property
    def counted(self) -> dict[str, int]:
        """What determines the number of items, by the names of the command line."""
        counted = {
            "depth": self.depth,
            "branching_factor": self.branching_factor,
            "leaf_only": self.leaf_only,
        }
        if self.items_per_directory is None:
            return counted | {"items": self.items}
        return counted | {"items_per_directory": self.items_per_directory}

    @property
    def tree(self) -> Tree:
        """Directories of one tree, and the items of one process."""
        return Tree.of(self.counted)

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        for name, size in (("write_bytes", self.write_bytes), ("read_bytes", self.read_bytes)):
            if size % DIRECT_UNIT:
                return (
                    f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe "
                    f"everywhere): {name} is {size}"
                )
        return ""

    def expected(self, phase: str) -> tuple[str, ...]:
        """Names of the phases that one of mdtest's selections gives."""
        names = {
            "create": ("mkdir-tree", "mkdir", "create"),
            "stat": ("", "stat-directories", "stat"),
            "read": ("", "", "read"),
            "rename": ("", "rename-directories", ""),
            "remove": ("", "rmdir", "remove"),
        }[phase]
        wanted = (True, not self.files_only, not self.dirs_only)
        phases = tuple(name for name, on in zip(names, wanted, strict=True) if name and on)
        return (*phases, "rmdir-tree") if phase == "remove" else phases

    def _items(self) -> str:
        if self.items_per_directory is not None and "items" in self.model_fields_set:
            return "give items (-n) or items_per_directory (-I), not both"
        if self.files_only and self.dirs_only:
            return "files_only and dirs_only exclude each other (mdtest takes them as both)"
        if self.tree.directories > MOST_DIRECTORIES:
            return (
                f"a tree of depth {self.depth} with {self.branching_factor} directories in each "
                f"has more than {MOST_DIRECTORIES} directories"
            )
        if not self.tree.items:
            return f"items {self.items} are fewer than the directories that they are spread over"
        return ""

    def _bytes(self) -> str:
        if self.read_bytes > self.write_bytes:
            return (
                f"read_bytes {format_size(self.read_bytes)} is more than the "
                f"{format_size(self.write_bytes)} that write_bytes puts into a file"
            )
        if self.dirs_only and (self.write_bytes or self.sync):
            return "write_bytes, read_bytes and sync need files (dirs_only is set)"
        if self.sync and not self.write_bytes:
            return "sync (-y) needs write_bytes: mdtest syncs only what it writes to"
        return self.misaligned() if self.direct else ""

    def _walled(self) -> str:
        if not self.stonewall:
            return ""
        if not self.files_only:
            return (
                "stonewall needs files_only: it also cuts off the making of directories, of "
                "which mdtest then counts all"
            )
        if self.depth:
            return "stonewall works in a flat directory only: depth must be 0"
        return "" if "create" in self.phases else "stonewall (-W) ends creating only: time create"

    def _selected(self) -> str:
        for phase in self.phases:
            if not self.expected(phase):
                kind = "files" if phase == "read" else "directories"
                return f"phase {phase} is of {kind}, and there are none (files_only, dirs_only)"
        if "rename" in self.phases and self.tree.items < 2:
            return "phase rename needs two or more directories for each process"
        return ""

    def _api(self) -> str:
        return unlike_api(self, self.api)


# Command lines of mdtest: which option a version and a build has for what is wanted.


# type of access -> APIs that work on it, the usual one first; mdtest knows none for RADOS
APIS: dict[str, tuple[str, ...]] = {
    "path": ("POSIX", "MPIIO", "MMAP"),
    "dfs": ("DFS",),
    "cephfs": ("CEPHFS",),
}
DIRECTORY = "mdtest"
RANKS = "ranks.csv"


@dataclass(frozen=True)
class Invocation:
    """Makes the command lines of one run."""

    options: MdtestOptions
    case: Case
    access: Access
    engine: Engine
    api: str  # one of APIS

    def argv(self, phases: Sequence[str], setup: bool = False) -> Argv:
        """One invocation of these of mdtest's phases, over one tree."""
        options = self.options
        words = [self.engine.program, "-a", self.api, *(f"-{LETTERS[name]}" for name in phases)]
        words += self._items()
        words += ["-w", str(options.write_bytes)] if options.write_bytes else []
        words += ["-e", str(options.read_bytes)] if options.read_bytes else []
        words += ["-N", str(options.stride)] if options.stride else []
        words += ["-y"] if options.sync else []
        words += self._stonewall(phases)
        words += self._backend(setup)
        words += ["-i", "1", "-d", place(self.access, DIRECTORY)]
        collect: tuple[str, ...] = ()
        if not setup and RANKS_CSV in self.engine.features:
            words.append(f"--saveRankPerformanceDetails={{scratch}}/{RANKS}")
            collect = (RANKS,)
        return Argv((*words, *options.extra_arguments), collect=collect, binding=options.bind_to)

    def _items(self) -> list[str]:
        options = self.options
        each = options.items_per_directory
        words = ["-n", str(options.items)] if each is None else ["-I", str(each)]
        if options.depth:
            words += ["-z", str(options.depth), "-b", str(options.branching_factor)]
        flags = {
            "-L": options.leaf_only,
            "-u": options.unique_dir,
            "-F": options.files_only,
            "-D": options.dirs_only,
        }
        return words + [flag for flag, on in flags.items() if on]

    def _stonewall(self, phases: Sequence[str]) -> list[str]:
        """Invocations apart from creating must know how far it came."""
        options = self.options
        if not options.stonewall:
            return []
        words = ["-W", str(int(options.stonewall))] if "create" in phases else []
        again = options.iterations > 1 and "remove" not in options.phases
        if tuple(phases) != options.phases or again:
            words += ["-x", status_file(self.access)]
        return words

    def _backend(self, setup: bool) -> list[str]:
        direct = self.options.direct or self.case.cache == "bypass"
        if self.api == "POSIX" and direct and not setup:
            return ["--posix.odirect"]
        return target_arguments(self.access, self.options, self.engine)


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
