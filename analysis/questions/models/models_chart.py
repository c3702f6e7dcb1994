"""The figure of models over chunk size: curves with prediction intervals over the medians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key, same
from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.questions.models.metric_model import Fits, Model, chunk_text, panel_key
from fsmatrix.analysis.questions.models.models_result import Models
from fsmatrix.analysis.stats.estimates.medians import LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 6  # of panels in one figure
POINTS = 60  # of a curve
NOTE = (
    "Line: the chosen form (above each panel). Band: 95 % prediction interval of one attachment; "
    "dashed and lighter outside the chunk sizes of the fit: extrapolation. Dots: medians over "
    "attachments with their intervals; crosses: held out, not in the fit."
)


def _rows(result: Models) -> list[Key]:
    """What each row of panels is of."""
    return list(dict.fromkeys(panel_key(model.key) for model in result.models))


def pages(result: Models) -> int:
    """Number of figures."""
    return max(math.ceil(len(_rows(result)) / MOST_ROWS), 1)


def draw(result: Models, page: int) -> Figure:
    """One row of panels for each key, one column for each pattern; ValueError without a model."""
    rows = _rows(result)[page * MOST_ROWS : (page + 1) * MOST_ROWS]
    if not rows:
        raise ValueError(" ".join(result.says))
    fits = result.fits
    of, patterns = fits.study, fits.study.levels("pattern") or [""]
    weak = drawing.hollow(cell.median for cell in of.valued)
    title = f"{of.metric.title} over chunk size: models"
    figure, axes = drawing.frame(
        len(rows), len(patterns), title=title, notes=[NOTE, *weak, *of.remarks]
    )
    for r, row in enumerate(rows):
        for c, pattern in enumerate(patterns):
            ax = axes[r][c]
            models = [m for m in fits.models if panel_key(m.key) == row]
            models = [m for m in models if dict(m.key).get("pattern", "") in (pattern, "")]
            _panel(ax, fits, models)
            where = [of.label("pattern", pattern)] if pattern != "" else []
            where += [of.describe(row)] if of.describe(row) != "all" else []
            lines = [", ".join(where), *(m.form.formula for m in models)]
            ax.set_title("\n".join(lines), fontsize=7.5)
            if c == 0:
                ax.set_ylabel(f"{fits.unit.label}, log scale", fontsize=8)
            if r == len(rows) - 1:
                ax.set_xlabel(of.title("chunk"), fontsize=8)
    return figure


def _panel(ax: Axes, fits: Fits, models: Sequence[Model]) -> None:
    if not models:
        ax.annotate("no model", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=8)
        ax.set_xticks([])
        ax.set_yticks([])
        return
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    shown: list[Values] = []
    for model in models:
        held = [
            cell
            for cell in fits.study.series("chunk").get(model.key, [])
            if same(cell.number("chunk"), fits.hold_out)
        ]
        _curve(ax, model, [c.number("chunk") for c in (*model.trained, *held)], fits.unit.divisor)
        _points(ax, model.trained, "o", 0, fits.unit.divisor)
        _points(ax, held, "X", 5, fits.unit.divisor)
        shown += [*model.trained, *held]
    ticks = sorted({cell.number("chunk") for cell in shown})
    ax.set_xticks(ticks, [chunk_text(tick) for tick in ticks], rotation=35, ha="right")
    medians = [cell.median.median / fits.unit.divisor for cell in shown]
    ax.set_ylim(min(medians) / 4, max(medians) * 4)
    ax.xaxis.minorticks_off()


def _curve(ax: Axes, model: Model, measured: Sequence[float], scale: float) -> None:
    low, high = float(model.chunks.min()), float(model.chunks.max())
    shade = drawing.colour(0)
    for part in ((min(measured) / 2, low), (low, high), (high, max(measured) * 2)):
        inside = part == (low, high)
        grid = np.geomspace(*part, POINTS)
        value, factor = model.band(grid, 1, LEVEL)
        ax.plot(grid, value / scale, color=shade, linestyle="-" if inside else "--", linewidth=1.2)
        ax.fill_between(
            grid,
            value / factor / scale,
            value * factor / scale,
            color=shade,
            alpha=0.2 if inside else 0.08,
            linewidth=0,
        )


def _points(ax: Axes, cells: Sequence[Values], mark: str, shade: int, scale: float) -> None:
    for cell in cells:
        at = [cell.number("chunk")]
        drawing.line(ax, at, [cell.median], scale, shade, marker=mark, dashes="")
