"""The half of the workload `io500` that IOR and mdtest do: the arguments of each phase.

They are those of the io500 program (its phase_ior_*.c and phase_mdtest_*.c), but for what
only records more.  What a process wrote until the stonewall is handed to the later phases
by a small file, which lies in the run's own directory.
"""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.results.evidence.stored import Json, Stored
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.engines.ior import RANDOM_OFFSETS, RANKS_CSV
from fsmatrix.suite.engines.ior_mdtest import FEATURE, mdtest_of
from fsmatrix.suite.engines.mdtest import RANKS_CSV as MDTEST_RANKS_CSV
from fsmatrix.suite.workloads.base import Argv, Output, Step
from fsmatrix.suite.workloads.io500.phases import (
    BY_NAME,
    HARD_FILE,
    HARD_TRANSFER,
    PHASES,
    RANDOM_TRANSFER,
    Io500Options,
    PhaseOf,
    find_step,
    function,
)
from fsmatrix.suite.workloads.ior import RANKS, Expected, combine
from fsmatrix.suite.workloads.mdtest import RANKS as MDTEST_RANKS
from fsmatrix.suite.workloads.mdtest import Mdtest, MdtestOptions
from fsmatrix.suite.workloads.streams.io500 import Directories

RANKS_FEATURE = "ranks-csv"  # of IOR: it writes the times of each rank
RANDOM_READS = 10_000_000  # of each process at most: -s of IO500's phase_ior_rnd4k_easy_read.c
RANDOM_NODES = 2  # -Q there: neither the node that wrote a file nor the one that has read it
EASY_FILE = "{path}/ior-easy/ior_file_easy"
HOMES = ("ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard")
NEEDED = {  # feature -> what is missing without it
    "option:stonewall-status-file": "ior cannot hand on how much it wrote",
    f"{FEATURE}option:x": "mdtest cannot hand on how much it made (-x)",
    f"{FEATURE}option:W": "mdtest has no stonewall (-W)",
    f"{FEATURE}option:Y": "mdtest cannot sync at the end (-Y)",
    f"{FEATURE}option:X": "mdtest cannot verify what it reads (-X)",
    f"{FEATURE}option:P": "mdtest cannot print rates and times (-P)",
    f"{FEATURE}{MDTEST_RANKS_CSV}": "mdtest does not tell how many files it met (4.0 does)",
}


def lacking(engine: Engine) -> str:
    """Why these builds of IOR and mdtest cannot do it (empty: they can, or were not asked)."""
    if not engine.version:
        return ""
    missing = [text for feature, text in NEEDED.items() if feature not in engine.features]
    return f"{engine.name} {engine.version}: {'; '.join(missing)}" if missing else ""


def program_steps(options: Io500Options, case: Case, engine: Engine) -> list[Step]:
    """All steps of one run, in IO500's order; random reads where this build of IOR has them."""
    half = _Half(options, str(int(case.case_id[:7], 16)), engine)
    steps = [function("directories", "make_directories", Directories(HOMES))]
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


class _Half:
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
