"""What goes wrong here, as one sentence for the run's record."""

from __future__ import annotations

FULL = "No space left on device"


class OltpError(Exception):
    """A database cannot be made, filled, used or checked; the text says why and what to do."""


def told(text: str, lines: int = 3) -> str:
    """The sentence for what a program printed: the full disk, else its errors, else its end."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    full = [line for line in said if FULL in line]
    errors = [line for line in said if any(word in line for word in ("ERROR", "FATAL", "PANIC"))]
    errors = errors or [line for line in said if "error:" in line]
    chosen = full[:1] or errors[:lines] or said[-lines:]
    return " | ".join(chosen) or "it printed nothing"
