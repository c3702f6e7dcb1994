"""The figure of a comparison: ratios with intervals on a log axis, sorted."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsmatrix.analysis.draw import drawing
from fsmatrix.analysis.draw.panels import INK
from fsmatrix.analysis.stats.certainty import Certainty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsmatrix.analysis.comparison.compared import Compared
    from fsmatrix.analysis.comparison.comparison_result import Comparison

MOST_ROWS = 36  # cells on a page
LABEL = 76  # characters of a cell's name in a line
# verdict -> (marker, colour, filled): told apart without colour too
STYLES: dict[str, tuple[str, str, bool]] = {
    "faster": ("^", Certainty.PROVEN.colour, True),
    "slower": ("v", "#D55E00", True),
    "no difference": ("s", Certainty.EQUAL.colour, True),
    "too few": ("o", Certainty.UNDECIDED.colour, False),
    "single": ("x", Certainty.UNDECIDED.colour, True),
    "no data": ("x", Certainty.INVALID.colour, True),
}


def ordered(of: Comparison) -> list[Compared]:
    """Cells by their ratio, the largest first."""
    return sorted(of.cells, key=lambda cell: (-cell.ratio.ratio, cell.named))


def pages(of: Comparison) -> int:
    """Number of pages of at most MOST_ROWS cells."""
    return max(math.ceil(len(of.cells) / MOST_ROWS), 1)


def draw(of: Comparison, page: int = 0) -> Figure:
    """One page."""
    cells = ordered(of)[page * MOST_ROWS : (page + 1) * MOST_ROWS]
    a, b = _plain(of.a), _plain(of.b)
    many = f" (page {page + 1} of {pages(of)})" if pages(of) > 1 else ""
    figure, ax = drawing.panel(
        title=f"{of.title}: {a} over {b}{many}",
        notes=_notes(of, cells),
        width=8.6,
        height=0.27 * len(cells) + 1.1,
    )
    ax.set_xscale("log")
    ax.grid(visible=False, axis="y")
    ax.axvline(1, color=INK, linewidth=0.9)
    ax.axvspan(
        1 / (1 + of.tolerance),
        1 + of.tolerance,
        color=Certainty.EQUAL.colour,
        alpha=0.12,
        linewidth=0,
    )
    for place, cell in enumerate(cells):
        _cell(ax, of, cell, -place)
    labels = ["\n".join(textwrap.wrap(_plain(c.named) or "the only cell", LABEL)) for c in cells]
    places = [-float(place) for place in range(len(cells))]
    _mean(ax, of)
    labels, places = ["geometric mean", *labels], [1.2, *places]
    ax.set_yticks(places, labels, fontsize=drawing.SMALL)
    ax.set_ylim(-len(cells) + 0.4, 1.9)
    _ticks(ax, of, cells)
    better = "to the right" if of.metric.more_is_better else "to the left"
    ax.set_xlabel(f"typical ratio, {a} / {b} ({a} is better {better})", fontsize=drawing.MEDIUM)
    drawing.legend(figure, [[ax]], "verdict")
    return figure


def _plain(text: str) -> str:
    """Text of a campaign; matplotlib would read formulas between dollar signs."""
    return text.replace("$", r"\$")


def _cell(ax: Axes, of: Comparison, cell: Compared, place: float) -> None:
    marker, shade, filled = STYLES["too few" if of.one_machine else cell.kind]
    ratio = cell.ratio
    if math.isfinite(ratio.low):
        ax.plot(
            [ratio.low, ratio.high],
            [place, place],
            color=shade,
            linewidth=1.3,
            linestyle="-" if ratio.decides else ":",
        )
    ax.plot(
        [ratio.ratio],
        [place],
        marker,
        color=shade,
        markersize=6,
        linestyle="none",
        markerfacecolor=shade if filled else "white",
        label="not judged" if of.one_machine else textwrap.fill(of.word(cell.kind), 24),
    )
    if cell.doubts:
        ax.annotate(
            "!",
            (ratio.ratio, place),
            (0, 3),
            textcoords="offset points",
            fontsize=8,
            ha="center",
            color="#9a6700",
            fontweight="bold",
        )


def _mean(ax: Axes, of: Comparison) -> None:
    if of.mean is None:
        value = of.mean_ratio
        ax.plot([value], [1.2], "D", color=INK, markersize=6, markerfacecolor="white")
    else:
        mean = of.mean.mean
        ax.plot(
            [mean.low, mean.high],
            [1.2, 1.2],
            color=INK,
            linewidth=1.8,
            linestyle="-" if mean.decides else ":",
        )
        ax.plot([mean.ratio], [1.2], "D", color=INK, markersize=6)


def _ticks(ax: Axes, of: Comparison, cells: Sequence[Compared]) -> None:
    """Ticks at plain ratios."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ends = [
        v
        for c in cells
        for v in (c.ratio.low, c.ratio.ratio, c.ratio.high)
        if math.isfinite(v) and v > 0
    ]
    ends += [1 / (1 + of.tolerance), 1 + of.tolerance]
    low, high = min(ends), max(ends)
    margin = (high / low) ** 0.04
    low, high = low / margin, high * margin
    ax.set_xlim(low, high)
    ax.xaxis.set_major_locator(FixedLocator(ratio_ticks(low, high)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    ax.grid(visible=True, axis="x", color="#e4e7eb", linewidth=0.8)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Plain numbers between two ratios, at most nine, at least two where there are any."""
    for parts in (100, 50, 20, 10) if low > 0.4 and high < 2.5 else ():
        ticks = [i / parts for i in range(math.ceil(low * parts), math.floor(high * parts) + 1)]
        if 1 < len(ticks) <= 9:
            return ticks
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in (
        [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9],
        [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8],
        [1, 1.5, 2, 3, 4, 5, 7],
        [1, 2, 5],
        [1],
    ):
        ticks = [step * 10.0**k for k in decades for step in steps]
        ticks = [t for t in ticks if low <= t <= high]
        if len(ticks) <= 9:
            return ticks
    every = -(-len(ticks) // 9)
    return [t for t in ticks if round(math.log10(t)) % every == 0]


def _notes(of: Comparison, cells: Sequence[Compared]) -> list[str]:
    notes = [f"Shaded: differences of at most {100 * of.tolerance:.3g} %."]
    if any(math.isfinite(cell.ratio.low) for cell in cells):
        notes[0] += (
            f" Lines: {100 * (1 - of.alpha):.3g} % sure, each cell for itself; verdicts are "
            + ("too." if of.correction == "none" else f"over {of.family} cells together.")
        )
    if any(not cell.ratio.decides and math.isfinite(cell.ratio.low) for cell in cells):
        notes.append("Dotted: too few blocks to prove anything.")
    if any(cell.doubts for cell in cells):
        notes.append("!: in doubt, see the text.")
    if of.mean is None:
        notes.append(f"How sure the geometric mean is cannot be said: {of.mean_missing}.")
    if of.alone:
        notes.append(f"{len(of.alone)} cells that only one side has are not shown.")
    return notes
