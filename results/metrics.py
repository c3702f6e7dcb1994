"""Metrics of a phase, computed from what was measured and nothing else."""

from __future__ import annotations

import numpy as np

from fsmatrix.results.record import OPERATIONS_UNKNOWN, Phase


def window(phase: Phase) -> float:
    """Seconds from the earliest start to the latest end over all workers."""
    if phase.start.size == 0:
        return 0.0
    return float(np.max(phase.end) - np.min(phase.start))


def bandwidth(phase: Phase) -> float:
    """Bytes per second: sum of bytes / window; NaN for an empty window."""
    seconds = window(phase)
    return float(phase.bytes.sum()) / seconds if seconds > 0 else float("nan")


def operations(phase: Phase) -> float:
    """Completed operations of all workers; NaN where they are not known."""
    unknown = phase.facts.get(OPERATIONS_UNKNOWN)
    return float("nan") if unknown else float(phase.operations.sum())


def iops(phase: Phase) -> float:
    """Operations per second: sum of operations / window; NaN where one of them is not known."""
    seconds = window(phase)
    return operations(phase) / seconds if seconds > 0 else float("nan")


def io_window(phase: Phase) -> float:
    """Seconds from the first to the last data operation of all workers; NaN if unknown."""
    if phase.io_start is None or phase.io_end is None or phase.io_start.size == 0:
        return float("nan")
    return float(np.max(phase.io_end) - np.min(phase.io_start))


def first_finisher_rate(phase: Phase) -> float:
    """Bytes per second until the first worker finished: what all had moved by then.

    Bytes moved by then come from the interval series, linear within an interval.  With one
    worker it is the bandwidth; NaN without a series that reaches until then, and NaN if no bytes
    were moved.
    """
    if phase.start.size == 0 or not phase.bytes.any():
        return float("nan")
    if phase.start.size == 1:
        return bandwidth(phase)
    if phase.interval_bytes is None or not phase.interval > 0 or phase.interval_bytes.size == 0:
        return float("nan")
    first = float(np.min(phase.end))
    seconds = first - float(np.min(phase.start))
    edges = np.arange(phase.interval_bytes.size + 1) * phase.interval
    if first > edges[-1] * (1 + 1e-9):
        return float("nan")
    moved = np.interp(first, edges, np.append(0, np.cumsum(phase.interval_bytes)))
    return float(moved) / seconds if seconds > 0 else float("nan")
