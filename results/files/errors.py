"""What is wrong with a file of results: which file, and why."""

from __future__ import annotations

from pathlib import Path


class ResultError(Exception):
    """A results file cannot be used: which one, and why."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason
