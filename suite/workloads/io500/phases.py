"""What both halves of the workload `io500` share: options, phases, names of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from fsmatrix.backends.player.ops import MAX_OP_BYTES
from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.record import Geometry
from fsmatrix.results.units import PositiveSize, format_size
from fsmatrix.suite.workloads.base import Function, Step, WorkloadOptions
from fsmatrix.suite.workloads.streams.io500 import Wanted

OFFICIAL_STONEWALL = 300  # seconds; the rules know no other
HARD_TRANSFER = 47008  # bytes of an operation of ior-hard
HARD_FILE = 3901  # bytes of a file of mdtest-hard
RANDOM_TRANSFER = 4096  # bytes of an operation of ior-rnd4K-easy-read
RANDOM = "rnd4K-"  # in the names of that phase, which reads the files of ior-easy
STREAMS = "fsmatrix.suite.workloads.streams.io500"
MIB = 1 << 20
GIB = 1 << 30
Count = Annotated[int, Field(ge=1, le=10**12)]


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
