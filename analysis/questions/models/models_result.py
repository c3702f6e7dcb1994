"""Models of a campaign's groups: sentences, a table, plain data and pictures; and predictions.

At chunk sizes that nobody tested, and against another campaign (faults).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.factors import Key, same
from fsmatrix.analysis.data.metric_cells import Study, study
from fsmatrix.analysis.questions.models.metric_model import (
    FORMS,
    Check,
    Fits,
    Model,
    Prediction,
    check,
    chunk_text,
    unfit,
)
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.estimates.medians import LEVEL
from fsmatrix.analysis.units import Level, Unit, text
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_DRAWN = 40  # rows of the figure

FEW = 3  # degrees of freedom: the factor of a 95 % interval is above 3 SD below


@dataclass(frozen=True)
class Expected:
    """A prediction, and what was measured if anything was."""

    prediction: Prediction
    measured: float = math.nan  # SI
    outside: bool = False  # of an interval that is there

    @property
    def decides(self) -> bool:
        """Whether there is a prediction interval."""
        return not math.isnan(self.prediction.low)


@dataclass(frozen=True)
class Predictions:
    """Predictions of the models of one campaign."""

    models: Models
    rows: tuple[Expected, ...]

    @property
    def compared(self) -> bool:
        """Whether measurements stand beside the predictions."""
        return any(not math.isnan(row.measured) for row in self.rows)

    @property
    def says(self) -> list[str]:
        """What is outside its interval, or what to expect; then how far it can be trusted."""
        sentences = self._faults() if self.compared else [self._expected(row) for row in self.rows]
        beyond = sum(row.prediction.extrapolated for row in self.rows)
        if beyond:
            sentences.append(
                f"{beyond} of {len(self.rows)} lie outside the chunk sizes of the fit: "
                "extrapolations."
            )
        if any(not row.decides for row in self.rows):
            sentences.append("No interval where there is one attachment: another one may differ.")
        return sentences + self._study.remarks

    def _faults(self) -> list[str]:
        judged = [row for row in self.rows if row.decides]
        outside = [row for row in judged if row.outside]
        level = 1 - (1 - self.rows[0].prediction.level) * len(self.rows)
        sentences = [
            f"{len(outside)} of {len(judged)} measured medians lie outside their prediction "
            f"interval ({level:.0%} for all together)"
            + (": a fault, or a change of the system." if outside else ".")
        ]
        return sentences + [
            f"{self._where(row)}: measured {self._shown(row.measured)}, expected "
            f"{self._shown(row.prediction.value)} [{self._shown(row.prediction.low)}, "
            f"{self._shown(row.prediction.high)}]."
            for row in outside
        ]

    def _expected(self, row: Expected) -> str:
        prediction = row.prediction
        sure = (
            f" [{self._shown(prediction.low)}, {self._shown(prediction.high)}]: "
            f"{prediction.level:.0%} of attachments"
            if row.decides
            else ""
        )
        mark = " (extrapolated)" if prediction.extrapolated else ""
        return f"{self._where(row)}: {self._shown(prediction.value)}{sure}{mark}."

    def _where(self, row: Expected) -> str:
        levels = self._study.describe(row.prediction.key)
        chunk = chunk_text(row.prediction.chunk)
        return chunk if levels == "all" else f"{levels}, {chunk}"

    def _shown(self, value: float) -> str:
        return f"{text(value, self.models.unit)} {self.models.unit.label}"

    @property
    def _study(self) -> Study:
        return self.models.fits.study

    def table(self) -> pd.DataFrame:
        """One row per prediction."""
        import pandas as pd

        unit, scale = self.models.unit.label, self.models.unit.divisor
        lines = []
        for row in self.rows:
            p = row.prediction
            line: dict[str, Json] = {
                **dict(p.key),
                "chunk": chunk_text(p.chunk),
                f"expected, {unit}": p.value / scale,
                f"low, {unit}": p.low / scale,
                f"high, {unit}": p.high / scale,
                "extrapolated": "yes" if p.extrapolated else "",
            }
            if self.compared:
                sentence = ("yes" if row.outside else "no") if row.decides else ""
                line |= {f"measured, {unit}": row.measured / scale, "outside": sentence}
            lines.append(line)
        return pd.DataFrame(lines)

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "metric": self._study.metric.name,
                "says": self.says,
                "predictions": [
                    {
                        **vars(row.prediction),
                        "key": dict(row.prediction.key),
                        "measured": row.measured,
                        "outside": row.outside if row.decides else None,
                    }
                    for row in self.rows
                ],
            }
        )
        return data

    def figure(self) -> Figure:
        """One row per prediction: its interval, and a cross where something was measured."""
        from fsmatrix.analysis.draw import drawing

        rows = sorted(self.rows, key=lambda row: not row.outside)[:MOST_DRAWN]
        notes = [
            "Bar: prediction interval of one attachment, or of the measured ones. Cross: "
            "measured median, orange if outside. Hollow: extrapolated."
        ]
        more = len(self.rows) - len(rows)
        notes += [f"{more} more are in the table."] * (more > 0) + self._study.remarks
        figure, ax = drawing.panel(
            title=f"{self._study.metric.title}: expected",
            notes=notes,
            width=6.8,
            height=0.7 + 0.2 * len(rows),
        )
        scale = self.models.unit.divisor
        for place, row in enumerate(rows):
            predicted, shade = row.prediction, drawing.colour(0)
            ax.plot(
                [predicted.low / scale, predicted.high / scale],
                [place] * 2,
                color=shade,
                linewidth=3,
                alpha=0.4,
            )
            ax.plot(
                predicted.value / scale,
                place,
                "o",
                color=shade,
                markersize=4,
                markerfacecolor="white" if predicted.extrapolated else shade,
            )
            ax.plot(
                row.measured / scale,
                place,
                "X",
                markersize=6,
                color=drawing.colour(1) if row.outside else "black",
            )
        ax.set_xscale("log")
        ax.set_yticks(range(len(rows)), [self._where(row) for row in rows], fontsize=7)
        ax.invert_yaxis()
        ax.set_xlabel(f"{self.models.unit.label}, log scale", fontsize=8)
        return figure


def predict(
    models: Models, chunks: Sequence[float], where: Mapping[str, Level] | None = None
) -> Predictions:
    """What to expect of one attachment at each chunk size (bytes), tested or not.

    ValueError for a chunk size that is not positive, and without a model.
    """
    rows = [Expected(p) for chunk in chunks for p in models.predict(chunk, where)]
    return Predictions(models, tuple(rows))


def faults(models: Models, measured: xr.Dataset) -> Predictions:
    """Cells of another campaign against the models; ValueError if no cell has a model."""
    checks = models.check(measured)
    return Predictions(models, tuple(Expected(c.prediction, c.measured, c.outside) for c in checks))


@dataclass(frozen=True)
class Models(Drawn):
    """Models of a campaign's groups; `figure(page)`, pages of at most 6 rows of panels."""

    fits: Fits

    @property
    def models(self) -> tuple[Model, ...]:
        """One for each group of cells that differ in chunk size only."""
        return self.fits.models

    @property
    def unit(self) -> Unit:
        """Display unit: the paper's (Mb/s of 10**6 bits, 1/s, ms) unless another was asked for."""
        return self.fits.unit

    def predict(
        self, chunk: float, where: Mapping[str, Level] | None = None, level: float = LEVEL
    ) -> list[Prediction]:
        """What to expect of one attachment at a chunk size (bytes) that may be untested.

        Of the groups whose levels are as `where` says.  ValueError if there is no such model:
        other factors' levels are not interpolated.
        """
        matching = [model for model in self.models if _matches(model.key, where or {})]
        if not matching:
            wanted = ", ".join(f"{name} {level}" for name, level in (where or {}).items())
            raise ValueError(
                f"no model for {wanted or 'this campaign'}: models interpolate chunk sizes, "
                "other factors only where they were measured"
            )
        return [model.predict(chunk, 1, level) for model in matching]

    def check(self, ds: xr.Dataset, level: float = LEVEL) -> tuple[Check, ...]:
        """Cells of another campaign against the models: `outside` may be a fault.

        Corrected over the cells (Bonferroni): without any fault some cell is outside with a
        probability of at most 1 - level.  ValueError if no cell has a model.
        """
        by_key = {_named(model.key): model for model in self.models}
        varying = [name for name, _ in self.models[0].key] if self.models else []
        other = study(ds, self.fits.study.metric.name)
        pairs = []
        for cell in other.valued:
            model = by_key.get(_named(tuple((name, cell.level(name)) for name in varying)))
            if model is not None and cell.number("chunk") > 0:
                pairs.append((model, cell))
        if not pairs:
            raise ValueError("no cell of this campaign has a model")
        return check(pairs, level)

    @property
    def says(self) -> list[str]:
        """The choice of the form, the errors, what could not be done."""
        of = self.fits.study
        sentences = [*_chosen(self.models), *self._held_out()]
        for reason, number in Counter(reason for _, reason in self.fits.refused).items():
            sentences.append(f"{number} group{'s' * (number != 1)} without a model: {reason}.")
        if self.models:
            without = unfit(max(self.models, key=lambda m: len(m.trained)))
            if without:
                sentences.append(f"Too few chunk sizes to try {', '.join(without)}.")
            pools = {m.form.name: m for m in self.models}.values()
            sentences += [
                f"Beside how runs scatter, {m.form.formula} is itself {math.expm1(m.misfit):.1%} "
                "off at a typical chunk size."
                for m in pools
            ]
            if any(model.spread_freedom == 0 for model in self.models):
                sentences.append(
                    "One attachment has no prediction interval: another one may differ."
                )
            if min(model.freedom for model in self.models) < FEW:
                sentences.append(
                    "So few chunk sizes say little about the formula: predictions are wide."
                )
        return sentences + of.remarks

    def _held_out(self) -> list[str]:
        left = self.fits.hold_out
        if left != left:
            return []
        name, checks = chunk_text(left), self.fits.checks
        if not checks:
            return [f"{name} {self._no_check()}: there is no held-out error."]
        worst = max(checks, key=lambda check: abs(check.error))
        outside = sum(check.outside for check in checks)
        judged = sum(check.decides for check in checks)
        squares = [(check.prediction.value - check.measured) ** 2 for check in checks]
        rmse = math.sqrt(sum(squares) / len(squares))
        return [
            f"{name} held out: predictions are {abs(_median_error(checks)):.1%} off in the median "
            f"group and {abs(worst.error):.1%} in the worst; RMSE over groups "
            f"{text(rmse, self.unit)} {self.unit.label}; {outside} of {judged} measured "
            f"medians lie outside their prediction interval ({LEVEL:.0%} for all together)."
        ]

    def _no_check(self) -> str:
        """Why no level that was left out is held against a prediction."""
        left = self.fits.hold_out
        cells = [c for c in self.fits.study.valued if same(c.number("chunk"), left)]
        return "was left out, and the rest has no model" if cells else "was not measured"

    def table(self) -> pd.DataFrame:
        """One row per group: table 5, with in-sample and held-out errors apart.

        `cv error` is the relative RMS error at levels left out, `R2` of the fit to attachments.
        One held-out level has no variance between levels, so no R2.
        """
        import pandas as pd

        held = {id(check.prediction.key): check for check in self.fits.checks}
        unit, scale = self.unit.label, self.unit.divisor
        rows = []
        for model in self.models:
            row: dict[str, Json] = dict(model.key)
            row |= {
                "form": model.form.name,
                "levels": len(model.trained),
                f"in-sample RMSE, {unit}": model.rmse / scale,
                "in-sample R2": model.r_squared,
                "cv error": math.expm1(model.errors[model.form.name]),
            }
            check = held.get(id(model.key))
            if check is not None:
                row |= {
                    f"held-out measured, {unit}": check.measured / scale,
                    f"held-out predicted, {unit}": check.prediction.value / scale,
                    f"low, {unit}": check.prediction.low / scale,
                    f"high, {unit}": check.prediction.high / scale,
                    "held-out error": check.error,
                    "outside": check.outside if check.decides else None,
                }
            for name, (low, high) in model.parameter_bounds().items():
                row |= {name: model.parameters[name], f"{name} low": low, f"{name} high": high}
            rows.append(row)
        rows += [{**dict(key), "form": f"none: {reason}"} for key, reason in self.fits.refused]
        frame = pd.DataFrame(rows)
        frame.attrs |= {"metric": self.fits.study.metric.name, "unit": unit}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        groups = [
            {
                "levels": dict(model.key),
                "form": model.form.name,
                "formula": model.form.formula,
                "reason": model.form.reason,
                "parameters": model.parameters,
                "parameter_bounds": model.parameter_bounds(),
                "in_flight": model.in_flight,
                "chunks": model.chunks,
                "cross_validation": dict(model.errors),
                "rmse": model.rmse,
                "r_squared": model.r_squared,
                "misfit": model.misfit,
                "freedom": model.freedom,
                "spread": model.spread,
            }
            for model in self.models
        ]
        checks = [
            {
                **vars(c.prediction),
                "key": dict(c.prediction.key),
                "measured": c.measured,
                "outside": c.outside,
                "error": c.error,
            }
            for c in self.fits.checks
        ]
        refused = [{"levels": dict(key), "reason": why} for key, why in self.fits.refused]
        data: dict[str, Json] = plain(
            {
                "metric": self.fits.study.metric.name,
                "hold_out": self.fits.hold_out,
                "models": groups,
                "checks": checks,
                "refused": refused,
                "says": self.says,
            }
        )
        return data


def _chosen(models: Sequence[Model]) -> list[str]:
    if not models:
        return ["No group of cells can have a model."]
    number = Counter(model.form.name for model in models)
    total = len(models)
    sentences = []
    for form in FORMS:
        errors = [m.errors[form.name] for m in models if m.form.name == form.name]
        if errors:
            typical = math.expm1(float(np.median(errors)))
            sentences.append(
                f"{form.formula} in {number[form.name]} of {total} groups: of the formulas it is "
                f"the nearest at chunk sizes that it had not seen, {typical:.1%} off in the "
                f"typical group. What it means: {form.reason}."
            )
    return sentences


def _median_error(checks: Sequence[Check]) -> float:
    return float(np.median([abs(check.error) for check in checks]))


def _matches(key: Key, where: Mapping[str, Level]) -> bool:
    levels = dict(key)
    return all(name in levels and same(levels[name], level) for name, level in where.items())


def _named(key: Key) -> tuple[tuple[str, str], ...]:
    """A key that compares equal whether a level is 2 or 2.0."""
    return tuple((n, v if isinstance(v, str) else f"{float(v):g}") for n, v in key)
