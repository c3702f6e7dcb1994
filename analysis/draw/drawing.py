"""The frame of a matplotlib figure: panels, title, and what must be said below them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from fsmatrix.analysis.draw.charts import PALETTE
from fsmatrix.analysis.draw.panels import GRID, INK
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import MARKS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vP*X"
SMALL, MEDIUM = 7.5, 9.0
TITLE_WIDTH = 7.5  # characters of the title in an inch: beside it stands the legend
HOLLOW = "Hollow: too few attachments for an interval; a whisker decides nothing."
NOTE_WIDTH = 15.5  # characters of a note in an inch of the figure


def weak(medians: Iterable[Median]) -> list[str]:
    """The note that whiskers need if some of these have too few attachments."""
    if any(median.kind in MARKS for median in medians):
        return ["Some whiskers are ranges of fewer than 6 attachments and decide nothing."]
    return []


def colour(index: int) -> str:
    """The colour of a series, colour-blind safe; after ten they come again."""
    return PALETTE[index % len(PALETTE)]


def frame(
    rows: int,
    columns: int,
    *,
    title: str,
    notes: Sequence[str],
    width: float = 2.9,
    height: float = 2.4,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns panels of width x height inches; notes stand below them."""
    from fsmatrix.analysis.draw.laid_out import LaidOut  # matplotlib takes a moment to load

    wide = max(columns * width + 0.6, 6.4)
    lines = [line for note in notes for line in textwrap.wrap(note, int(NOTE_WIDTH * wide))]
    size = (wide, rows * height + 0.75 + 0.14 * len(lines))
    figure = LaidOut(figsize=size, dpi=110)
    figure.suptitle(
        "\n".join(textwrap.wrap(title, int(TITLE_WIDTH * wide))), fontsize=11, color=INK
    )
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=SMALL, x=0.01, ha="left", color=INK)
    panels = figure.subplots(rows, columns, squeeze=False)
    axes = [[panels[row, column] for column in range(columns)] for row in range(rows)]
    for row in axes:
        for ax in row:
            _plain(ax)
    return figure, axes


def panel(
    *, title: str, notes: Sequence[str], width: float = 2.9, height: float = 2.4
) -> tuple[Figure, Axes]:
    """A figure of one panel; see `frame`."""
    figure, ((ax,),) = frame(1, 1, title=title, notes=notes, width=width, height=height)
    return figure, ax


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=SMALL, colors=INK)


class Spanned(Protocol):
    """A value with its interval, as medians are; SI units."""

    @property
    def median(self) -> float:
        """The value."""

    @property
    def low(self) -> float:
        """The lower end of its interval."""

    @property
    def high(self) -> float:
        """The upper end."""


def whiskers(values: Sequence[Spanned], scale: float) -> list[list[float]]:
    """Lengths [side, value] below and above values as matplotlib takes them; never negative."""
    return [
        [max(v.median - v.low, 0.0) / scale for v in values],
        [max(v.high - v.median, 0.0) / scale for v in values],
    ]


def line(
    ax: Axes,
    x: Sequence[float],
    medians: Sequence[Median],
    scale: float,
    index: int,
    *,
    label: str | None = None,
    marker: str = "",
    dashes: str = "-",
    across: Sequence[Spanned] = (),
    x_scale: float = 1.0,
) -> None:
    """Medians with their intervals over x, the `index`-th line of its panel.

    Hollow if any of them has too few attachments for an interval that decides (`HOLLOW`).
    `across`: what x is of (x times `x_scale`), with intervals that are drawn too.
    """
    firm = all(median.decides for median in medians)
    ax.errorbar(
        x,
        [median.median / scale for median in medians],
        yerr=whiskers(medians, scale),
        xerr=whiskers(across, x_scale) if across else None,
        color=colour(index),
        marker=marker or MARKERS[index % len(MARKERS)],
        markersize=4,
        markerfacecolor=colour(index) if firm else "white",
        linewidth=1.1,
        linestyle=dashes,
        capsize=2,
        label=label,
    )


def hollow(medians: Iterable[Median]) -> list[str]:
    """The note that lines need if some of these decide nothing."""
    return [] if all(median.decides for median in medians) else [HOLLOW]


def legend(figure: Figure, axes: Sequence[Sequence[Axes]], title: str = "") -> None:
    """One legend for all panels, each label once, at the right."""
    handles: dict[str, Artist] = {}
    for ax in (ax for row in axes for ax in row):
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside right upper",
            fontsize=SMALL,
            title=title or None,
            title_fontsize=SMALL,
            frameon=False,
        )
