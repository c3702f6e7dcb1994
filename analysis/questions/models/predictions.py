"""What models expect: at chunk sizes that nobody tested, and against another campaign (faults)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xarray as xr

from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.questions.models.model import Prediction, chunk_text
from fsmatrix.analysis.questions.models.result import Models
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.units import Level, text
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_DRAWN = 40  # rows of the figure


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
