"""Campaigns with a known truth: runs in attachments and blocks, for tests and for planning.

Every shape has median 0 and a middle half of about the normal's width, on the log scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.results import histogram

Shape = Callable[[np.random.Generator, tuple[int, ...]], Floats]
WIDTH = 0.5  # standard deviation of the logs of one run's latencies
TYPICAL = 1e6  # ns: their median
SLOW_TIMES = 10.0
GAP = 6.0  # standard deviations between two modes
CORRELATION = 0.8  # of a run with the one before, in `autocorrelated`


def _normal(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    return random.standard_normal(size)


def _skewed(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    return np.asarray(np.exp(random.standard_normal(size)) - 1)


def _heavy(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    return random.standard_t(3, size)


def _bimodal(share: float) -> Shape:
    def cdf(x: float) -> float:
        below = (1 - share) * scipy.special.ndtr(x) + share * scipy.special.ndtr(x - GAP)
        return float(below - 0.5)

    centre = scipy.optimize.brentq(cdf, -5, GAP + 5)

    def draw(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
        modes = GAP * (random.random(size) < share)
        return np.asarray(modes + random.standard_normal(size) - centre)

    return draw


def _autocorrelated(random: np.random.Generator, size: tuple[int, ...]) -> Floats:
    steps = random.standard_normal(size)
    values = np.empty(size)
    values[..., 0] = steps[..., 0]
    for i in range(1, size[-1]):
        new = np.sqrt(1 - CORRELATION**2) * steps[..., i]
        values[..., i] = CORRELATION * values[..., i - 1] + new
    return values


SHAPES: Mapping[str, Shape] = {
    "log-normal": _normal,
    "normal": lambda random, size: (
        np.log(np.maximum(10 + random.standard_normal(size), 1.0) / 10) * 10
    ),
    "skewed logs": _skewed,
    "heavy-tailed (t3)": _heavy,
    "bimodal 50:50": _bimodal(0.5),
    "bimodal 30:70": _bimodal(0.3),
    "autocorrelated": _autocorrelated,
}


def logs(
    random: np.random.Generator,
    shape: str,
    size: tuple[int, int, int],
    session: float = 1.0,
    run: float = 1.0,
) -> Floats:
    """Logs of runs, shape [campaign, attachment, run]: a session effect plus run to run.

    `session`, `run` scale the two; both have the shape (autocorrelated: the runs inside).
    """
    campaigns, attachments, inside = size
    outer = SHAPES["log-normal" if shape == "autocorrelated" else shape]
    effects = outer(random, (campaigns, attachments))[..., np.newaxis]
    return np.asarray(
        session * effects + run * SHAPES[shape](random, (campaigns, attachments, inside))
    )


def latencies(
    random: np.random.Generator, shift: float, operations: int, slow: float = 0.0
) -> histogram.Integers:
    """A histogram [bin] of one run: log-normal latencies times exp(shift).

    `slow`: the share of the operations that takes SLOW_TIMES as long.
    """
    logs = WIDTH * random.standard_normal(operations) + shift
    logs[random.random(operations) < slow] += np.log(SLOW_TIMES)
    nanoseconds = (TYPICAL * np.exp(logs)).astype(np.int64)
    return np.bincount(histogram.bin_of(nanoseconds), minlength=histogram.BINS)
