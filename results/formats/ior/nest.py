"""Phases of IOR put together: iterations of several invocations, and the times of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.formats.base import Note, shared_facts, totals
from fsmatrix.results.formats.ior.as_csv import RankTimes
from fsmatrix.results.record import Phase, window

# what rounding may add to the window: rates above 3600 MiB/s are printed without decimals
ROUNDING = 2e-4
TICK = 1e-6  # s, last digit of the times
# of the window: IOR takes the ranks' times and the window from clock readings of their own, and a
# clock that is being corrected runs up to 500 ppm fast or slow (adjtimex(2)); seen: 0.036 %
CLOCK = 1e-3


def join(phases: Sequence[Phase]) -> Phase:
    """One phase of the iterations of several invocations of the same kind, in their order.

    Bytes, operations, errors and windows add up: the rate is total / total.
    """
    if len(phases) == 1:
        return phases[0]
    rows = [row for phase in phases for row in iterations.rows_of(phase.iterations)]
    numbered = [{**row, "number": index} for index, row in enumerate(rows)]
    return totals(
        phases[0].name,
        sum(window(phase) for phase in phases),
        sum(int(phase.bytes.sum()) for phase in phases),
        sum(int(phase.operations.sum()) for phase in phases),
        sum(int(phase.errors.sum()) for phase in phases),
        facts=shared_facts(phases),
        iterations=iterations.columns(numbered),
        summary=iterations.summary(rows, "bandwidth"),
    )


def with_ranks(
    phase: Phase, times: Sequence[RankTimes], processes: int, even: bool
) -> tuple[Phase, tuple[Note, ...]]:
    """A phase of one invocation with what its ranks' times add; notes if they do not fit.

    `even`: every rank did the same share of the work.  Then a phase of a single iteration
    gets arrays [rank].  IOR writes how long each rank took, not when it began: all are taken
    to begin together (a barrier is before).  What the window is longer than the longest rank
    is added to each end, so that the window stays exactly IOR's.
    """
    parts = iterations.rows_of(phase.iterations)
    if len(times) != len(parts) or any(len(t.seconds) != processes for t in times):
        text = f"the file of ranks does not hold {processes} ranks of {len(parts)} iterations"
        return phase, (Note("recovered", f"{text}: it is not used", 0, phase.name),)
    for part, ranks in zip(parts, times, strict=True):
        longest = float(ranks.seconds.max())
        if longest > part["seconds"] * (1 + ROUNDING + CLOCK) + TICK:
            text = f"a rank took {longest:.6g} s of a window of {part['seconds']:.6g} s"
            return phase, (Note("contradiction", text, 0, phase.name),)
        part["slowest_rank"] = int(ranks.seconds.argmax())
        part["rank_min"] = float(ranks.seconds.min())
        part["rank_median"] = float(np.median(ranks.seconds))
        part["rank_max"] = longest
    phase = replace(phase, iterations=iterations.columns(parts))
    return _per_rank(phase, times, processes, even), ()


def _per_rank(phase: Phase, times: Sequence[RankTimes], processes: int, even: bool) -> Phase:
    """Arrays [rank] where bytes and times of each rank are known, otherwise as it was."""
    bytes_, operations = int(phase.bytes.sum()), int(phase.operations.sum())
    shares = bytes_ % processes == 0 and operations % processes == 0
    if len(times) != 1 or not even or not shares or phase.errors.any():
        return phase
    seconds = np.minimum(times[0].seconds, window(phase))
    return replace(
        phase,
        start=np.zeros(processes),
        end=seconds + (window(phase) - seconds.max()),
        bytes=np.full(processes, bytes_ // processes, dtype=np.int64),
        operations=np.full(processes, operations // processes, dtype=np.int64),
        errors=np.zeros(processes, dtype=np.int64),
        facts={
            **phase.facts,
            "ranks": "seconds of each rank as IOR wrote them, taken to begin together; bytes "
            "are equal shares of fixed work",
        },
    )
