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


@dataclass(frozen=True)
class Offset:
    """Local monotonic clock minus rank 0's, and the bound of its error, nanoseconds."""

    nanoseconds: int = 0
    uncertainty: int = 0


def measure(comm: Any, first_of_kernel: dict[str, int], boot_id: str) -> Offset:
    """Measure, kernel after kernel, with rank 0; collective over `comm` (an MpiComm).

    `first_of_kernel`: boot id -> the rank that speaks for it, the same at every rank.
    """
    own = first_of_kernel[boot_id]
    if len(first_of_kernel) == 1:
        return Offset()
    result = Offset()
    for speaker in sorted(first_of_kernel.values()):
        if speaker == first_of_kernel_of_zero(first_of_kernel):
            continue
        if comm.rank == 0:
            _answer(comm.handle, speaker)
        elif comm.rank == speaker:
            result = _ask(comm.handle)
    table = comm.bcast(_collect(comm, first_of_kernel, result))
    nanoseconds, uncertainty = table[str(own)]
    return Offset(nanoseconds, uncertainty)


def first_of_kernel_of_zero(first_of_kernel: dict[str, int]) -> int:
    """Rank 0 speaks for its own kernel: it is the smallest of all speakers."""
    return min(first_of_kernel.values())


def _collect(comm: Any, first: dict[str, int], own: Offset) -> dict[str, Any] | None:
    gathered = comm.gather((own.nanoseconds, own.uncertainty))
    if gathered is None:
        return None
    return {str(speaker): gathered[speaker] for speaker in first.values()}


def _ask(handle: Any) -> Offset:
    best: tuple[int, int] | None = None
    buffer = np.zeros(1, dtype=np.int64)
    for _ in range(ROUNDS):
        before = time.monotonic_ns()
        handle.Send(buffer, dest=0, tag=TAG)
        handle.Recv(buffer, source=0, tag=TAG)
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, (before + after) // 2 - int(buffer[0]))
    assert best is not None  # ROUNDS > 0
    return Offset(best[1], best[0] // 2 + 1)


def _answer(handle: Any, speaker: int) -> None:
    buffer = np.zeros(1, dtype=np.int64)
    for _ in range(ROUNDS):
        handle.Recv(buffer, source=speaker, tag=TAG)
        buffer[0] = time.monotonic_ns()
        handle.Send(buffer, dest=speaker, tag=TAG)


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
