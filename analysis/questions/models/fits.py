"""Regression models over chunk size, one for each pattern and number of processes.

As in section 5.2 of the SSD-cluster study one chunk size (1 MiB) is left out and predicted; the
study does not say which form it fitted.  Here the form is chosen by cross-validation that
leaves out whole levels: leaving out repetitions of a level would only measure their spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.roles import PAPER_UNITS, ROLES, Key, level_text, same
from fsmatrix.analysis.data.study import Study, Values, study
from fsmatrix.analysis.questions.models.forms import (
    FORMS,
    FittedCurve,
    Form,
    Moves,
    choice,
    left_out,
)
from fsmatrix.analysis.questions.models.model import Check, Model
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.analysis.units import Level, Quantity, Unit

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
