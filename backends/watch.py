"""A look at a storage system during a run, again and again."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Looks at a storage system again and again, over one connection."""

    def look(self) -> list[str]:
        """What is wrong now, or was since the look before (empty: nothing known)."""

    def close(self) -> None:
        """End the connection; harmless if there is none."""
