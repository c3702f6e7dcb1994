"""What a conductor sends to its session, and what comes back: the messages of the wire (wire.py).

Ranks import it: standard library and light modules only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fsmatrix.backends.player.ops import Io
from fsmatrix.backends.player.player import Implementation
from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored
from fsmatrix.suite.session.programs import Finished

if TYPE_CHECKING:
    from fsmatrix.backends.access import Access


def in_rows(ranks: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Ranks as rows [first, count, step]: one for each node at most, as MPI lays ranks out.

    A command goes to every rank: its list of thousands of ranks must not.
    """
    rows: list[list[int]] = []
    for rank in ranks:
        if rows and rank == rows[-1][0] + rows[-1][1] * rows[-1][2]:
            rows[-1][1] += 1
        elif rows and rows[-1][1] == 1 and rank > rows[-1][0]:
            rows[-1][1:] = [2, rank - rows[-1][0]]
        else:
            rows.append([rank, 1, 1])
    return tuple(map(tuple, rows))


# -- what is done in a step --------------------------------------------------------------------
@dataclass(frozen=True)
class Argv(Stored):
    """A program.  In its arguments and files, these stand for what is known only later:

    `{path}`: the run's own directory on the target; `{run}`: the run's name, for the names that it
    uses where it has no directory (DFS, RADOS); `{node}`: index of the client node, from 0;
    `{rank}`: of the process, where each has a program (where="rank"); `{seed}`: the run's own seed,
    drawn from the campaign's; `{journal}`: folder of the store's journals; `{beside}`: a file's
    name beside them, for what a program tells later steps of the run; `{scratch}`: an empty
    directory on the node's own disk, removed afterwards; it holds `files` when the program starts,
    and what matches `collect` is a part of its output.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # name -> text, made in {scratch}
    collect: tuple[str, ...] = ()  # glob patterns in {scratch}
    binding: str = "none"  # where="mpi": how ranks are bound (none, core, socket, numa)


@dataclass(frozen=True)
class Stream(Stored):
    """An op stream made in every rank: `generator` is "module:function"(params, place).

    The function is a Python generator of chunks.  Under fixed time the session tells it that
    the time is over (`stop = yield chunk` gives True): it then ends its data operations and
    yields what closes the files (fsync, close).  `slots` and `max_op_bytes` bound the slot
    numbers and the size of one read or write in its chunks.  What it returns (ops.Tallies) is
    put together over the ranks and stored in the phase's facts as "tallies" (session/stream.py).
    """

    generator: str
    params: JsonObject  # the generator's own
    slots: int = 1 << 16
    max_op_bytes: int = 1 << 20
    seconds: float = 0.0  # fixed time (stonewall); 0 = fixed work
    wear_out: float = 0.0  # fixed time: bound of the wear-out, seconds; 0 = none
    # open loop: when what is due and has not begun is counted, seconds after the start; 0 = closed.
    # What is late then is played too; with `seconds`, which is later, until that time
    arrivals_end: float = 0.0
    verify: bool = False
    fill_ratio: float = 0.0  # compressible share of the data written
    generation: int = 0  # which overwrite generation is written or expected
    depth: int = 1  # reads and writes in flight per thread
    io: Io = "auto"  # other than auto: on paths, by that driver
    metadata: bool = False  # count every operation, not only reads and writes
    stop_on_error: bool = True  # else failed operations are counted, and do not fail the run
    pauses: bool = False  # times of operations are pauses (PlayerOptions.pauses)
    read_ahead: bool = True  # paths: else the kernel reads nothing ahead in the files
    shared_queue: bool = False  # the generator gets Place.turn


@dataclass(frozen=True)
class Function(Stored):
    """A Python function "module:function"(params, place, root) -> JsonObject."""

    function: str
    params: JsonObject  # the function's own


@dataclass(frozen=True, kw_only=True)
class Playing(Stored):
    """A stream, and how this run plays it."""

    stream: Stream
    seed: int  # of the contents
    driver: str  # of the backend
    implementation: Implementation
    # of the backend, for programs: if there is any, players work in processes that have it
    environment: Mapping[str, str] = field(default_factory=dict)
    ceiling: float = 0.0  # seconds, if only the clients' ceiling is wanted: the driver is null


# -- commands ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Command(Stored):
    """What some ranks of a session are to do together."""

    to: tuple[tuple[int, ...], ...]  # of in_rows

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """World ranks that it is for, in the order of the step's own ranks."""
        return tuple(
            first + index * step for first, count, step in self.to for index in range(count)
        )


@dataclass(frozen=True, kw_only=True)
class Quit(Command):
    """End in good order; the answer is Answers()."""


