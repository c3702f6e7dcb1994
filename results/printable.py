"""Text that came from anywhere, as it may be shown."""

from __future__ import annotations

KEPT = "\n\t\u202f"  # line ends, tabs, and the narrow space of our own numbers


def printable(text: str) -> str:
    """`text` without control characters: a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in KEPT else "\ufffd" for sign in text)
