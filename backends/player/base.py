"""What both players have in common: their options, their methods, and what they do of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player.ops import MAX_OP_BYTES, OP, OUTCOME, Chunk
from fsmatrix.backends.player.result import (
    NOTHING,
    PlayerResult,
)

ENGINE_C = "player-c"
ENGINE_PYTHON = "player-python"
VERSION = "1"  # of what both players do; changes when a result could
MAX_THREADS = 1024
MAX_DEPTH = 1024  # of any driver
MAX_SLOTS = 1 << 31


@dataclass(frozen=True)
class PlayerOptions:
    """How a player plays, whatever the driver.  ValueError for values out of range."""

    slots: int  # files are 0..slots-1
    max_op_bytes: int
    threads: int = 1
    depth: int = 1  # reads and writes in flight per thread, as many as the driver can have
    seed: int = 0  # of the content
    origin_ns: int = 0  # CLOCK_MONOTONIC of the phase's start; 0: when the first play() begins
    fill_ratio: float = 0.0  # share of zeros in the content, 0 to 1
    count_metadata: bool = False
    stop_on_error: bool = True
    # an operation's time is a pause, ns after the end of its thread's previous operation (of the
    # first: after the origin), and latencies count from the call; needs a depth of 1
    pauses: bool = False
    read_ahead: bool = True  # posix: else the kernel reads nothing ahead (POSIX_FADV_RANDOM)

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("slots", self.slots, 1, MAX_SLOTS),
            ("threads", self.threads, 1, MAX_THREADS),
            ("depth", self.depth, 1, MAX_DEPTH),
            ("max_op_bytes", self.max_op_bytes, 0, MAX_OP_BYTES),
            ("origin_ns", self.origin_ns, 0, NOTHING),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must lie between {low} and {high}, not {value}")
        if self.pauses and self.depth > 1:
            raise ValueError(f"with pauses the depth must be 1, not {self.depth}")


class Player(Protocol):
    """Executes chunks.  Used by one thread at a time."""

    def play(self, chunk: Chunk) -> int:
        """Execute a chunk; the number of operations executed, failed ones among them.

        With a depth above 1 those count that have begun; up to `depth` of each thread may be
        in flight afterwards, and only a later play() or drain() tells what came of them.  With
        outcomes none is: they are all there when it returns.

        Fewer than the chunk has if the deadline passed or an error stopped it.  After an
        error that stopped it, a player executes nothing more.  ValueError, before anything
        is executed, if the chunk is not valid.  Without the GIL in the C player.
        """

    def left(self, chunk: Chunk) -> Chunk:
        """What the last play() did not execute of `chunk`, in order, without names.

        With several threads this need not be the chunk's end.  What is in flight counts as
        executed.  A queue stays a queue; outcomes are not asked for.
        """

    def drain(self) -> None:
        """Wait for everything in flight; with a depth of 1 nothing is.

        What is in flight is in no result yet.
        """

    def share(self) -> str:
        """Lines of a root by which other processes join this connection; empty: none do.

        It must stay open until those that joined are closed.  OSError with the reason if the
        driver's library fails.
        """

    def features(self) -> str:
        """What the driver uses of its kernel or library, in words; empty: nothing to choose."""

    def begin(self, origin_ns: int) -> None:
        """Set the origin of intended times and of the intervals.  Before the first play."""

    def stop_at(self, monotonic_ns: int) -> None:
        """No operation begins after this moment; 0: none.  Counts from the next play()."""

    def completed(self) -> int:
        """A number that changes with each operation that completes; also while another plays."""

    def result(self) -> PlayerResult:
        """Everything since the player was opened."""

    def close(self) -> None:
        """Close every open handle and end the threads.  May be called twice."""


def checked_ops(chunk: Chunk) -> npt.NDArray[Any]:
    """The chunk's operations, contiguous and aligned.  ValueError if they are none.

    Its outcomes and its batch are checked too.
    """
    ops, outcomes = chunk.ops, chunk.outcomes
    if not isinstance(ops, np.ndarray) or ops.dtype != OP or ops.ndim != 1:
        raise ValueError("the operations of a chunk must be a one-dimensional array of dtype OP")
    if outcomes is not None and not (
        isinstance(outcomes, np.ndarray)
        and outcomes.dtype == OUTCOME
        and outcomes.shape == ops.shape
        and all(outcomes.flags[name] for name in ("C_CONTIGUOUS", "ALIGNED", "WRITEABLE"))
    ):
        raise ValueError(
            f"the outcomes of a chunk of {len(ops)} operations must be a contiguous, writeable "
            f"array of as many of dtype OUTCOME"
        )
    if not 0 <= chunk.batch <= MAX_SLOTS:
        raise ValueError(f"batch must lie between 0 and {MAX_SLOTS}, not {chunk.batch}")
    return np.require(ops, requirements=["C", "A"])


INTERFACE = 5  # of the extension, as native/module.c has it
