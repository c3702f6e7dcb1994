"""The phases of the workload `io500`: options, steps, and how each half of it does them.

The built-in half does them as op streams.  The other leaves them to IOR and mdtest, with the
arguments of the io500 program (its phase_ior_*.c and phase_mdtest_*.c), but for what only records
more.  What a process wrote until the stonewall is handed to the later phases by a small file, which
lies in the run's own directory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, model_validator

from fsmatrix.backends.player.ops import MAX_OP_BYTES
from fsmatrix.results.evidence.stored import Json, Stored
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.record import Case, Geometry, Phase
from fsmatrix.results.units import PositiveSize, format_size
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.ior import RANDOM_OFFSETS, RANKS_CSV
from fsmatrix.suite.engines.ior_mdtest import FEATURE, mdtest_of
from fsmatrix.suite.engines.mdtest import RANKS_CSV as MDTEST_RANKS_CSV
from fsmatrix.suite.workloads.ior import RANKS, Expected, combine
from fsmatrix.suite.workloads.mdtest import RANKS as MDTEST_RANKS
from fsmatrix.suite.workloads.mdtest import Mdtest, MdtestOptions
from fsmatrix.suite.workloads.streams import metadata, pattern
from fsmatrix.suite.workloads.streams.io500 import Data, Directories, Files, Survey, Wanted
from fsmatrix.suite.workloads.workload import Argv, Function, Output, Step, Stream, WorkloadOptions

OFFICIAL_STONEWALL = 300  # seconds; the rules know no other
HARD_TRANSFER = 47008  # bytes of an operation of ior-hard
HARD_FILE = 3901  # bytes of a file of mdtest-hard
RANDOM_TRANSFER = 4096  # bytes of an operation of ior-rnd4K-easy-read
RANDOM = "rnd4K-"  # in the names of that phase, which reads the files of ior-easy
STREAMS = "fsmatrix.suite.workloads.streams.io500"
MIB = 1 << 20
GIB = 1 << 30
Count = Annotated[int, Field(ge=1, le=10**12)]

UNBOUNDED = 1e6  # seconds of wear-out: as long as it takes, as in IOR; the run has a deadline
PLAYER_HOMES = ("mdtest-easy", "mdtest-hard")

RANKS_FEATURE = "ranks-csv"  # of IOR: it writes the times of each rank
RANDOM_READS = 10_000_000  # of each process at most: -s of IO500's phase_ior_rnd4k_easy_read.c
RANDOM_NODES = 2  # -Q there: neither the node that wrote a file nor the one that has read it
EASY_FILE = "{path}/ior-easy/ior_file_easy"
PROGRAM_HOMES = ("ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard")
NEEDED = {  # feature -> what is missing without it
    "option:stonewall-status-file": "ior cannot hand on how much it wrote",
    f"{FEATURE}option:x": "mdtest cannot hand on how much it made (-x)",
    f"{FEATURE}option:W": "mdtest has no stonewall (-W)",
    f"{FEATURE}option:Y": "mdtest cannot sync at the end (-Y)",
    f"{FEATURE}option:X": "mdtest cannot verify what it reads (-X)",
    f"{FEATURE}option:P": "mdtest cannot print rates and times (-P)",
    f"{FEATURE}{MDTEST_RANKS_CSV}": "mdtest does not tell how many files it met (4.0 does)",
}


@dataclass(frozen=True)
class PhaseOf:
    """One phase: IO500's own name, and the name here, which begins with the kind."""

    io500: str
    name: str
    writes: bool = False  # makes what later phases meet, until the stonewall
    looks: bool = False  # the declared cache state is made before it

    @property
    def kind(self) -> str:
        """write, read, create, stat, remove; find."""
        return self.name.partition("-")[0]

    @property
    def home(self) -> str:
        """ior-easy, ior-hard, mdtest-easy, mdtest-hard; empty for find."""
        return self.name.partition("-")[2].replace(RANDOM, "")

    @property
    def random(self) -> bool:
        """Reads at random offsets of what is there, and has no part in the score."""
        return RANDOM in self.name

    @property
    def stops(self) -> bool:
        """Whether the stonewall ends it."""
        return self.writes or self.random


