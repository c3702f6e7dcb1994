"""One clock for all ranks: offsets of the kernels' monotonic clocks to rank 0's.

Ranks of one kernel (boot id) share CLOCK_MONOTONIC: their offset is 0 and certain.  Between
kernels the offset comes from ping-pongs; the one with the smallest round trip counts (as in
NTP), and half that round trip bounds its error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDS = 40
TAG = 7
FAN = 8


@dataclass(frozen=True)
class Offset:
    """Local monotonic clock minus rank 0's, and the bound of its error, nanoseconds."""

    nanoseconds: int = 0
    uncertainty: int = 0


def measure(comm: Any, first_of_kernel: dict[str, int], boot_id: str) -> Offset:
    """Measure along a tree of kernels from rank 0's; collective over `comm` (an MpiComm).

    `first_of_kernel`: boot id -> the rank that speaks for it, the same at every rank.  Up to
    FAN kernels are compared with rank 0's directly; beyond that errors of hops add up, and
    rank 0 answers FAN - 1 kernels at most for each factor of FAN.
    """
    own = first_of_kernel[boot_id]
    if len(first_of_kernel) == 1:
        return Offset()
    speakers = sorted(first_of_kernel.values())  # rank 0 speaks for its own kernel
    result = Offset()
    for first, other in pairs(len(speakers)):
        if comm.rank == speakers[first]:
            _answer(comm.handle, speakers[other], result)
        elif comm.rank == speakers[other]:
            result = _ask(comm.handle, speakers[first])
    table = comm.bcast(_collect(comm, first_of_kernel, result))
    nanoseconds, uncertainty = table[str(own)]
    return Offset(nanoseconds, uncertainty)


def pairs(count: int) -> list[tuple[int, int]]:
    """Who knows the time and who asks, in an order in which every first one knows it already.

    A tree over 0 .. count-1 with log(count) / log(FAN) hops: who asks is its asker's index
    without its first digit in base FAN.
    """
    chosen = []
    reached = 1
    while reached < count:
        for other in range(reached, min(FAN * reached, count)):
            chosen.append((other % reached, other))
        reached *= FAN
    return chosen


def _collect(comm: Any, first: dict[str, int], own: Offset) -> dict[str, list[int]] | None:
    gathered = comm.gather([own.nanoseconds, own.uncertainty])
    if gathered is None:
        return None
    return {str(speaker): gathered[speaker] for speaker in first.values()}


def _ask(handle: Any, knowing: int) -> Offset:
    best: tuple[int, int] | None = None
    buffer = np.zeros(2, dtype=np.int64)
    for _ in range(ROUNDS):
        before = time.monotonic_ns()
        handle.Send(buffer, dest=knowing, tag=TAG)
        handle.Recv(buffer, source=knowing, tag=TAG)
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, (before + after) // 2 - int(buffer[0]))
    assert best is not None  # ROUNDS > 0
    return Offset(best[1], best[0] // 2 + 1 + int(buffer[1]))


def _answer(handle: Any, asking: int, own: Offset) -> None:
    """Rank 0's time as this rank knows it, and how well it does."""
    buffer = np.zeros(2, dtype=np.int64)
    for _ in range(ROUNDS):
        handle.Recv(buffer, source=asking, tag=TAG)
        buffer[:] = time.monotonic_ns() - own.nanoseconds, own.uncertainty
        handle.Send(buffer, dest=asking, tag=TAG)


def wall_correction(comm: Any, offset: Offset) -> float:
    """Seconds to add to this kernel's Unix time to get rank 0's; collective over `comm`.

    Unix time runs beside the monotonic clock at a distance that each kernel knows: the two
    distances and the offset of the monotonic clocks give that of the Unix times.
    """
    own = time.time_ns() - time.monotonic_ns()
    zero = int(comm.bcast(own))
    if offset == Offset():
        return 0.0  # the same kernel
    return (zero - own - offset.nanoseconds) / 1e9
