"""The colour of a cell: the leader's, saturated where proven, pale where likely.

Text on it has a contrast of at least 4.5 (WCAG 2.1, 1.4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsmatrix.analysis.standings.standings import Standing
from fsmatrix.analysis.stats.certainty import Certainty

STEPS = (1.25, 2.0)  # margins from which a colour is one step stronger
PROVEN = (0.6, 0.8, 1.0)  # share of the leader's colour for each step
LIKELY = (0.14, 0.2, 0.26)
SHARED = 0.5  # of the share, where several lead: one text must be legible on each of their colours
GREY, WHITE, INK = "#d5d9de", "#ffffff", "#000000"
HATCHED = "repeating-linear-gradient(45deg, #fff 0 5px, #b9c0c8 5px 7px)"
OTHER = "#888888"  # a target without a colour


@dataclass(frozen=True)
class Shade:
    """CSS values."""

    background: str
    text: str
    border: str  # the leader's own colour


def shade(cell: Standing, colours: Mapping[str, str]) -> Shade:
    """The colours of a cell; of several leaders a part each."""
    if cell.state is Certainty.INVALID:
        return Shade(HATCHED, INK, "#8c959f")
    if cell.state is Certainty.EQUAL:
        return Shade(GREY, INK, "#8c959f")
    if not cell.leaders:
        return Shade(WHITE, INK, "#8c959f")
    share = strength(cell)
    own = [colours.get(name, OTHER) for name in cell.leaders]
    if len(own) == 1:
        background = mixed(own[0], share)
        return Shade(background, legible(background), own[0])
    mix = [mixed(colour, share * SHARED) for colour in own]
    width = 100 / len(mix)
    stops = ", ".join(f"{c} {i * width:.0f}% {(i + 1) * width:.0f}%" for i, c in enumerate(mix))
    return Shade(f"linear-gradient(115deg, {stops})", INK, own[0])


def strength(cell: Standing) -> float:
    """Share of the leader's colour: by how much it leads, and how sure."""
    step = sum(cell.margin >= least for least in STEPS)
    return (PROVEN if cell.state is Certainty.PROVEN else LIKELY)[step]


def mixed(colour: str, share: float) -> str:
    """So much of a colour, the rest white; "#rrggbb"."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)


def legible(background: str) -> str:
    """Dark or white text, whichever has the larger contrast."""
    return max((INK, WHITE), key=lambda text: contrast(text, background))


def contrast(first: str, two: str) -> float:
    """Contrast of two colours, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((_luminance(first), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
