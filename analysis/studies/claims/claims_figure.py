"""The picture of claims: claimed ranges (bars) beside measured cells and their intervals."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.draw.panels import INK
from fsmatrix.analysis.studies.claims.judge import JudgedClaim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.analysis.studies.claims.claims_result import Claims

# colour-blind safe (Okabe and Ito), and a mark each, so that no verdict is a colour alone
LOOK = {
    "holds": ("#009E73", "o"),
    "does not hold": ("#D55E00", "X"),
    "cannot be told": ("#E69F00", "D"),
    "cannot be tested": ("#7F7F7F", "s"),
}
BAND, EDGE = "#CFD8E3", "#8FA1B5"
WIDEST = 110  # characters of a reason in the picture


def pages(_found: Claims) -> int:
    """Number of figures."""
    return 1


def draw(result: Claims, _page: int = 0) -> Figure:
    """One row per claim; ratios on a log axis, correlations on a linear one below them."""
    parts = [
        [judged for judged in result.judged if judged.claim.scale == scale]
        for scale in ("ratio", "r")
    ]
    shown = [part for part in parts if part]
    notes = [
        "Bars: the claimed range with its slack; open ends run to the frame. Marks: cells; "
        "lines: their 95 % intervals (uncorrected; the verdicts are corrected over the claims). "
        "Hollow: no interval.",
        *result.remarks,
    ]
    tall = sum(len(part) for part in shown)
    figure, _ = drawing.frame(
        1, 1, title="", notes=notes, width=9.0, height=0.34 * tall + 0.5 * len(shown)
    )
    for ax in figure.axes:
        ax.remove()
    axes = figure.subplots(
        len(shown), 1, squeeze=False, gridspec_kw={"height_ratios": [len(p) + 1 for p in shown]}
    )
    for i, part in enumerate(shown):
        _panel(axes[i, 0], part)
    _legend(figure, result)
    return figure


def _panel(ax: Axes, judged: Sequence[JudgedClaim]) -> None:
    ratio = judged[0].claim.scale == "ratio"
    if ratio:
        ax.set_xscale("log")
    low, high = _limits(judged, ratio)
    for place, entry in enumerate(judged):
        _claim(ax, entry, place, (low, high))
    ax.axvline(1.0 if ratio else 0.0, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xlim(low, high)
    ax.set_ylim(len(judged) - 0.4, -0.6)
    ax.set_yticks(range(len(judged)), [entry.claim.id for entry in judged], fontsize=drawing.SMALL)
    ax.set_xlabel(
        "ratio (growth per doubling for a knee)" if ratio else "Pearson's r", fontsize=drawing.SMALL
    )
    ax.tick_params(labelsize=drawing.SMALL, colors=INK)
    ax.spines[["top", "right"]].set_visible(False)
    if ratio:
        _plain_ticks(ax, low, high)


def _plain_ticks(ax: Axes, low: float, high: float) -> None:
    coarse, fine = (1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    for steps in (coarse, fine):
        places = [m * 10.0**e for e in range(-6, 7) for m in steps if low <= m * 10.0**e <= high]
        if len(places) > 3:
            break
    ax.set_xticks(places, [f"{x:g}" for x in places])
    ax.set_xticks([], minor=True)


def _claim(ax: Axes, judged: JudgedClaim, place: int, limits: tuple[float, float]) -> None:
    """Cells of one claimed range share a part of the row: a knee has two."""
    groups = list(dict.fromkeys(cell.bounds for cell in judged.scope.cells)) or [
        judged.claim.bounds
    ]
    room = 0.76 / len(groups)
    for i, bounds in enumerate(groups):
        middle = place - 0.38 + room * (i + 0.5)
        _band(ax, bounds, middle, 0.94 * room, limits)
        _cells(ax, judged, bounds, middle, 0.76 * room)
    if not judged.scope.cells:
        text = textwrap.shorten(judged.why, WIDEST, placeholder=" ...")
        ax.annotate(
            text,
            (0.995, place),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=6.5,
            color=INK,
            zorder=5,
        )


def _band(
    ax: Axes, bounds: tuple[float, float], y: float, height: float, limits: tuple[float, float]
) -> None:
    left, right = max(bounds[0], limits[0]), min(bounds[1], limits[1])
    ax.barh(y, max(right - left, 0.0), left=left, height=height, color=BAND, zorder=1)
    for end in bounds:  # so that a range of no width is seen too
        if limits[0] < end < limits[1]:
            ax.plot([end, end], [y - height / 2, y + height / 2], color=EDGE, linewidth=1, zorder=2)


def _cells(
    ax: Axes, judged: JudgedClaim, bounds: tuple[float, float], middle: float, height: float
) -> None:
    colour, mark = LOOK[judged.kind]
    cells = [cell for cell in judged.scope.cells if cell.bounds == bounds]
    for i, cell in enumerate(sorted(cells, key=lambda cell: cell.value)):
        y = middle + (height * (i / (len(cells) - 1) - 0.5) if len(cells) > 1 else 0.0)
        if cell.decides:
            ax.plot([cell.low, cell.high], [y, y], color=colour, linewidth=0.8, zorder=3)
        ax.plot(
            cell.value,
            y,
            marker=mark,
            markersize=3.0,
            color=colour,
            zorder=4,
            markerfacecolor=colour if cell.decides else "white",
            linestyle="",
        )


def _limits(judged: Sequence[JudgedClaim], ratio: bool) -> tuple[float, float]:
    if not ratio:
        return -1.0, 1.0
    ends = [1.0]
    for claim in judged:
        ends += [end for end in claim.claim.bounds if 0 < end < math.inf]
        for cell in claim.scope.cells:
            ends += [v for v in (cell.value, cell.low, cell.high) if 0 < v < math.inf]
    return min(ends) / 1.3, max(ends) * 1.3


def _legend(figure: Figure, claims: Claims) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    there = {judged.kind for judged in claims.judged}
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=colour, marker=mark, linestyle="", markersize=5, label=kind)
        for kind, (colour, mark) in LOOK.items()
        if kind in there
    ]
    handles.append(Patch(color=BAND, label="claimed"))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=len(handles),
        frameon=False,
        fontsize=drawing.SMALL,
        title=f"Claims of {claims.study.title}",
        title_fontsize=11,
        alignment="left",
    )
