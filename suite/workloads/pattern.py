"""The built-in workload `pattern`: sequential and random reads, writes and mixtures.

Reads and mixtures work on files that a setup step wrote (`write-prepare`), synced, in
operations of at least 1 MiB where the data of a rank lies in one piece.  Sequential writes
make new files; random writes go into files laid out before (as fio does with `overwrite=1`:
otherwise the order of the file's extents would be random too), see `overwrite`.

Fixed time: the file is worked on again from its start when its end is reached.  So that a
later pass does not work in the page cache, each pass of writes is synced (fsync: end), and
each pass of reads of a cold file drops what it read from the cache; both inside the window.
Writes of a later pass write the same content again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from fsmatrix.backends.access import Access, DeviceAccess
from fsmatrix.backends.player.ops import MAX_OP_BYTES, Io
from fsmatrix.results.evidence.workloads import CAPACITY, Probe
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.results.units import Duration, PositiveSize, format_size
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.capacity import BISECTED, STEPS, Limit, Search, normal, unknown
from fsmatrix.suite.workloads.openloop import OpenLoopOptions, OpenLoopWorkload, paced
from fsmatrix.suite.workloads.streams.pattern import Task, name_of, part_of, reads_of
from fsmatrix.suite.workloads.workload import Footprint, Output, Step, Stream, WorkloadOptions

# Options of the workload `pattern`: what is read or written, in which order and pieces.


MIB = 1 << 20
DIRECT_UNIT = 512  # smallest logical block of a device; 4096 is what most want
Depth = Annotated[int, Field(strict=True, ge=1, le=1024)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class PatternOptions(OpenLoopOptions):
    """Sizes in bytes, times in seconds."""

    pattern: Literal[
        "seq-read", "rand-read", "seq-write", "rand-write", "seq-mixed", "rand-mixed"
    ] = "seq-read"
    chunk: PositiveSize = MIB  # of one operation
    bytes_per_process: PositiveSize = 64 * MIB
    bytes_total: PositiveSize | None = None  # instead of bytes_per_process: of all together
    read_fraction: Share = 0.5  # mixed: reads of all operations
    layout: Literal["file-per-process", "shared-segmented", "shared-strided"] = "file-per-process"
    shift_reads: Literal["none", "rank", "node"] = "none"  # whose data read patterns read
    direct: bool = False  # O_DIRECT; cache state bypass means it too
    fsync: Literal["none", "end", "per-write"] = "end"  # inside the timed window
    fixed: Literal["work", "time"] = "work"
    seconds: Duration = 0.0  # fixed time: when no new operation begins
    wear_out: Duration = 0.0  # fixed time: the others catch up with the busiest rank, at most
    verify: bool = False  # every byte read is compared; writes are read back in a step of its own
    compressible: Share = 0.0  # share of the data written that compresses
    random: Literal["permutation", "with-replacement"] = "permutation"
    iodepth: Depth = 1  # operations in flight of each thread, where the driver can
    io: Io = "auto"  # auto: by the target's own driver; uring: on paths and devices by io_uring
    overwrite: bool | None = None  # writes go into laid-out files; default: random ones do
    capacity: Annotated[dict[str, str], BeforeValidator(normal)] | None = Field(
        default=None,
        description="instead of a rate, one percentile (mean, p50, p95, p99, p99.9) and its limit, "
        "such as {p99: 2ms}: the highest rate that keeps it is searched, up to that of the same "
        "case in a closed loop, which is run before it in each block",
    )

    @field_validator("overwrite")
    @classmethod
    def _derived(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        """The derived value, written out, is the same case: None stands for it."""
        derived = str(info.data.get("pattern", "")).startswith("rand")
        return None if value is derived else value

    @model_validator(mode="after")
    def _consistent(self) -> PatternOptions:
        if self.bytes_total is not None and "bytes_per_process" in self.model_fields_set:
            raise ValueError("give bytes_per_process or bytes_total, not both")
        if self.chunk > MAX_OP_BYTES:
            raise ValueError(f"chunk {self.chunk} is above the largest operation, 1GiB")
        if self.chunk > self.bytes:
            whole = "bytes_per_process" if self.bytes_total is None else "bytes_total"
            raise ValueError(
                f"chunk {format_size(self.chunk)} is larger than the file: {whole} is "
                f"{format_size(self.bytes)}"
            )
        if (self.fixed == "time") != (self.seconds > 0):
            raise ValueError("seconds (more than 0) and fixed: time belong together")
        if self.wear_out and self.fixed != "time":
            raise ValueError("wear_out needs fixed: time")
        if self.wear_out and self.is_open:
            raise ValueError("wear_out: with a rate each process has its own operations to play")
        if self.capacity is not None and (problem := self._no_search()):
            raise ValueError(f"capacity: {problem}")
        if self.direct and (problem := self.misaligned()):
            raise ValueError(problem)
        return self

    def _no_search(self) -> str:
        """Why no capacity can be searched (empty: it can)."""
        if self.rate is not None or self.load is not None:
            return f"give it or {'load' if self.rate is None else 'rate'}, not both"
        if self.fixed != "time":
            return "each step of its search takes a fixed time: give fixed: time and seconds"
        if not self.into_files:
            return "each step of its search writes into the same files: give overwrite: true"
        return ""

    @property
    def needs_maximum(self) -> bool:
        """Whether its rate is known only when its closed loop has been run."""
        return super().needs_maximum or self.capacity is not None

    def labels(self) -> dict[str, str]:
        """Levels to show in results: the limit as people write it."""
        return {"capacity": " ".join(*self.capacity.items())} if self.capacity else {}

    @property
    def bytes(self) -> int:
        """bytes_total if given, otherwise bytes_per_process."""
        return self.bytes_per_process if self.bytes_total is None else self.bytes_total

    @property
    def operation(self) -> str:
        """read, write or mixed: the name of the timed phase."""
        return self.pattern.partition("-")[2]

    @property
    def is_random(self) -> bool:
        """Whether the order is random."""
        return self.pattern.startswith("rand")

    @property
    def into_files(self) -> bool:
        """Whether a setup step writes the files first."""
        into = self.is_random if self.overwrite is None else self.overwrite
        return into or self.operation != "write"

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        for name, size in (("chunk", self.chunk), ("the file's size", self.bytes)):
            if size % DIRECT_UNIT:
                return (
                    f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe "
                    f"everywhere): {name} is {size}"
                )
        return ""


GENERATOR = "fsmatrix.suite.workloads.streams.pattern:generate"


class Pattern(OpenLoopWorkload):
    """Reads, writes and mixtures by the built-in player."""

    name: ClassVar[str] = "pattern"
    Options: ClassVar[type[WorkloadOptions]] = PatternOptions
    accesses: ClassVar[frozenset[str]] = frozenset(
        {"path", "paths", "device", "rados", "cephfs", "dfs"}
    )
    options: PatternOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Setup if files must be there, the timed step, and a check that reads writes back."""
        del engine
        self.require_rate()
        options = self.options
        task = _placed(self._task(case), access)
        steps = []
        if options.into_files:
            prepare = _placed(self._prepare(case), access)
            steps.append(Step("write-prepare", "rank", "setup", self._stream(prepare, 0)))
        if options.capacity is not None:
            return steps
        timed = self._timed(case, task)
        steps.append(timed)
        if options.verify and options.operation == "write":
            check = replace(
                task,
                step="read-verify",
                operation="read",
                random="",
                verify=True,
                create=False,
                shift=options.shift_reads,
                arrivals=None,
            )
            stream = self._stream(check, self._generation)
            steps.append(
                Step("read-verify", "rank", "check", stream, reads=True, files=timed.files)
            )
        return steps

    def next_step(
        self, case: Case, access: Access, engine: Engine, outputs: Sequence[Output]
    ) -> Step | None:
        """Of a search for a capacity: the timed step at the rate that the outcomes lead to."""
        del engine
        if self.options.capacity is None:
            return None
        probes = self._probes(case, outputs)[1]
        rate = self._search().after([probe.kept for probe in probes]).rate
        if rate is None or (probes and unknown(probes[-1])):
            return None
        at = self._at(rate)
        # by another name the operations have other arrivals and another random order
        task = replace(
            _placed(at._task(case), access), step=f"{at.options.operation}-{len(probes)}"
        )
        step = at._timed(case, task)
        return replace(step, ceiling=None) if probes else step

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phases that the session made, and what became of the rate.

        Of a search for a capacity the last step's, if the search is over, with what it found.
        """
        if self.options.capacity is None:
            return self.told(super().parse(case, outputs), case)
        limit, search = Limit.of(self.options.capacity), self._search()
        phases, probes = self._probes(case, outputs)
        over = search.after([probe.kept for probe in probes]).rate is None
        if probes and (unknown(probes[-1]) or (over and len(probes) == BISECTED)):
            return Parsed(failure=limit.failure(probes))
        if not over:
            return Parsed()
        facts = {**phases[-1].facts, CAPACITY: limit.outcome(search, probes).document()}
        return Parsed(phases=(replace(phases[-1], facts=facts),))

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        for problem in (self._shift, self._division, self._repetition):
            if text := problem(case):
                return text
        if self.options.capacity is not None and self._maxima:
            return self._no_probe(case)
        if text := self.misfit_of_rate(case, self.options.operation, self._arrival_seconds(case)):
            return text
        return self.options.misaligned() if case.cache == "bypass" else ""

    def misfit(self, case: Case, access: str) -> str:
        """On several devices each process works in a file of its own; a bare one is direct."""
        del case
        if access == "device":
            return self.options.misaligned()
        if access != "paths":
            return ""
        if self.options.layout != "file-per-process" or self.options.shift_reads != "none":
            return "on several devices each process works in a file of its own on one of them"
        return ""

    def sizes(self, case: Case) -> Mapping[str, int]:
        """A chunk, and the range of a process."""
        del case
        options = self.options
        whole = "bytes_per_process" if options.bytes_total is None else "bytes_total"
        return {"chunk": options.chunk, whole: options.bytes}

    def footprint(self, case: Case) -> Footprint:
        """Exact for fixed work; under fixed time `written` counts one pass over the data.

        Of a search for a capacity as many as it may have steps.
        """
        options, geometry = self.options, case.geometry
        steps = 1 if options.capacity is None else STEPS
        task = self._task(case)
        everybody = 1 if task.total else geometry.processes
        space = options.bytes * everybody
        prepared = space if options.into_files else 0
        written = 0 if options.operation == "read" else space
        if options.operation == "mixed":
            ranks = range(geometry.processes) if task.total else range(1)
            written -= everybody * sum(
                reads_of(task, part_of(task, rank, geometry.processes), geometry.threads)[1]
                for rank in ranks
            )
        kinds = {"create", "write", "close"}
        if options.into_files:
            kinds |= {"open", "fsync"}
        if options.verify:
            kinds.add("open")
        if options.operation != "write" or options.verify:
            kinds.add("read")
        if options.fsync != "none" and options.operation != "read":
            kinds.add("fsync")
        if task.evict:
            kinds.add("evict")
        return Footprint(
            space=space,
            written=prepared + steps * written,
            files=geometry.processes if options.layout == "file-per-process" else 1,
            seconds=steps * self._arrival_seconds(case) or None,
            read=space * (steps * (options.operation == "read") + options.verify),
            kinds=frozenset(kinds),
            depth=options.iodepth,
            io=options.io,
        )

    # -- the search for a capacity ---------------------------------------------------------
    def _at(self, rate: float) -> Pattern:
        """The same work at that rate of all processes."""
        at = Pattern(self.options.model_copy(update={"capacity": None, "rate": rate}))
        at._maxima = self._maxima
        return at

    def _search(self) -> Search:
        """ValueError if there is none: `refusal` says why."""
        assert self.options.capacity is not None  # of those that are searched
        self.require_rate()
        limit, maximum = Limit.of(self.options.capacity), self._maxima[self.options.operation]
        search = limit.search(maximum, self.options.seconds)
        if search is None:
            raise ValueError(
                f"capacity: in {self.options.seconds:g} s the {maximum:.4g} operations per second "
                f"of the closed loop are too few to tell {limit.percentile}: give it more seconds"
            )
        return search

    def _no_probe(self, case: Case) -> str:
        """Why a step of the search cannot be (empty: all can)."""
        try:
            search = self._search()
        except ValueError as error:
            return str(error)
        return self._at(search.lowest).refusal(case) or self._at(search.highest).refusal(case)

    def _probes(self, case: Case, outputs: Sequence[Output]) -> tuple[list[Phase], list[Probe]]:
        """The steps of the search so far: their phases with their open loops, what came of them."""
        assert self.options.capacity is not None  # of those that are searched
        limit, search = Limit.of(self.options.capacity), self._search()
        phases: list[Phase] = []
        probes: list[Probe] = []
        for output in outputs:
            if output.phase is not None:
                rate = search.after([probe.kept for probe in probes]).rate
                assert rate is not None  # it was the rate of that step
                told = self._at(rate).told(Parsed(phases=(output.phase,)), case)
                phases += told.phases
                probes.append(limit.probe(rate, phases[-1]))
        return phases, probes

    # -- parts -----------------------------------------------------------------------------
    def _timed(self, case: Case, task: Task) -> Step:
        """The timed step of that task."""
        options = self.options
        files = (
            tuple(name_of(task.layout, rank) for rank in range(case.geometry.processes))
            if task.layout == "file-per-process"
            else (name_of(task.layout, 0),)
        )
        timed = self._stream(task, self._generation)
        if options.fixed == "time":
            timed = replace(timed, seconds=options.seconds, wear_out=options.wear_out)
        timed = paced(timed, task.arrivals, endless=task.endless)
        closed = self._stream(replace(task, arrivals=None, verify=False), self._generation)
        return Step(
            options.operation,
            "rank",
            "timed",
            timed,
            reads=options.into_files,
            files=files,
            ceiling=replace(closed, depth=1, io="auto"),
        )

    @property
    def _generation(self) -> int:
        """Generation that the timed step writes, or expects: what is overwritten differs.

        A verified mixture writes the generation that is there already: whether a block was
        overwritten before it is read depends on other ranks and threads.
        """
        options = self.options
        if options.operation == "write":
            return int(options.into_files)
        return int(options.operation == "mixed" and not options.verify)

    def _task(self, case: Case) -> Task:
        """The timed step's task."""
        options = self.options
        timed = options.fixed == "time"
        share = Fraction(options.read_fraction).limit_denominator(10_000)
        return Task(
            step=options.operation,
            operation=options.operation,
            layout=options.layout,
            chunk=options.chunk,
            bytes=options.bytes,
            total=options.bytes_total is not None,
            random=options.random if options.is_random else "",
            read_share=(share.numerator, share.denominator),
            shift=options.shift_reads if options.operation == "read" else "none",
            direct=options.direct or case.cache == "bypass",
            fsync="none" if options.operation == "read" else options.fsync,
            create=not options.into_files,
            verify=options.verify,
            endless=timed,
            evict=timed and case.cache == "cold" and options.operation != "write",
            arrivals=self.arrivals_of(case, self.options.operation, self._arrival_seconds(case)),
        )

    def _arrival_seconds(self, case: Case) -> float:
        """The fixed time, or how long the work is due at a rate; 0 without both."""
        options, rate = self.options, self.of_process(case, self.options.operation)
        if options.fixed == "time" or not rate:
            return options.seconds
        share = -(-options.bytes // options.chunk)
        if options.bytes_total is not None:
            share = -(-share // case.geometry.processes)
        return share / rate

    def _prepare(self, case: Case) -> Task:
        """Write every byte once, buffered, and sync it."""
        return replace(
            self._task(case),
            step="write-prepare",
            operation="write",
            random="",
            shift="none",
            direct=False,
            fsync="end",
            create=True,
            verify=False,
            endless=False,
            evict=False,
            arrivals=None,
            operation_bytes=max(self.options.chunk, MIB),
        )

    def _stream(self, task: Task, generation: int) -> Stream:
        return Stream(
            GENERATOR,
            task.document(),
            slots=1,
            max_op_bytes=max(task.chunk, task.operation_bytes),
            verify=task.verify and task.operation != "write",
            fill_ratio=self.options.compressible,
            generation=generation,
            depth=self.options.iodepth,
            io=self.options.io,
        )

    def _shift(self, case: Case) -> str:
        options = self.options
        if options.shift_reads == "none":
            return ""
        if options.operation == "mixed":
            return "shift_reads works with read patterns; a mixture works on each rank's own data"
        if options.operation == "write" and not options.verify:
            return ""  # nothing is read
        if options.shift_reads == "node" and case.geometry.nodes == 1:
            return "shift_reads: node: on a single client node this shifts nothing; use two or more"
        if case.geometry.processes == 1:
            return "shift_reads: rank: with a single process this shifts nothing; use two or more"
        return ""

    def _division(self, case: Case) -> str:
        """Every thread of every rank must have at least one operation."""
        options, geometry = self.options, case.geometry
        share = options.bytes // options.chunk
        if options.bytes_total is not None:
            share //= geometry.processes
        if share >= geometry.threads:
            return ""
        workers = f"{geometry.processes} processes of {geometry.threads} threads"
        whole = "bytes_per_process" if options.bytes_total is None else "bytes_total"
        return (
            f"{whole} {format_size(options.bytes)} in chunks of {format_size(options.chunk)} "
            f"leaves some of {workers} without any work"
        )

    def _repetition(self, case: Case) -> str:
        """Cases in which a block is met again, or never, and should not be."""
        options = self.options
        repeats = options.is_random and options.random == "with-replacement"
        if repeats and case.cache == "cold" and options.operation != "write":
            return (
                "random: with-replacement reads blocks again that the first read has cached: "
                "cold needs random: permutation (or the cache state warm or bypass)"
            )
        if options.verify and options.operation == "write" and (repeats or options.seconds):
            return (
                "verify of writes needs every block written once: use fixed: work and "
                "random: permutation"
            )
        return ""


def _placed(task: Task, access: Access) -> Task:
    """On a bare device there is nothing to create, and the files of ranks are its segments."""
    if not isinstance(access, DeviceAccess):
        return task
    own = task.layout == "file-per-process"
    return replace(
        task,
        layout="shared-segmented" if own else task.layout,
        direct=task.direct or access.direct,
        create=False,
    )
