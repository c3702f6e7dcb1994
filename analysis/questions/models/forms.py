"""Forms of a curve over chunk size: each with a reason, fitted to the logs of a few levels.

`y` is what one level of chunk size has (rates, or seconds per operation), `c` bytes.  All forms
are fitted to relative errors, since spreads and misfits of rates are shares of the value and
levels span decades; so their errors can be compared.  Every fit is linear algebra: no start
values, no failure to converge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from fsmatrix.analysis.stats.estimates.medians import Floats

Moves = Literal["bandwidth", "rate", "time"]  # how y follows from the time per operation


@dataclass(frozen=True)
class FittedCurve:
    """A fitted form: `at(c)` gives (value, gradient of log value by the parameters)."""

    coefficients: Floats  # [parameter]: what the gradient is by
    at: Callable[[Floats], tuple[Floats, Floats]]  # c [n] -> y [n], [n, parameter]
    named: Callable[[Floats], dict[str, float]]  # coefficients -> parameters by name, SI units

    @property
    def parameters(self) -> dict[str, float]:
        """By name, in the order of the coefficients, each of which moves one of them only."""
        return self.named(self.coefficients)


@dataclass(frozen=True)
class Form:
    """A candidate: `fit(c, y, moves)` for levels c [n], y [n] > 0; None where it cannot be."""

    name: str
    formula: str
    reason: str
    parameters: int
    fit: Callable[[Floats, Floats, Moves], FittedCurve | None]


def _time(c: Floats, y: Floats, moves: Moves) -> Floats:
    """Time per operation, up to a factor (the number of ranks): chunk / bandwidth, 1 / IOPS."""
    return {"bandwidth": c / y, "rate": 1 / y, "time": y}[moves]


def _of_time(c: Floats, time: Floats, gradient: Floats, moves: Moves) -> tuple[Floats, Floats]:
    """Back from a time per operation and the gradient of its log."""
    value = {"bandwidth": c / time, "rate": 1 / time, "time": time}[moves]
    return value, gradient if moves == "time" else -gradient


def _fixed_cost(c: Floats, y: Floats, moves: Moves) -> FittedCurve | None:
    time = _time(c, y, moves)
    scale = float(c.max())
    design = np.stack([np.ones_like(c), c / scale], axis=1)
    (t0, slope), _ = scipy.optimize.nnls(design / time[:, None], np.ones_like(c))

    def at(x: Floats) -> tuple[Floats, Floats]:
        seconds = t0 + slope * x / scale
        rows = np.stack([np.ones_like(x), x / scale], axis=1) / seconds[:, None]
        return _of_time(x, seconds, rows, moves)

    def named(coefficients: Floats) -> dict[str, float]:
        rate = scale / coefficients[1] if coefficients[1] > 0 else math.inf
        return {"t0_s": max(float(coefficients[0]), 0.0), "rate_bytes_per_s": float(rate)}

    return FittedCurve(np.array([t0, slope]), at, named)


def _roof(c: Floats, y: Floats, moves: Moves) -> FittedCurve | None:
    """The best split of the sorted levels: mean log time left, mean log rate right of it."""
    time = np.log(_time(c, y, moves))
    order = np.argsort(c)
    best: tuple[float, float, float] | None = None
    for split in range(1, c.size):
        left, right = order[:split], order[split:]
        t0, pace = float(time[left].mean()), float((time - np.log(c))[right].mean())
        error = float(np.square(time - np.maximum(t0, pace + np.log(c))).sum())
        if best is None or error < best[0]:
            best = error, t0, pace
    if best is None:
        return None
    t0, pace = best[1:]

    def at(x: Floats) -> tuple[Floats, Floats]:
        free = t0 >= pace + np.log(x)
        seconds = np.exp(np.where(free, t0, pace + np.log(x)))
        return _of_time(x, seconds, np.stack([free, ~free], axis=1).astype(np.float64), moves)

    def named(solution: Floats) -> dict[str, float]:
        return {"t0_s": float(np.exp(solution[0])), "rate_bytes_per_s": float(np.exp(-solution[1]))}

    return FittedCurve(np.array([t0, pace]), at, named)


def _power(degree: int) -> Callable[[Floats, Floats, Moves], FittedCurve | None]:
    def fit(c: Floats, y: Floats, moves: Moves) -> FittedCurve | None:  # noqa: ARG001
        middle = float(np.log(c).mean())
        design = np.vander(np.log(c) - middle, degree + 1, increasing=True)
        theta: Floats = np.linalg.lstsq(design, np.log(y), rcond=None)[0].astype(np.float64)

        def at(x: Floats) -> tuple[Floats, Floats]:
            rows = np.vander(np.log(x) - middle, degree + 1, increasing=True)
            return np.exp(rows @ theta), rows

        return FittedCurve(
            theta, at, lambda b: {f"b{i}": float(value) for i, value in enumerate(b)}
        )

    return fit


def _straight(logarithmic: bool) -> Callable[[Floats, Floats, Moves], FittedCurve | None]:
    def fit(c: Floats, y: Floats, moves: Moves) -> FittedCurve | None:
        if moves == "time" and not logarithmic:
            return None  # the same line as the fixed cost's
        coded = np.log2 if logarithmic else np.asarray
        design = np.stack([np.ones_like(c), coded(c)], axis=1)
        coefficients = np.linalg.lstsq(design / y[:, None], np.ones_like(y), rcond=None)[0]
        theta: Floats = coefficients.astype(np.float64)

        def at(x: Floats) -> tuple[Floats, Floats]:
            rows = np.stack([np.ones_like(x), coded(x)], axis=1)
            value = rows @ theta
            value = np.where(value > 0, value, np.nan)  # a rate or a time that cannot be
            return value, rows / value[:, None]

        return FittedCurve(theta, at, lambda ab: {"a": float(ab[0]), "b": float(ab[1])})

    return fit


FORMS = (
    Form(
        "fixed cost", "time per operation = t0 + chunk / B",
        "every operation costs a fixed time and then moves its bytes at a constant rate "
        "(Hockney, Parallel Computing 20, 1994)", 2, _fixed_cost,
    ),
    Form(
        "roof", "time per operation = max(t0, chunk / B)",
        "operations are the limit up to a knee, a link or device beyond it, and they overlap "
        "(Williams et al., CACM 52, 2009)", 2, _roof,
    ),
    Form(
        "power law", "y = a chunk^b",
        "each doubling changes it by one factor: no fixed scale, as in a transition that spans "
        "the range", 2, _power(1),
    ),
    Form(
        "line in log chunk", "y = a + b log2(chunk)",
        "each doubling adds the same: the straight line over the axis of the paper's figure 5", 2,
        _straight(True),
    ),
    Form(
        "line in chunk", "y = a + b chunk",
        "ordinary linear regression on bytes; for latency it is the fixed cost's line", 2,
        _straight(False),
    ),
    Form(
        "bent power law", "log y = b0 + b1 log chunk + b2 (log chunk)^2",
        "a smooth curve without a mechanism, where none of the others follows the bend", 3,
        _power(2),
    ),
)  # fmt: skip


def choice(squares: Mapping[Form, Floats]) -> Form | None:
    """The best of the simplest forms that are within a standard error of the best of all.

    The one-standard-error rule: Hastie, Tibshirani and Friedman, "The Elements of Statistical
    Learning", 2009, section 7.10.  None if no form has a finite error.
    """
    finite = {form: errors for form, errors in squares.items() if np.all(np.isfinite(errors))}
    if not finite:
        return None
    best = min(finite.values(), key=lambda errors: float(errors.mean()))
    most = float(best.mean() + best.std(ddof=1) / math.sqrt(best.size))
    near = [form for form, errors in finite.items() if errors.mean() <= most]
    return min(near, key=lambda form: (form.parameters, float(finite[form].mean())))


def left_out(form: Form, c: Floats, y: Floats, moves: Moves) -> Floats:
    """Squares of log(predicted / measured), one for each fold that leaves out one level."""
    squares = []
    for i in range(c.size):
        rest = np.arange(c.size) != i
        curve = form.fit(c[rest], y[rest], moves)
        value = curve.at(c[i : i + 1])[0][0] if curve else math.nan
        squares.append(math.log(value / y[i]) ** 2 if 0 < value < math.inf else math.inf)
    return np.array(squares)