@dataclass(frozen=True, kw_only=True)
class Call(Command):
    """A backend's node-side method, by leaders; each gives an `Answer`."""

    function: str
    access: JsonObject  # of Access.to_json: only a leader has the backend that reads it
    journal: str  # directory of journals
    arguments: JsonObject = field(default_factory=dict)  # of the method, by name

    @classmethod
    def of(
        cls, to: Sequence[int], function: str, access: Access, journal: Path, **arguments: Json
    ) -> Call:
        """To these leaders."""
        return cls(
            to=in_rows(to),
            function=function,
            access=access.to_json(),
            journal=str(journal),
            arguments=arguments,
        )


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Begin or end sampling the leaders' kernels; the answer is `Samples`, empty at the begin."""

    begin: bool
    access: JsonObject


@dataclass(frozen=True, kw_only=True)
class StepCommand(Command):
    """One step of a run: a stream, a function or a program.  The answer is a `StepAnswer`."""

    playing: Playing | None = None
    function: Function | None = None
    program: Argv | None = None
    roots: tuple[str, ...]  # rank i works in number i modulo their number
    access: JsonObject
    nodes: int
    threads: int
    seed: int
    affinity: str
    sample: bool
    oversubscribed: bool  # more threads than CPUs
    timeout: float  # of a program, seconds
    progress: str = ""  # file in which the ranks that see it tell theirs (progress.py)


COMMANDS = (Quit, Call, Watch, StepCommand)


# -- answers -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Joined(Stored):
    """A rank's word to the leader of its node."""

    rank: int


@dataclass(frozen=True, kw_only=True)
class Hello(Stored):
    """A session's first word: who is where."""

    ranks: tuple[Rank, ...] = ()
    mpi: str = ""  # version of MPI's library
    kernels: tuple[int, ...] = ()  # one leader for each kernel and mount namespace


@dataclass(frozen=True, kw_only=True)
class Answer(Stored):
    """What a backend's method gave on one kernel, or why it failed."""

    host: str
    value: Json = None  # as the method gives it
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answers(Stored):
    """Of all leaders that were asked."""

    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KernelUse(Stored):
    """Counters just before and just after, and what happened to the CPUs in between."""

    before: Mapping[str, float]  # the backend's counters and those of the CPUs
    after: Mapping[str, float]
    cpu: Mapping[str, float]  # shares of all CPUs: busy, idle, iowait, steal
    cpu_seconds: float  # of all CPUs together
    user_seconds: float  # of all processes
    storage_user_seconds: float  # of processes that work for the storage


@dataclass(frozen=True, kw_only=True)
class SampledKernel(Stored):
    """One kernel during one timed step."""

    host: str
    use: KernelUse
    samples: Mapping[str, tuple[float, ...]]  # "time" (Unix) and every counter, all as long
    user: float | None = None  # seconds of the run's own ranks; None: a program that is not theirs


@dataclass(frozen=True, kw_only=True)
class Samples(Stored):
    """Of all kernels that were sampled."""

    kernels: tuple[SampledKernel, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OperationError(Stored):
    """The first operation of a rank that failed (PlayerResult.first_error)."""

    rank: int  # of the step
    kind: str  # of operation
    file: str
    offset: int
    errno: str
    number: int  # of errno
    op: int  # its index since the rank began
    thread: int
    wrong_offset: int | None = None  # of the first byte that was not as written, in the file
    expected: int | None = None  # that byte
    found: int | None = None


TIMELINE = "timeline."  # begins the names of a stream's arrays of latencies over time


@dataclass(frozen=True, kw_only=True)
class Merged(Stored):
    """A stream of all ranks together, beside its arrays.  Times are seconds."""

    interval: float
    errors_by_errno: Mapping[str, int]
    failures: tuple[OperationError, ...]  # that fail the run; some, if there are many
    clock_uncertainty: float
    began: float = 0.0  # Unix time of the agreed start
    facts: JsonObject = field(default_factory=dict)  # of the phase
    printed: tuple[str, ...] = ()  # by processes in which players worked, one for each rank


@dataclass(frozen=True, kw_only=True)
class RankOutput(Stored):
    """What a function or a program gave in one rank."""

    host: str
    rank: int
    done: Finished  # of a function: when
    value: Json = None  # of a function
    error: str | None = None  # that a function raised
    clock_correction: float = 0.0  # seconds from this host's Unix time to the common clock's
    clock_uncertainty: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RankUse(Stored):
    """What a step took in one rank."""

    kernel: str  # of Rank
    user: float  # seconds of user time, with the programs that it waited for
    cpus: tuple[int, ...]  # that it might use
    sampled: SampledKernel | None = None


@dataclass(frozen=True, kw_only=True)
class StepAnswer(Stored):
    """What a step gave: a stream as a whole, functions and programs by rank."""

    cpus: tuple[tuple[int, ...], ...] = ()  # that each of its ranks might use
    kernels: tuple[SampledKernel, ...] = ()  # if they were sampled
    merged: Merged | None = None
    ceiling: float | None = None  # operations per second
    outputs: tuple[RankOutput, ...] = ()
