"""How sure an answer is: the five words of every screen, figure and `--json`, surest first.

Each question has answers of its own (faster, does not hold, met): this says how sure they are,
with one mark and one colour for each.  It tests nothing.
"""

from __future__ import annotations

from enum import StrEnum


class Certainty(StrEnum):
    """Of one answer; `meaning` is what readers are told."""

    PROVEN = "proven"
    LIKELY = "likely"
    EQUAL = "equal"
    UNDECIDED = "undecided"
    INVALID = "invalid"

    @property
    def mark(self) -> str:
        """One character."""
        return _LOOKS[self][0]

    @property
    def colour(self) -> str:
        """In figures, "#rrggbb"; told apart by colour-blind readers (Okabe and Ito)."""
        return _LOOKS[self][1]

    @property
    def meaning(self) -> str:
        """Of who is ahead in a cell, in words."""
        return _LOOKS[self][2]

    @property
    def settled(self) -> bool:
        """Whether it holds, corrected over all that was asked, a difference or none."""
        return self in (Certainty.PROVEN, Certainty.EQUAL)


WEAKEST_FIRST = (Certainty.UNDECIDED, Certainty.LIKELY, Certainty.EQUAL, Certainty.PROVEN)
_LOOKS = {
    Certainty.PROVEN: ("●", "#0072B2", "ahead, also with all cells counted together"),
    Certainty.LIKELY: (
        "○", "#56B4E9", "one cell alone says so (95 % sure): not proven, and may be chance",
    ),
    Certainty.EQUAL: ("=", "#009E73", "no difference that matters"),
    Certainty.UNDECIDED: ("?", "#6e7781", "the difference may be chance"),
    Certainty.INVALID: ("×", "#6e7781", "no valid run of a target: nothing to compare"),
}  # fmt: skip
