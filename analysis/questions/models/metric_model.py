"""A model of one group of cells over chunk size: what it predicts, how sure, with which parameters.

The log of a level's mean (over attachments) is log f(chunk) + misfit, misfit of variance tau^2,
plus the mean of n attachments of variance sigma^2.  The residuals of L levels around a form of p
parameters estimate s^2 = tau^2 + sigma^2 / n with L - p degrees of freedom; three chunk sizes leave
one, so s^2 is pooled over the groups that have the same form.  A new mean of k attachments lies
within the sum of two half-widths, added as squares, each with its own quantile of Student's t
(square-and-add: Zou and Donner, Statistics in Medicine 27, 2008): t s sqrt(1 + h), h the leverage
of its chunk size, and t sigma sqrt(1/k + 1/n), which also holds where the chunk sizes of a group
were measured in the same attachments.  A coefficient lies in the same way within t s times its root
of the inverse of X'X and t sigma / sqrt(n) times what a common factor of all levels makes of it.

t0 is what a process waits for an operation, so that of a bandwidth or a rate is multiplied by the
operations in flight.  B is that of all processes together, or from a latency that of one.

Forms of the curve: each has a reason, and is fitted to the logs of a few levels.  `y` is what a
level of chunk size has (rates, or seconds per operation), `c` bytes.  All forms are fitted to
relative errors, since spreads and misfits of rates are shares of the value and levels span decades;
so their errors can be compared.  Every fit is linear algebra: no start values, no failure to
converge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import scipy
import xarray as xr

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import PAPER_UNITS, ROLES, Key, level_text, same
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.analysis.units import Level, Quantity, Unit

Moves = Literal["bandwidth", "rate", "time"]  # how y follows from the time per operation

MOST_LOG = 300.0  # of an interval's factor: beyond it there is no interval


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


# Regression models over chunk size, one for each pattern and number of processes.
#
# As in section 5.2 of the SSD-cluster study one chunk size (1 MiB) is left out and predicted; the
# study does not say which form it fitted.  Here the form is chosen by cross-validation that
# leaves out whole levels: leaving out repetitions of a level would only measure their spread.


MOVES: dict[Quantity, Moves] = {
    "bandwidth": "bandwidth",
    "rate": "rate",
    "transactions": "rate",
    "events": "rate",
    "time": "time",
}
TIE = 1e-9  # relative: constant data agree up to rounding
MULTIPLY = ("nodes", "threads", "iodepth")  # the operations in flight of a process per node
FEWEST_LEVELS = 3  # two parameters and one level to test them on


@dataclass(frozen=True)
class Fits:
    """Models of all groups that can have one, and why the others have none."""

    study: Study
    models: tuple[Model, ...]
    refused: tuple[tuple[Key, str], ...]
    hold_out: float  # bytes; NaN if nothing was left out
    checks: tuple[Check, ...]  # the levels left out
    unit: Unit


def fits(
    ds: xr.Dataset,
    metric: str,
    hold_out: tuple[str, float] | None,
    form: str | None,
    where: Mapping[str, Level] | None,
    unit: Unit | None,
) -> Fits:
    """See `models.models`."""
    of = study(ds, metric, where)
    if hold_out is not None and hold_out[0] not in ("chunk", *ROLES["chunk"]):
        raise ValueError(
            f"models are over chunk size: a level of chunk is left out, not of {hold_out[0]}"
        )
    if form is not None and form not in {f.name for f in FORMS}:
        raise ValueError(f"no form {form!r}; there are {', '.join(f.name for f in FORMS)}")
    left = float(hold_out[1]) if hold_out else math.nan
    series = of.series("chunk")
    if not series:
        raise ValueError("no chunk sizes in this campaign: models are over chunk size")
    moves = MOVES[of.metric.quantity]
    models: list[Model] = []
    refused = []
    for key, cells in series.items():
        kept = [cell for cell in cells if not same(cell.number("chunk"), left)]
        result = fit(key, kept, moves, form)
        if isinstance(result, Model):
            models.append(result)
        else:
            refused.append((key, result))
    models = pooled(models)
    held = [
        (model, cell)
        for model in models
        for cell in series[model.key]
        if same(cell.number("chunk"), left)
    ]
    return Fits(
        study=of,
        models=tuple(models),
        refused=tuple(refused),
        hold_out=left,
        checks=check(held),
        unit=unit or PAPER_UNITS[of.metric.quantity],
    )


def check(pairs: Sequence[tuple[Model, Values]], level: float = LEVEL) -> tuple[Check, ...]:
    """Measured cells against their models, Bonferroni-corrected: together wrong in 1 - level."""
    checks = []
    for model, cell in pairs:
        corrected = 1 - (1 - level) / len(pairs)
        predicted = model.predict(cell.number("chunk"), cell.values.size, corrected)
        measured = cell.median.median
        slack = TIE * abs(measured)
        outside = measured < predicted.low - slack or measured > predicted.high + slack
        checks.append(Check(predicted, measured, outside))
    return tuple(checks)


def pooled(models: Sequence[Model]) -> list[Model]:
    """Each with the misfit of all models of its form, and the sum of their freedom."""
    result = []
    for model in models:
        same_form = [other for other in models if other.form is model.form]
        freedom = sum(other.freedom for other in same_form)
        squares = sum(other.freedom * other.misfit**2 for other in same_form)
        result.append(replace(model, misfit=math.sqrt(squares / freedom), freedom=freedom))
    return result


def fit(key: Key, cells: Sequence[Values], moves: Moves, form: str | None) -> Model | str:
    """The model of cells that differ in chunk size only, or why there is none."""
    if any(np.any(cell.values <= 0) for cell in cells):
        return "values that are not positive have no logarithm"
    if len({cell.number("chunk") for cell in cells}) < len(cells):
        return "several cells of one chunk size: something else varies too"
    if len(cells) < FEWEST_LEVELS:
        return (
            f"{len(cells)} chunk size{'s' * (len(cells) != 1)} to fit to: two parameters "
            "and a test of them need 3"
        )
    c = np.array([cell.number("chunk") for cell in cells])
    y = np.array([float(np.exp(np.log(cell.values).mean())) for cell in cells])
    if np.any(c <= 0):
        return "a chunk size that is not positive"
    squares = {
        candidate: left_out(candidate, c, y, moves)
        for candidate in FORMS
        if candidate.parameters < len(cells) and (form is None or candidate.name == form)
    }
    chosen = choice(squares)
    if chosen is None:
        return "no form gives a positive value at every level that it did not see"
    curve = chosen.fit(c, y, moves)
    if curve is None or not np.all(np.isfinite(curve.at(c)[0])):
        return f"{chosen.name} cannot be fitted"
    errors = {
        candidate.name: math.sqrt(float(errors_squared.mean()))
        for candidate, errors_squared in squares.items()
    }
    in_flight = 1.0 if moves == "time" else _in_flight(cells)
    return _judged(key, chosen, curve, cells, y, errors, in_flight)


def _judged(
    key: Key,
    form: Form,
    curve: FittedCurve,
    cells: Sequence[Values],
    y: Floats,
    errors: Mapping[str, float],
    in_flight: float,
) -> Model:
    c = np.array([cell.number("chunk") for cell in cells])
    fitted = curve.at(c)[0]
    freedom = c.size - form.parameters
    misfit = math.sqrt(float(np.square(np.log(y / fitted)).sum()) / freedom)
    logs = [np.log(cell.values) for cell in cells]
    counted = sum(of_level.size - 1 for of_level in logs)
    within = sum(float(np.square(of_level - of_level.mean()).sum()) for of_level in logs)
    values = np.concatenate([cell.values for cell in cells])
    expected = np.repeat(fitted, [cell.values.size for cell in cells])
    lost = float(np.square(values - expected).sum())
    total = float(np.square(values - values.mean()).sum())
    return Model(
        key=key,
        form=form,
        curve=curve,
        trained=tuple(cells),
        errors=errors,
        misfit=misfit,
        freedom=freedom,
        spread_freedom=_freedom(cells),
        in_flight=in_flight,
        spread=math.sqrt(within / counted) if counted else math.nan,
        rmse=math.sqrt(lost / values.size),
        r_squared=1 - lost / total if total > 0 else math.nan,
    )


def _in_flight(cells: Sequence[Values]) -> float:
    """Operations at once: processes on all client nodes, their threads, the queue depth of each.

    What is not recorded is 1, but without the number of processes it is unknown (NaN); NaN too
    where it differs between the cells.
    """
    in_flight = {
        cell.number("processes") * math.prod(_count(cell.level(name)) for name in MULTIPLY)
        for cell in cells
    }
    return in_flight.pop() if len(in_flight) == 1 else math.nan


def _count(level: Level) -> float:
    return 1.0 if isinstance(level, str) else float(level)


def _freedom(cells: Sequence[Values]) -> int:
    """Degrees of freedom of the spread: attachments less groups of cells that share any.

    An attachment that many cells have tells once how much attachments differ.
    """
    groups: list[set[str]] = []
    for cell in cells:
        attachments = set(cell.attachments)
        joined = attachments.union(*(group for group in groups if group & attachments))
        groups = [group for group in groups if not group & attachments] + [joined]
    return sum(len(group) for group in groups) - len(groups)


def unfit(model: Model) -> list[str]:
    """Names of forms that have too many parameters for a model's levels."""
    return [f"{f.name} ({f.parameters} parameters)" for f in FORMS if f.name not in model.errors]


def chunk_text(chunk: float) -> str:
    """Bytes for readers."""
    return level_text("chunk", chunk)


def panel_key(key: Key) -> Key:
    """A key without the pattern: what a row of panels shares."""
    return tuple(pair for pair in key if pair[0] != "pattern")
