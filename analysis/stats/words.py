"""How a ratio is said to somebody who knows no statistics: by how much, how often, how sure."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.units import brief

TIMES = 1.95  # a ratio from here on, rounded 2.0, is said as times, below it in per cent
NONE = 0.0005  # a share that is said as none
CHANCE = "may be chance"
IMPORTED = "Imported runs are not known to be independent: none of them proves more"


def lead(ratio: float, more_is_faster: bool = True, other: str = "") -> str:
    """By how much a is ahead of b, or behind: "20 times as fast", "1/20 as fast", "7 % slower".

    Of what is no speed: "20 times as high", "7 % lower".  `other`: b, if it is to be named.
    """
    as_, than = (f" as {other}", f" than {other}") if other else ("", "")
    if abs(ratio - 1) < NONE:
        equal = "equally fast" if more_is_faster else "equal"
        return f"{'as fast' if more_is_faster else 'as high'}{as_}" if other else equal
    if max(ratio, 1 / ratio) >= TIMES:
        count = f"{brief(ratio)} times" if ratio > 1 else f"1/{brief(1 / ratio)}"
        return f"{count} as {'fast' if more_is_faster else 'high'}{as_}"
    up, down = ("faster", "slower") if more_is_faster else ("higher", "lower")
    return f"{_percent(ratio)} % {up if ratio > 1 else down}{than}"


def short(ratio: float) -> str:
    """A ratio in the fewest characters: "+14 %", "×25", "-7 %", "1/20"."""
    up, ratio = ratio >= 1, max(ratio, 1 / ratio)
    if ratio < TIMES:
        percent = 100 * (ratio - 1 if up else 1 - 1 / ratio)
        return f"{'+' if up else '-'}{percent:.{0 if percent >= 1 else 1}f} %"
    count = f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}".replace(",", "\u202f")
    return f"{'×' if up else '1/'}{count}"


def span(low: float, high: float) -> str:
    """From one ratio to another: "-1 to +10 %", or "0.9 to 20 times" where one is large."""
    if min(low, 1 / high) <= 1 / TIMES:
        shown = [brief(low), brief(high)]
        return f"{shown[0]} times" if shown[0] == shown[1] else f"{' to '.join(shown)} times"
    shown = [_signed(ratio) for ratio in (low, high)]
    return f"{shown[0]} %" if shown[0] == shown[1] else f"{' to '.join(shown)} %"


def _signed(ratio: float) -> str:
    if abs(ratio - 1) < NONE:
        return "0"
    return f"{'+' if ratio > 1 else '-'}{_percent(ratio)}"


def _percent(ratio: float) -> str:
    """How far a ratio is from 1, to a tenth below 10 %."""
    percent = 100 * abs(ratio - 1)
    return f"{percent:.{1 if percent < 9.95 else 0}f}".removesuffix(".0")


def inverted(ratio: Ratio) -> Ratio:
    """The ratio b / a."""
    parts = ratio.parts[::-1] if len(ratio.parts) > 1 else (-ratio.parts[0],)
    return replace(
        ratio,
        ratio=1 / ratio.ratio,
        low=1 / ratio.high,
        high=1 / ratio.low,
        units=ratio.units[::-1],
        parts=parts,
    )


def unit(ratio: Ratio) -> str:
    """What counts as one independent value: blocks, or attachments."""
    return "blocks" if ratio.design == "paired by block" else "attachments"


def few(have: int, least: int = SMALLEST, what: str = "attachments") -> str:
    """That so many blocks or attachments are too few to prove anything, and how many are not."""
    many = f"{have} {what} are" if have != 1 else f"1 {what.removesuffix('s')} is"
    return f"{many} too few; {least} are needed"


def agreeing(ratio: Ratio) -> tuple[int, int]:
    """(blocks whose ratio is on the same side of 1 as the whole, all blocks); (0, 0) unpaired."""
    if ratio.design != "paired by block":
        return 0, 0
    (logs,) = ratio.parts
    return int(np.count_nonzero(np.sign(logs) == np.sign(math.log(ratio.ratio)))), logs.size


def every_time(ratio: Ratio) -> bool:
    """Whether all blocks agree; unpaired, whether all values of one side exceed the other's."""
    if ratio.design == "paired by block":
        same, count = agreeing(ratio)
        return same == count > 1
    a, b = ratio.parts
    if min(a.size, b.size) < 2:
        return False
    return bool(a.min() > b.max() or a.max() < b.min())


def how_often(ratio: Ratio) -> str:
    """In how many blocks it is so, with a blank before: " in all 6 blocks"; or ""."""
    same, count = agreeing(ratio)
    if count < 2:
        return ""
    every = "both" if count == 2 else f"all {count}"
    return f" in {every if same == count else f'{same} of {count}'} blocks"


def sure(ratio: Ratio) -> str:
    """How sure a ratio is: "95 % sure: 1.3 to 1.5", of few values "only 75 % sure: ...", or ""."""
    if math.isnan(ratio.low):
        return ""
    share = f"{100 * ratio.level:.3g}" if ratio.decides else f"only {100 * ratio.coverage:.3g}"
    return f"{share} % sure: {brief(ratio.low)} to {brief(ratio.high)}"


def whole(estimate: Ratio, more_is_faster: bool = True, other: str = "") -> str:
    """By how much, how often, how sure: "7 % faster in 5 of 6 blocks (ratio 1.07, 95 % ...)".

    `other`: what it is held against, if that is to be named.
    """
    by = lead(estimate.ratio, more_is_faster, other)
    ratio = [] if estimate.ratio >= TIMES else [f"ratio {brief(estimate.ratio)}"]
    beside = ", ".join([*ratio, *([text] if (text := sure(estimate)) else [])])
    return f"{by}{how_often(estimate)}" + (f" ({beside})" if beside else "")


def not_proven(ratio: Ratio, what: str) -> str:
    """Why a difference in `what` ("this cell") is not proven."""
    if not every_time(ratio):
        return CHANCE
    have = min(ratio.units)
    if have < SMALLEST:
        return few(have, SMALLEST, unit(ratio))
    return f"for {what} alone not yet proven"
