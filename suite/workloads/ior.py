"""The workload `ior`: the external program IOR, 3.2 to 4.1, on every access that it speaks.

With a cold cache on paths and CephFS each iteration is an invocation that writes and one that
reads, with the cache state made in between, so that no iteration reads what an earlier one
left in memory.  Otherwise one invocation does all (`-i`).  Iterations are parts of a run,
never repetitions: the phases `write` and `read` hold their sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends.access import Access
from fsmatrix.backends.allowed import NUMBER, SIGNED, SIZE, Form, Words, plain
from fsmatrix.results import iterations
from fsmatrix.results.formats.ior import failure_of, parse, parse_ranks
from fsmatrix.results.formats.ior.ior_json import join, with_ranks
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.record import Case, Phase
from fsmatrix.results.units import PositiveSize, format_size
from fsmatrix.suite.engines.engine import Engine
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

# Options of the workload `ior`.


MIB = 1 << 20
DIRECT_UNIT = 512  # smallest logical block of a device
INTEGER = 8  # bytes: IOR's sizes are multiples of it
OWN = frozenset("abBcCDeFGfiklNoORrstWwYzZ")  # short options that have a field, or are the suite's
# long names that have a field, or make numbers that are none
REFUSED = frozenset({"--collective", "--dataPacketType", "--dryRun", "--posix.odirect"})
# What is left: how it is done, never where, nor which other files (-f, -U, -O, --dfs.pool)
WORDS = Words(
    "ior",
    {
        **plain(None, "-E -g -H -K -m -p -P -q -S -u -v -vv -vvv -V -x -y"),
        **plain(NUMBER, "-A -d -j -Q -T --random-offset-seed"),
        **plain(SIZE, "-J --randomPrefill"),
        "-M": Form("memory: 1g, 10%", r"\d{1,12}[kmgKMG]?|\d{1,2}%"),
        "-X": SIGNED,
        **plain(None, "--warningAsErrors --posix.rangelocks --posix.lustre.ignorelocks"),
        **plain(NUMBER, "--posix.lustre.stripecount --posix.lustre.startost"),
        **plain(SIZE, "--posix.lustre.stripesize --posix.beegfs.ChunkSize"),
        **plain(NUMBER, "--posix.beegfs.NumTargets"),
        **plain(None, "--posix.gpfs.hintaccess --posix.gpfs.releasetoken"),
        **plain(None, "--posix.gpfs.finegrainwritesharing --posix.gpfs.finegrainreadsharing"),
        **plain(None, "--posix.gpfs.createsharing --mpiio.showHints --mpiio.preallocate"),
        **plain(None, "--mpiio.useStridedDatatype --mpiio.useFileView"),
    },
)
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class IorOptions(AioriOptions):
    """IOR's options by their own names.  Sizes in bytes, times in seconds."""

    api: Literal["auto", "POSIX", "MPIIO", "DFS", "RADOS", "CEPHFS"] = Field(
        default="auto", description="-a; auto: what belongs to the access (paths: POSIX)"
    )
    transfer_size: PositiveSize = Field(default=MIB, description="-t, bytes of one I/O")
    block_size: PositiveSize = Field(
        default=64 * MIB, description="-b, contiguous bytes of one process"
    )
    segments: Count = Field(default=1, description="-s, how often each process has a block")
    operations: Literal["write", "read", "both"] = Field(
        default="both", description="-w and -r; read: the data is written in a setup step"
    )
    file_per_process: bool = Field(default=False, description="-F; otherwise one shared file")
    reorder_tasks: bool = Field(default=False, description="-C, reads what the next node wrote")
    reorder_random: bool = Field(default=False, description="-Z, reads what a random process wrote")
    random_offset: bool = Field(default=False, description="-z, transfers in random order")
    fsync: bool = Field(
        default=False, description="-e, fsync at the end of writing, inside the window"
    )
    fsync_per_write: bool = Field(default=False, description="-Y, fsync after each write")
    stonewall_wear_out: bool = Field(
        default=False, description="-O stoneWallingWearOut=1, all then do as much as the fastest"
    )
    iterations: Count = Field(default=1, description="-i, parts of one run, not repetitions")
    collective: bool = Field(default=False, description="-c, collective I/O of MPIIO")
    check_write: bool = Field(
        default=False, description="-W, writes are read back, outside the window"
    )
    check_read: bool = Field(default=False, description="-R, reads are verified, inside the window")
    data_packet: Literal["", "offset", "incompressible", "timestamp", "random"] = Field(
        default="", description="-l, content of what is written; empty: IOR's default"
    )

    @field_validator("extra_arguments")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            name = word.partition("=")[0]
            short = name.startswith("-") and not name.startswith("--")
            # IOR reads -vo as -v -o
            if name in REFUSED or (short and set(name[1:]) & OWN):
                raise ValueError(
                    f"extra_arguments: {word} is set by the suite or has an option of its own"
                )
        if reason := WORDS.refusal(value):
            raise ValueError(f"extra_arguments: {reason}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> IorOptions:
        for problem in (self._sizes, self._order, self._stonewall, self._checks, self._api):
            if text := problem():
                raise ValueError(text)
        return self

    @property
    def reads(self) -> bool:
        """Whether reading is timed."""
        return self.operations != "write"

    @property
    def writes(self) -> bool:
        """Whether writing is timed."""
        return self.operations != "read"

    def misaligned(self) -> str:
        """Why O_DIRECT cannot do these sizes (empty: it can)."""
        if self.transfer_size % DIRECT_UNIT:
            return (
                f"O_DIRECT needs multiples of {DIRECT_UNIT} bytes (4096 is safe everywhere): "
                f"transfer_size is {self.transfer_size}"
            )
        return ""

    def _sizes(self) -> str:
        if self.transfer_size % INTEGER or self.block_size % INTEGER:
            return f"transfer_size and block_size must be multiples of {INTEGER} bytes"
        if self.block_size % self.transfer_size:
            return (
                f"block_size {format_size(self.block_size)} is no multiple of transfer_size "
                f"{format_size(self.transfer_size)}"
            )
        return self.misaligned() if self.direct else ""

    def _order(self) -> str:
        if self.reorder_tasks and self.reorder_random:
            return "reorder_tasks (-C) and reorder_random (-Z) exclude each other"
        if not self.random_offset:
            return ""
        if self.block_size == self.transfer_size:
            return "random_offset (-z) works within a block: block_size must exceed transfer_size"
        if not self.file_per_process and (self.reorder_tasks or self.reorder_random):
            return "random_offset in a shared file cannot go with reorder_tasks or reorder_random"
        return ""

    def _stonewall(self) -> str:
        if self.stonewall_wear_out and not self.stonewall:
            return "stonewall_wear_out needs stonewall"
        if self.stonewall and self.random_offset and self.operations == "both":
            return (
                "random_offset with stonewall leaves holes, and reading draws another order: "
                "use operations: write or read"
            )
        return ""

    def _checks(self) -> str:
        if self.check_write and not self.writes:
            return "check_write (-W) needs writing"
        if self.check_read and not self.reads:
            return "check_read (-R) needs reading"
        if (self.check_read or self.check_write) and self.random_offset:
            return "random_offset cannot be checked (check_read, check_write)"
        return ""

    def _api(self) -> str:
        if self.collective and self.api != "MPIIO":
            return "collective (-c) needs api: MPIIO"
        return unlike_api(self, self.api)


# Command lines of IOR: which option a version and a build has for what is wanted.


# type of access -> APIs that work on it, the usual one first
APIS: dict[str, tuple[str, ...]] = {
    "path": ("POSIX", "MPIIO"),
    "dfs": ("DFS",),
    "rados": ("RADOS",),
    "cephfs": ("CEPHFS",),
}
SIGNATURE = "573"  # -G: separate invocations write and expect the same content
FILE = "testfile"
RANKS = "ranks.csv"


@dataclass(frozen=True)
class Invocation:
    """Makes the command lines of one run."""

    options: IorOptions
    case: Case
    access: Access
    engine: Engine
    api: str  # one of APIS

    def argv(self, what: str, iterations: int, keep: bool = False, setup: bool = False) -> Argv:
        """One invocation: `what` is "w", "r" or "wr"; `keep` leaves the files.

        A setup writes all data whatever the stonewall, and syncs it.
        """
        options = self.options
        words = [self.engine.program, "-a", self.api, *self._geometry(), *self._order(what)]
        words += [f"-{letter}" for letter in what]
        words += ["-i", str(iterations)]
        if keep:
            words.append("-k")
        words += self._durability(what, setup)
        if not setup:
            words += self._stonewall(what, keep)
            words += self._checks(what)
        elif options.check_read:
            words += ["-G", SIGNATURE]
        words += self._content()
        words += self._backend(setup)
        words += ["-o", place(self.access, FILE)]
        collect: tuple[str, ...] = ()
        if not setup and "option:ranks-csv" in self.engine.features:
            words += ["-O", f"saveRankPerformanceDetailsCSV={{scratch}}/{RANKS}"]
            collect = (RANKS,)
        return Argv((*words, *options.extra_arguments), collect=collect, binding=options.bind_to)

    def _geometry(self) -> list[str]:
        options = self.options
        sizes = ["-t", str(options.transfer_size), "-b", str(options.block_size)]
        return [*sizes, "-s", str(options.segments)]

    def _order(self, what: str) -> list[str]:
        options = self.options
        flags = {
            "-F": options.file_per_process,
            "-C": options.reorder_tasks and "r" in what,
            "-Z": options.reorder_random and "r" in what,
            "-z": options.random_offset,
            "-c": options.collective,
        }
        return [flag for flag, on in flags.items() if on]

    def _durability(self, what: str, setup: bool) -> list[str]:
        options = self.options
        words = ["-e"] if (options.fsync or setup) and "w" in what else []
        if options.fsync_per_write and "w" in what and not setup:
            words.append("-Y")
        return words

    def _stonewall(self, what: str, keep: bool) -> list[str]:
        options = self.options
        if not options.stonewall:
            return []
        words = ["-D", str(int(options.stonewall))]
        if options.stonewall_wear_out:
            words += ["-O", "stoneWallingWearOut=1"]
            # reading apart from writing must know how far writing got
            if keep and options.operations == "both" and what in ("w", "r"):
                words += ["-O", f"stoneWallingStatusFile={status_file(self.access)}"]
        return words

    def _checks(self, what: str) -> list[str]:
        options = self.options
        words = ["-W"] if options.check_write and "w" in what else []
        if options.check_read and "r" in what:
            words.append("-R")
        if options.check_write or options.check_read:
            words += ["-G", SIGNATURE]
        return words

    def _content(self) -> list[str]:
        return ["-l", self.options.data_packet] if self.options.data_packet else []

    def _backend(self, setup: bool) -> list[str]:
        """Options of the API: where the data is, and O_DIRECT."""
        direct = self.options.direct or self.case.cache == "bypass"
        if self.api == "POSIX" and direct and not setup:
            return ["-B"] if "option:B" in self.engine.features else ["--posix.odirect"]
        return target_arguments(self.access, self.options, self.engine)


# One run from the outputs of all invocations of IOR, checked against what was asked for.


STEPS = ("write", "read", "write+read")  # timed ones
EXPECTED_WARNING = "exists already and will be"  # a later iteration finds the earlier one's file
MOST_NOTES = 50
OTHER_MPI = (
    "the launcher belongs to another MPI than the one that ior was built with, so that each "
    "process was a world of its own: use that MPI's mpirun or srun --mpi=pmix, or load an ior "
    "built with this one"
)


@dataclass(frozen=True)
class Expected:
    """What a run must show."""

    nodes: int
    processes: int
    iterations: int
    phases: tuple[str, ...]  # write, read
    bytes: int | None  # of one access of one iteration; None: not fixed
    even: bool  # every rank does the same share


def combine(expected: Expected, outputs: Sequence[Output]) -> Parsed:
    """The run; ParseError if an output cannot be understood."""
    timed = [output for output in outputs if output.step in STEPS]
    if not timed:
        reason = failure_of("\n".join(o.stdout + "\n" + o.stderr for o in outputs))
        raise ParseError("ior", 0, reason or "no timed invocation of ior gave any output")
    runs = [_invocation(expected, output, index) for index, output in enumerate(timed)]
    phases: dict[str, list[Phase]] = {}
    for run in runs:
        for phase in run.phases:
            phases.setdefault(phase.name, []).append(phase)
    joined = tuple(join(phases[name]) for name in ("write", "read") if name in phases)
    failures = [run.failure for run in runs if run.failure]
    failures += _missing(expected, joined, bool(failures))
    first = runs[0]
    return replace(
        first,
        phases=joined,
        options={**first.options, "iterations": expected.iterations},
        failure="; ".join(dict.fromkeys(failures)),
        notes=_notes(runs),
    )


def _invocation(expected: Expected, output: Output, index: int) -> Parsed:
    """What one invocation gave; its failure if its world was another one."""
    source = f"ior ({output.step}, invocation {index})"
    try:
        runs = parse(output.stdout, source)
    except ParseError as error:
        if reason := failure_of(f"{output.stdout}\n{output.stderr}"):
            raise ParseError(source, error.line, reason) from error
        raise
    run = runs[0]
    failure = _world(expected, runs) or run.failure
    run = replace(run, failure=f"{output.step}: {failure}" if failure else "")
    return run if failure else _ranks(expected, output, run, source)


def _world(expected: Expected, runs: Sequence[Parsed]) -> str:
    """Whether IOR ran in the world that was asked for (empty: it did)."""
    alone = [run for run in runs if run.processes == 1]
    if expected.processes > 1 and (len(runs) > 1 or runs[0].facts.get("banners")) and alone:
        return f"ior ran as worlds of 1 task instead of one of {expected.processes}: {OTHER_MPI}"
    if len(runs) > 1:
        return f"one run of ior gave {len(runs)} outputs"
    run = runs[0]
    if run.processes is not None and run.processes != expected.processes:
        cure = f": {OTHER_MPI}" if run.processes == 1 else ""
        return f"ior saw {run.processes} tasks, {expected.processes} were started{cure}"
    if run.nodes is not None and run.nodes != expected.nodes:
        return f"ior saw {run.nodes} client nodes, {expected.nodes} were asked for"
    return ""


def _ranks(expected: Expected, output: Output, run: Parsed, source: str) -> Parsed:
    """The run with the times of its ranks, where the version writes them."""
    text = output.files.get(RANKS)
    if text is None:
        return run
    try:
        times = parse_ranks(text, f"{source}: {RANKS}")
    except ParseError as error:
        note = Note("recovered", f"the file of ranks is not used: {error}")
        return replace(run, notes=(*run.notes, note))
    phases: list[Phase] = []
    notes = list(run.notes)
    for phase in run.phases:
        own = [part for part in times if part.access == phase.name]
        # arrays [rank] only where no other invocation is added to them
        even = expected.even and expected.iterations == 1
        with_values, odd = with_ranks(phase, own, expected.processes, even)
        phases.append(with_values)
        notes += odd
    return replace(run, phases=tuple(phases), notes=tuple(notes))


def _missing(expected: Expected, phases: Sequence[Phase], failed: bool) -> list[str]:
    """What is not there, or not as much as was asked for."""
    problems = []
    by_name = {phase.name: phase for phase in phases}
    for name in expected.phases:
        parts = iterations.rows_of(by_name[name].iterations) if name in by_name else []
        if len(parts) != expected.iterations and not failed:
            problems.append(f"{name} has {len(parts)} of {expected.iterations} iterations")
        wrong = [part for part in parts if expected.bytes not in (None, part["bytes"])]
        if wrong:
            problems.append(
                f"{name}, iteration {wrong[0]['number']}: moved {wrong[0]['bytes']} of "
                f"{expected.bytes} bytes"
            )
    return problems


def _notes(runs: Iterable[Parsed]) -> tuple[Note, ...]:
    """Notes of all invocations, each once."""
    kept: dict[tuple[str, str, str], Note] = {}
    for index, run in enumerate(runs):
        for note in run.notes:
            if index and EXPECTED_WARNING in note.message:
                continue
            kept.setdefault((note.key, note.message, note.phase), note)
    return tuple(kept.values())[:MOST_NOTES]


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
