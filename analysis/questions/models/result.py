"""Models of a campaign's groups: sentences, a table, plain data, pictures and predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.roles import Key, same
from fsmatrix.analysis.data.study import study
from fsmatrix.analysis.questions.models.forms import FORMS
from fsmatrix.analysis.questions.models.model import (
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

FEW = 3  # degrees of freedom: the factor of a 95 % interval is above 3 SD below


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
