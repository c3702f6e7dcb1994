"""How sure a quantile of latencies is, from the counts of a histogram.

Ranks: of n independent operations the number below the quantile q is binomial(n, q), so the
operations of two ranks bound it, and with a histogram the edges of the bins that they fall into
(David and Nagaraja, "Order Statistics", 2003, section 7.1).  Operations of one run are seldom
independent of each other: this is the least uncertainty that a run has, and what differs between
attachments comes on top.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from fsmatrix.analysis.stats.estimates.medians import LEVEL
from fsmatrix.results import histogram


def within(counts: npt.NDArray[np.int64], q: float, level: float = LEVEL) -> tuple[float, float]:
    """(low, high) in seconds of the quantile q of one run's latencies; counts: shape [bin].

    NaN where `histogram.percentile` shows none.  ValueError for a q outside (0, 1).
    """
    if math.isnan(histogram.percentile(counts, q)):
        return math.nan, math.nan
    total = int(counts.sum())
    tail = (1 - level) / 2
    first = max(int(scipy.stats.binom.ppf(tail, total, q)), 1)
    last = min(int(scipy.stats.binom.ppf(1 - tail, total, q)) + 1, total)
    low, high = np.searchsorted(np.cumsum(counts), [first, last])
    return float(histogram.lower_edges()[low]) / 1e9, float(histogram.upper_edges()[high]) / 1e9
