"""What goes wrong here, as one sentence for the run's record."""

from __future__ import annotations

import re

NO_SPACE = "No space left on device"
_FULL = re.compile(rf"{NO_SPACE}|wrote only \d+ of \d+ bytes")  # PostgreSQL's words for it


class OltpError(Exception):
    """A database cannot be made, filled, used or checked; the text says why and what to do."""


def is_full(text: str) -> bool:
    """Whether a program says that the disk, or a quota, is full."""
    return bool(_FULL.search(text))


def reason_of(text: str, lines: int = 3) -> str:
    """The sentence for what a program printed: the full disk, else its errors, else its end."""
    printed = [line.strip() for line in text.splitlines() if line.strip()]
    full = [line for line in printed if is_full(line)]
    full = [line if NO_SPACE in line else f"{line} ({NO_SPACE})" for line in full]
    errors = [line for line in printed if any(word in line for word in ("ERROR", "FATAL", "PANIC"))]
    errors = errors or [line for line in printed if "error:" in line]
    chosen = full[:1] or errors[:lines] or printed[-lines:]
    return " | ".join(chosen) or "it printed nothing"
