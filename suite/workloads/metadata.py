"""The built-in workload `metadata`: what mdtest measures, one timed step per phase.

The rate of a phase counts files or directories, as mdtest does: creating a file is one
operation although it takes a create and a close.  The latencies are those of the calls, by
kind.  Phases that need files or directories which no earlier phase of the run has made get
them from a setup step; phases over zero items are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends.access import Access
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case
from fsmatrix.results.units import Size, format_size
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.openloop import OpenLoopOptions, OpenLoopWorkload, paced
from fsmatrix.suite.workloads.streams import metadata as streams
from fsmatrix.suite.workloads.streams.metadata import Task
from fsmatrix.suite.workloads.workload import Footprint, Output, Step, Stream, WorkloadOptions

GENERATOR = "fsmatrix.suite.workloads.streams.metadata:generate"
PhaseName = Literal["mkdir", "create", "stat", "read", "rename", "remove", "rmdir"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)  # in this order
# "read" is the name of a data phase elsewhere: bandwidths of the two must not be mixed
STEP_NAMES = {"read": "open-read"}
ON_DIRECTORIES = frozenset({"mkdir", "rmdir"})
SHIFTED = frozenset({"stat", "read", "rename", "remove", "rmdir"})
LOOKING = frozenset({"stat", "read"})  # the declared cache state is made before them
LARGEST_FILE = 1 << 30
MOST_DIRECTORIES = 1_000_000
Count = Annotated[int, Field(ge=0, le=10**12)]


class MetadataOptions(OpenLoopOptions):
    """What is made, looked at and removed, and where.  Sizes in bytes."""

    files_per_process: Count = 10_000
    dirs_per_process: Count = 10_000
    depth: Annotated[int, Field(ge=0, le=64)] = 0  # levels of the tree below its root
    branching: Annotated[int, Field(ge=1, le=10_000)] = 1  # directories in each of the tree
    unique_dir: bool = False  # a tree for every rank; otherwise one for all
    write_bytes: Size = 0  # into each file by `create`
    read_bytes: Size = 0  # from each file by `read`
    phases: tuple[PhaseName, ...] = PHASES  # any subset; the order is always this one
    shift: Literal["none", "rank", "node"] = "none"  # whose items are met after create (mdtest -N)
    fsync: bool = False  # each file before its close in `create`

    @field_validator("phases")
    @classmethod
    def _in_order(cls, value: tuple[PhaseName, ...]) -> tuple[PhaseName, ...]:
        """In the fixed order, so that the same set is the same case."""
        if len(set(value)) != len(value):
            raise ValueError(f"phases names one twice: {', '.join(value)}")
        return tuple(name for name in PHASES if name in value)

    @model_validator(mode="after")
    def _consistent(self) -> MetadataOptions:
        if self.read_bytes > self.write_bytes:
            raise ValueError(
                f"read_bytes {format_size(self.read_bytes)} is more than the "
                f"{format_size(self.write_bytes)} that write_bytes puts into a file"
            )
        if self.write_bytes > LARGEST_FILE:
            raise ValueError("write_bytes is at most 1GiB; larger files are the workload pattern's")
        if not self.timed:
            raise ValueError(
                "nothing to do: the phases are "
                f"{', '.join(self.phases) or 'empty'}, with {self.files_per_process} files and "
                f"{self.dirs_per_process} directories per process"
            )
        if self.tree > MOST_DIRECTORIES:
            raise ValueError(
                f"a tree of depth {self.depth} with {self.branching} directories in each has "
                f"more than {MOST_DIRECTORIES} directories"
            )
        return self

    def items(self, phase: str) -> int:
        """Files or directories that a phase works on, of each process."""
        return self.dirs_per_process if phase in ON_DIRECTORIES else self.files_per_process

    @property
    def timed(self) -> tuple[str, ...]:
        """The phases that have something to do, in order."""
        return tuple(phase for phase in self.phases if self.items(phase))

    @property
    def tree(self) -> int:
        """How many directories one tree has."""
        return streams.directories(self.depth, self.branching)


class Metadata(OpenLoopWorkload):
    """Creates, looks at, renames and removes files and directories by the built-in player."""

    name: ClassVar[str] = "metadata"
    Options: ClassVar[type[WorkloadOptions]] = MetadataOptions
    cold_metadata: ClassVar[bool] = True
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "cephfs", "dfs"})
    options: MetadataOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:  # noqa: ARG002
        """The tree and what the phases miss as setup, then one timed step per phase."""
        self.require_rate()
        parents = [] if not self.options.unique_dir else [self._root()]
        setup = [*parents, self._setup("tree")]
        setup += [self._setup(phase) for phase in self._missing()]
        return setup + [self._timed(case, phase) for phase in self.options.timed]

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The session's phases; operations count items, their number of calls is a fact."""
        names = {_name(phase): phase for phase in self.options.timed}
        phases = []
        for output in outputs:
            if output.phase is None:
                continue
            phase = output.phase
            length = len(streams.calls(self._task(names[phase.name])))
            facts = {"calls": int(phase.operations.sum()), "calls_per_item": length}
            phases.append(
                replace(
                    phase,
                    operations=phase.operations // length,
                    facts={**phase.facts, **facts},
                )
            )
        return self.told(Parsed(phases=tuple(phases)), case)

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        options, geometry = self.options, case.geometry
        if options.shift == "node" and geometry.nodes == 1:
            return "shift: node: on a single client node this shifts nothing; use two or more"
        if options.shift == "rank" and geometry.processes == 1:
            return "shift: rank: with a single process this shifts nothing; use two or more"
        for phase in options.timed:
            if options.items(phase) < geometry.threads:
                return (
                    f"{options.items(phase)} items of phase {phase} per process leave some of "
                    f"{geometry.threads} threads without any work"
                )
        for phase in options.timed:
            if text := self.misfit_of_rate(case, _name(phase), self._arrival_seconds(case, phase)):
                return text
        if options.unique_dir and options.tree * geometry.processes > MOST_DIRECTORIES * 10:
            return (
                f"unique_dir: {geometry.processes} trees of {options.tree} directories are more "
                f"than {MOST_DIRECTORIES * 10} directories"
            )
        return ""

    def footprint(self, case: Case) -> Footprint:
        """Bytes are of files' data; what directories and inodes take is the file system's."""
        options, ranks = self.options, case.geometry.processes
        phases = {*self._missing(), *options.timed}
        files = options.files_per_process * ranks if "create" in phases else 0
        dirs = options.dirs_per_process * ranks if "mkdir" in phases else 0
        trees = options.tree * ranks + 1 if options.unique_dir else options.tree
        kinds = {
            kind.name.lower()
            for phase in ("tree", *phases)
            for kind, _ in streams.calls(self._task(phase))
        }
        return Footprint(
            space=files * options.write_bytes,
            written=files * options.write_bytes,
            files=files + dirs + trees,
            seconds=sum(self._arrival_seconds(case, phase) for phase in options.timed) or None,
            kinds=frozenset(kinds),
        )

    # -- parts -----------------------------------------------------------------------------
    def _missing(self) -> list[str]:
        """What must be made before the timed phases because none of them makes it."""
        timed = self.options.timed
        missing = []
        if "rmdir" in timed and "mkdir" not in timed:
            missing.append("mkdir")
        if "create" not in timed and set(timed) - ON_DIRECTORIES:
            missing.append("create")
        return missing

    def _task(self, phase: str) -> Task:
        options = self.options
        data = {"create": options.write_bytes, "read": options.read_bytes}
        return Task(
            phase=phase,
            items=options.items(phase),
            depth=options.depth,
            branching=options.branching,
            unique=options.unique_dir,
            renamed=phase == "remove" and "rename" in options.timed,
            bytes=data.get(phase, 0),
            fsync=options.fsync,
            shift=options.shift if phase in SHIFTED else "none",
        )

    def _stream(self, task: Task, metadata: bool = False) -> Stream:
        return Stream(
            GENERATOR,
            task.document(),
            slots=streams.slots(task),
            max_op_bytes=max(1, min(task.bytes, streams.OPERATION_BYTES)),
            metadata=metadata,
        )

    def _setup(self, phase: str) -> Step:
        name = "make-tree" if phase == "tree" else f"{phase}-prepare"
        return Step(name, "rank", "setup", self._stream(self._task(phase)))

    def _root(self) -> Step:
        """The directory that holds the trees of all ranks."""
        task = Task(phase="tree", items=0)
        return Step("make-root", "rank", "setup", self._stream(task))

    def _arrival_seconds(self, case: Case, phase: str) -> float:
        """How long the items of a phase are due at a rate; 0 without one."""
        rate = self.of_process(case, _name(phase))
        return self.options.items(phase) / rate if rate else 0.0

    def _timed(self, case: Case, phase: str) -> Step:
        arrivals = self.arrivals_of(case, _name(phase), self._arrival_seconds(case, phase))
        closed = self._task(phase)
        task = replace(closed, arrivals=arrivals)
        stream = paced(self._stream(task, metadata=True), arrivals, endless=False)
        return Step(
            _name(phase),
            "rank",
            "timed",
            stream,
            reads=phase in LOOKING,
            files=(streams.ROOT,),
            ceiling=self._stream(closed, metadata=True),
        )


def _name(phase: str) -> str:
    """Of the step and of the phase in the record."""
    return STEP_NAMES.get(phase, phase)
