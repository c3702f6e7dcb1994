"""The built-in half of the workload `io500`: its phases as op streams."""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.record import Geometry, Phase
from fsmatrix.suite.workloads.base import Step, Stream
from fsmatrix.suite.workloads.io500.phases import (
    BY_NAME,
    HARD_FILE,
    HARD_TRANSFER,
    PHASES,
    RANDOM_TRANSFER,
    STREAMS,
    Io500Options,
    PhaseOf,
    find_step,
    function,
    shift_of,
)
from fsmatrix.suite.workloads.streams import metadata, pattern
from fsmatrix.suite.workloads.streams.io500 import Data, Directories, Files, Survey

UNBOUNDED = 1e6  # seconds of wear-out: as long as it takes, as in IOR; the run has a deadline
HOMES = ("mdtest-easy", "mdtest-hard")


def player_steps(options: Io500Options, geometry: Geometry) -> list[Step]:
    """All steps of one run, in IO500's order."""
    half = _Half(options, geometry)
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
    if which.home not in HOMES:
        return phase
    length = len(metadata.calls(_Half(options, geometry).files(which)))
    facts = {"calls": int(phase.operations.sum()), "calls_per_item": length}
    return replace(phase, operations=phase.operations // length, facts={**phase.facts, **facts})


class _Half:
    """Tasks and streams for one geometry."""

    def __init__(self, options: Io500Options, geometry: Geometry) -> None:
        self.options = options
        self.shift = shift_of(geometry)
        self.processes = geometry.processes

    def step(self, phase: PhaseOf) -> Step:
        """One timed phase but find."""
        if phase.home in HOMES:
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
        files = {name: Files(self.files_met(BY_NAME[f"stat-{name}"]), name) for name in HOMES}
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
