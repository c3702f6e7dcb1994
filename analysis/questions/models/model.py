"""A model of one group of cells over chunk size: what it predicts, how sure, with which parameters.

The log of a level's mean (over attachments) is log f(chunk) + misfit, misfit of variance
tau^2, plus the mean of n attachments of variance sigma^2.  The residuals of L levels around
a form of p parameters estimate s^2 = tau^2 + sigma^2 / n with L - p degrees of freedom; three
chunk sizes leave one, so s^2 is pooled over the groups that have the same form.  A new mean of k
attachments lies within the sum of two half-widths, added as squares, each with its own quantile
of Student's t (square-and-add: Zou and Donner, Statistics in Medicine 27, 2008):
t s sqrt(1 + h), h the leverage of its chunk size, and t sigma sqrt(1/k + 1/n), which also holds
where the chunk sizes of a group were measured in the same attachments.  A coefficient lies in the
same way within t s times its root of the inverse of X'X and t sigma / sqrt(n) times what a common
factor of all levels makes of it.

t0 is what a process waits for an operation, so that of a bandwidth or a rate is multiplied by the
operations in flight.  B is that of all processes together, or from a latency that of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy

from fsmatrix.analysis.data.roles import Key
from fsmatrix.analysis.data.study import Values
from fsmatrix.analysis.questions.models.forms import FittedCurve, Form
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats

MOST_LOG = 300.0  # of an interval's factor: beyond it there is no interval


@dataclass(frozen=True)
class Prediction:
    """What a model expects at one chunk size; SI units.

    NaN where the form gives no value; low and high are NaN with one attachment, which says
    nothing about another one.
    """

    key: Key
    chunk: float  # bytes
    value: float
    low: float  # low..high: a mean over `attachments` attachments, with probability `level`
    high: float
    level: float
    attachments: int
    extrapolated: bool  # outside the chunk sizes that the model was fitted to


@dataclass(frozen=True)
class Check:
    """A measured cell against its prediction."""

    prediction: Prediction
    measured: float  # median over attachments
    outside: bool  # of the prediction interval; False where there is none (`decides`)

    @property
    def decides(self) -> bool:
        """Whether there is a prediction interval."""
        return not math.isnan(self.prediction.low)

    @property
    def error(self) -> float:
        """predicted / measured - 1"""
        return self.prediction.value / self.measured - 1


@dataclass(frozen=True)
class Model:
    """The chosen form of one group of cells, and how well it fits them."""

    key: Key
    form: Form
    curve: FittedCurve = field(repr=False)
    trained: tuple[Values, ...] = field(repr=False)
    errors: Mapping[str, float]  # form -> RMS of the log errors at levels left out; inf: no value
    misfit: float  # s: SD of the logs of levels around the curve; pooled
    freedom: int  # of s
    spread: float  # sigma: SD of the logs of attachments; NaN with one each
    spread_freedom: int
    in_flight: float  # operations at once that t0 is of; 1 for a latency; NaN: unknown
    rmse: float  # of attachments' values around the curve they were fitted to, SI
    r_squared: float  # of the same

    @property
    def chunks(self) -> Floats:
        """Chunk sizes of the fit, bytes, ascending."""
        return np.array([cell.number("chunk") for cell in self.trained])

    def predict(self, chunk: float, attachments: int = 1, level: float = LEVEL) -> Prediction:
        """The value to expect at a chunk size (bytes); ValueError unless it is positive."""
        if not chunk > 0:
            raise ValueError(f"a chunk size must be positive, not {chunk}")
        middle, reach = self.band(np.array([chunk], dtype=np.float64), attachments, level)
        value, factor = float(middle[0]), float(reach[0])
        low, high = float(self.chunks.min()), float(self.chunks.max())
        return Prediction(
            self.key,
            float(chunk),
            value,
            value / factor,
            value * factor,
            level,
            attachments,
            not low <= chunk <= high,
        )

    @property
    def parameters(self) -> dict[str, float]:
        """The form's parameters by name, SI units; t0 is that of one process."""
        return self._of_one_process(self.curve.parameters)

    def parameter_bounds(self, level: float = LEVEL) -> dict[str, tuple[float, float]]:
        """(low, high) of each parameter, with probability `level`; NaN with one attachment."""
        design, theta = self.curve.at(self.chunks)[1], self.curve.coefficients
        if self.spread_freedom == 0:
            return dict.fromkeys(self.parameters, (math.nan, math.nan))
        own = np.sqrt(np.diag(np.linalg.pinv(design.T @ design))) * self.misfit
        common = np.abs(np.linalg.pinv(design) @ np.ones(len(design))) * self.spread
        common = common * math.sqrt(self._inverse_size)
        tail = (1 + level) / 2
        half = np.hypot(
            scipy.special.stdtrit(self.freedom, tail) * own,
            scipy.special.stdtrit(self.spread_freedom, tail) * common,
        )
        ends = [self._of_one_process(self.curve.named(end)) for end in (theta - half, theta + half)]
        return {name: (min(a, ends[1][name]), max(a, ends[1][name])) for name, a in ends[0].items()}

    def _of_one_process(self, parameters: Mapping[str, float]) -> dict[str, float]:
        """With the t0 of one process instead of that of all together."""
        return {n: v * self.in_flight if n == "t0_s" else v for n, v in parameters.items()}

    @property
    def _inverse_size(self) -> float:
        """The mean of 1 / attachments over the levels."""
        return sum(1 / cell.values.size for cell in self.trained) / len(self.trained)

    def band(self, chunks: Floats, attachments: int, level: float) -> tuple[Floats, Floats]:
        """(value, factor) at chunk sizes [n]: the interval is value / factor to value * factor.

        NaN factors with one attachment: nothing is known about another one.
        """
        value, rows = self.curve.at(chunks)
        design = self.curve.at(self.chunks)[1]
        inverse = np.linalg.pinv(design.T @ design)
        leverage = np.einsum("ij,jk,ik->i", rows, inverse, rows)
        half = (
            scipy.special.stdtrit(self.freedom, (1 + level) / 2)
            * self.misfit
            * np.sqrt(1 + leverage)
        )
        if self.spread_freedom == 0:
            return value, np.full_like(value, math.nan)
        own = self.spread * math.sqrt(1 / attachments + self._inverse_size)
        half = np.hypot(half, scipy.special.stdtrit(self.spread_freedom, (1 + level) / 2) * own)
        return value, np.exp(np.minimum(half, MOST_LOG))
