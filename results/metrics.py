"""Metrics of a phase, computed from what was measured and nothing else."""

from __future__ import annotations

import numpy as np

from fsmatrix.results.record import Phase


def window(phase: Phase) -> float:
    """Seconds from the earliest start to the latest end over all workers."""
    if phase.start.size == 0:
        return 0.0
    return float(np.max(phase.end) - np.min(phase.start))


def bandwidth(phase: Phase) -> float:
    """Bytes per second: sum of bytes / window; NaN for an empty window."""
    seconds = window(phase)
    return float(phase.bytes.sum()) / seconds if seconds > 0 else float("nan")


def iops(phase: Phase) -> float:
    """Operations per second: sum of operations / window; NaN for an empty window."""
    seconds = window(phase)
    return float(phase.operations.sum()) / seconds if seconds > 0 else float("nan")