# in IO500's order
PHASES = (
    PhaseOf("ior-easy-write", "write-ior-easy", writes=True),
    PhaseOf("mdtest-easy-write", "create-mdtest-easy", writes=True),
    PhaseOf("ior-hard-write", "write-ior-hard", writes=True),
    PhaseOf("mdtest-hard-write", "create-mdtest-hard", writes=True),
    PhaseOf("find", "find", looks=True),
    PhaseOf("ior-easy-read", "read-ior-easy", looks=True),
    PhaseOf("mdtest-easy-stat", "stat-mdtest-easy", looks=True),
    PhaseOf("ior-hard-read", "read-ior-hard", looks=True),
    PhaseOf("mdtest-hard-stat", "stat-mdtest-hard", looks=True),
    PhaseOf("mdtest-easy-delete", "remove-mdtest-easy"),
    PhaseOf("mdtest-hard-read", "read-mdtest-hard", looks=True),
    PhaseOf("mdtest-hard-delete", "remove-mdtest-hard"),
    PhaseOf("ior-rnd4K-easy-read", "read-ior-rnd4K-easy", looks=True),
)
BY_NAME = {phase.name: phase for phase in PHASES}


class Io500Options(WorkloadOptions):
    """The stonewall, and how much there is to write at most.  Sizes in bytes."""

    stonewall: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=OFFICIAL_STONEWALL,
        description="seconds after which the writing phases and the random reads stop; only 300 "
        "keeps the rules",
    )
    ior_easy_transfer_size: PositiveSize = Field(
        default=2 * MIB, description="bytes of one operation of ior-easy"
    )
    ior_easy_block_size: PositiveSize = Field(
        default=64 * GIB, description="bytes of each process in ior-easy, at most"
    )
    ior_hard_segments: Count = Field(
        default=1_000_000,
        description="operations of 47008 bytes of each process in ior-hard, at most",
    )
    mdtest_easy_n: Count = Field(
        default=1_000_000, description="empty files of each process in mdtest-easy, at most"
    )
    mdtest_hard_n: Count = Field(
        default=1_000_000, description="files of 3901 bytes of each process in mdtest-hard, at most"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Io500Options:
        if self.ior_easy_block_size % self.ior_easy_transfer_size:
            raise ValueError(
                f"ior_easy_block_size {format_size(self.ior_easy_block_size)} must be a multiple "
                f"of ior_easy_transfer_size {format_size(self.ior_easy_transfer_size)}"
            )
        if self.ior_easy_block_size < RANDOM_TRANSFER:
            raise ValueError(
                f"ior_easy_block_size {format_size(self.ior_easy_block_size)} is below "
                f"{format_size(RANDOM_TRANSFER)}, one random read of ior-rnd4K-easy-read"
            )
        if self.ior_easy_transfer_size > MAX_OP_BYTES:
            raise ValueError("ior_easy_transfer_size is above the largest operation, 1GiB")
        return self

    @property
    def bytes_per_process(self) -> int:
        """Bytes that one process writes at most, in all phases together."""
        hard = self.ior_hard_segments * HARD_TRANSFER + self.mdtest_hard_n * HARD_FILE
        return self.ior_easy_block_size + hard


def shift_of(geometry: Geometry) -> str:
    """Whose data the built-in player meets again: the next node's, or rank's, or its own."""
    if geometry.nodes > 1:
        return "node"
    return "rank" if geometry.processes > 1 else "none"


def function(name: str, where: str, params: Stored) -> Step:
    """A setup step by a function of suite/workloads/streams/io500.py."""
    return Step(name, "rank", "setup", Function(f"{STREAMS}:{where}", params.document()))


def find_step() -> Step:
    """The find phase, which is the same for both engines."""
    what = Function(f"{STREAMS}:find", Wanted("*01*", HARD_FILE).document())
    return Step("find", "rank", "timed", what, reads=True)


def player_steps(options: Io500Options, geometry: Geometry) -> list[Step]:
    """All steps of one run, in IO500's order."""
    half = _PlayerHalf(options, geometry)
    easy = f"mdtest-easy/{metadata.ROOT}"
    made = Directories((easy, f"mdtest-hard/{metadata.ROOT}"), own=(easy + "/r.{rank:08d}",))
    steps = [function("directories", "make_directories", made)]
    for phase in PHASES:
        if phase.name == "write-ior-hard":
            steps.append(function("timestamp", "stamp", Stored()))
        if phase.name == "find":
            steps += [half.survey(), find_step()]
        else:
            steps.append(half.step(phase))
    return steps


def of_items(phase: Phase, options: Io500Options, geometry: Geometry) -> Phase:
    """A phase of the session, which counts calls, with its files counted instead."""
    which = BY_NAME[phase.name]
    if which.home not in PLAYER_HOMES:
        return phase
    length = len(metadata.calls(_PlayerHalf(options, geometry).files(which)))
    facts = {"calls": int(phase.operations.sum()), "calls_per_item": length}
    return replace(phase, operations=phase.operations // length, facts={**phase.facts, **facts})


class _PlayerHalf:
    """Tasks and streams for one geometry."""

    def __init__(self, options: Io500Options, geometry: Geometry) -> None:
        self.options = options
        self.shift = shift_of(geometry)
        self.processes = geometry.processes

    def step(self, phase: PhaseOf) -> Step:
        """One timed phase but find."""
        if phase.home in PLAYER_HOMES:
            return Step(
                phase.name,
                "rank",
                "timed",
                self._items(phase),
                reads=phase.looks,
                files=(phase.home,),
            )
        task = self.data(phase)
        ranks = self.processes if task.layout == "file-per-process" else 1
        files = tuple(pattern.name_of(task.layout, rank) for rank in range(ranks))
        stream = self._data(phase, task)
        return Step(phase.name, "rank", "timed", stream, reads=phase.looks, files=files)

    def survey(self) -> Step:
        """Finds out what there is, for the phases that follow."""
        data = {name: self.data(BY_NAME[f"read-{name}"]) for name in ("ior-easy", "ior-hard")}
        files = {
            name: Files(self.files_met(BY_NAME[f"stat-{name}"]), name) for name in PLAYER_HOMES
        }
        return function("survey", "survey", Survey(data, files))

    def data(self, phase: PhaseOf) -> pattern.Task:
        """What an ior phase writes or reads; reads stop at what survey found.

        Random reads meet each block at most once: no block is found in a cache for having been
        drawn twice.  They are not verified, as little as IO500's are.
        """
        options = self.options
        easy = phase.home == "ior-easy"
        written = options.ior_easy_transfer_size if easy else HARD_TRANSFER
        chunk = RANDOM_TRANSFER if phase.random else written
        reads = phase.kind == "read"
        return pattern.Task(
            step=phase.name,
            operation=phase.kind,
            layout="file-per-process" if easy else "shared-strided",
            chunk=chunk,
            bytes=options.ior_easy_block_size if easy else options.ior_hard_segments * chunk,
            random="permutation" if phase.random else "",
            shift=self.shift if reads else "none",
            fsync="none" if reads else "end",
            create=not reads,
            verify=reads and not phase.random,
        )

    def files(self, phase: PhaseOf) -> metadata.Task:
        """What an mdtest phase does with each of its files."""
        options = self.options
        easy = phase.home == "mdtest-easy"
        moves = not easy and phase.kind in ("create", "read")
        return metadata.Task(
            phase=phase.kind,
            items=options.mdtest_easy_n if easy else options.mdtest_hard_n,
            unique=easy,
            bytes=HARD_FILE if moves else 0,
            shift="none" if phase.writes else self.shift,
        )

    def files_met(self, phase: PhaseOf) -> metadata.Task:
        """The files that a phase meets, with the bytes that they were made with."""
        size = HARD_FILE if phase.home == "mdtest-hard" else 0
        return replace(self.files(phase), bytes=size)

    def _data(self, phase: PhaseOf, task: pattern.Task) -> Stream:
        stream = Stream(
            f"{STREAMS}:{'read_data' if phase.looks else 'write_data'}",
            (Data(task, phase.home) if phase.looks else task).document(),
            slots=1,
            max_op_bytes=task.chunk,
            verify=task.verify,
        )
        return self._bounded(phase, stream)

    def _items(self, phase: PhaseOf) -> Stream:
        task = self.files(phase)
        what = "" if phase.writes else phase.home
        stream = Stream(
            f"{STREAMS}:items",
            Files(task, phase.home, what).document(),
            slots=metadata.slots(task),
            max_op_bytes=max(1, task.bytes),
            verify=phase.kind == "read",
            metadata=True,
        )
        return self._bounded(phase, stream)

    def _bounded(self, phase: PhaseOf, stream: Stream) -> Stream:
        if not phase.stops:
            return stream
        return replace(stream, seconds=float(self.options.stonewall), wear_out=UNBOUNDED)


def lacking(engine: Engine) -> str:
    """Why these builds of IOR and mdtest cannot do it (empty: they can, or were not asked)."""
    if not engine.version:
        return ""
    missing = [text for feature, text in NEEDED.items() if feature not in engine.features]
    return f"{engine.name} {engine.version}: {'; '.join(missing)}" if missing else ""


def program_steps(options: Io500Options, case: Case, engine: Engine) -> list[Step]:
    """All steps of one run, in IO500's order; random reads where this build of IOR has them."""
    half = _ProgramHalf(options, str(int(case.case_id[:7], 16)), engine)
    steps = [function("directories", "make_directories", Directories(PROGRAM_HOMES))]
    for phase in PHASES:
        if phase.name == "write-ior-hard":
            steps.append(function("timestamp", "stamp", Stored()))
        if phase.random and RANDOM_OFFSETS not in engine.features:
            continue
        if phase.name == "find":
            steps.append(find_step())
        else:
            what = half.argv(phase)
            steps.append(
                Step(phase.name, "mpi", "timed", what, reads=phase.looks, files=half.files(phase))
            )
    return steps


def parsed(case: Case, output: Output, options: Io500Options) -> Parsed:
    """What one program printed, its one phase under our name; ParseError if it is not there."""
    phase = BY_NAME[output.step]
    named = replace(output, step=phase.kind)
    run = (
        combine(_expected(case, phase), [named])
        if phase.home.startswith("ior")
        else Mdtest(_mdtest_options(phase)).parse(case, [named])
    )
    phases = [part for part in run.phases if part.name == phase.kind]
    if not phases and not run.failure:
        raise ParseError(phase.name, 0, f"its output has no phase {phase.kind}")
    facts: dict[str, Json] = {}
    if phase.stops:
        facts["stonewall_seconds"] = float(options.stonewall)
    if phase.writes:
        facts["synced"] = True  # -e, -Y
    return replace(
        run,
        phases=tuple(
            replace(part, name=phase.name, facts={**part.facts, **facts}) for part in phases
        ),
        failure=f"{phase.name}: {run.failure}" if run.failure else "",
        notes=tuple(Note(note.key, note.message, note.line, phase.name) for note in run.notes),
    )


def _expected(case: Case, phase: PhaseOf) -> Expected:
    """What IOR must show; its bytes are not known before."""
    geometry = case.geometry
    return Expected(geometry.nodes, geometry.processes, 1, (phase.kind,), bytes=None, even=True)


def _mdtest_options(phase: PhaseOf) -> MdtestOptions:
    """What the workload mdtest must know to judge the output."""
    return MdtestOptions.model_validate({"files_only": True, "phases": [phase.kind]})


class _ProgramHalf:
    """Arguments of IOR and mdtest for each phase of one case."""

    def __init__(self, options: Io500Options, signature: str, engine: Engine) -> None:
        self.options = options
        self.signature = signature  # of the data: the same when written and when verified
        self.engine = engine

    def argv(self, phase: PhaseOf) -> Argv:
        """The command of one phase but find."""
        if not phase.home.startswith("ior"):
            ranks = f"--saveRankPerformanceDetails={{scratch}}/{MDTEST_RANKS}"
            return Argv((*self._mdtest(phase), ranks), collect=(MDTEST_RANKS,))
        if f"option:{RANKS_FEATURE}" not in self.engine.features:
            return Argv(self._ior(phase))
        ranks = f"{RANKS_CSV}={{scratch}}/{RANKS}"
        return Argv((*self._ior(phase), "-O", ranks), collect=(RANKS,))

    @staticmethod
    def files(phase: PhaseOf) -> tuple[str, ...]:
        """Directories whose cache state matters."""
        return (phase.home,)

    def _ior(self, phase: PhaseOf) -> tuple[str, ...]:
        options = self.options
        status = ("-O", f"stoneWallingStatusFile={{path}}/{phase.home}.stonewall")
        wall = ("-D", str(options.stonewall), "-O", "stoneWallingWearOut=1")
        nodes = str(RANDOM_NODES if phase.random else 1)
        argv = [self.engine.program, "-a", "POSIX", "-C", "-Q", nodes, "-g", "-G", self.signature]
        argv += ["-k", "-e"]
        if phase.random:
            size = str(RANDOM_TRANSFER)
            argv += ["-o", EASY_FILE, "-F", "-t", size, "-b", size, "-s", str(RANDOM_READS)]
            return (*argv, "-r", "-z", "-z", *wall)
        argv += status
        if phase.home == "ior-easy":
            argv += ["-o", EASY_FILE, "-F"]
            argv += ["-t", str(options.ior_easy_transfer_size)]
            argv += ["-b", str(options.ior_easy_block_size)]
        else:
            argv += ["-o", "{path}/ior-hard/file", "-t", str(HARD_TRANSFER)]
            argv += ["-b", str(HARD_TRANSFER), "-s", str(options.ior_hard_segments)]
        if phase.writes:
            return (*argv, "-w", *wall)
        return (*argv, "-r", "-R")

    def _mdtest(self, phase: PhaseOf) -> tuple[str, ...]:
        options = self.options
        argv = [mdtest_of(self.engine), "-a", "POSIX", "-F", "-P", "-G", self.signature, "-N", "1"]
        argv += ["-d", f"{{path}}/{phase.home}", "-x", f"{{path}}/{phase.home}.stonewall"]
        if phase.home == "mdtest-easy":
            argv += ["-n", str(options.mdtest_easy_n), "-u", "-L"]
        else:
            size = str(HARD_FILE)
            argv += ["-n", str(options.mdtest_hard_n), "-t", "-w", size, "-e", size]
        wanted = {
            "create": ("-C", "-Y", "-W", str(options.stonewall)),
            "stat": ("-T",),
            "read": ("-E", "-X"),
            "remove": ("-r",),
        }
        return (*argv, *wanted[phase.kind])
