"""Names of the files of figures and tables."""

from __future__ import annotations

from pathlib import Path


def numbered(out: Path, number: int) -> Path:
    """out.png, out-2.png, out-3.png... for 1, 2, 3..."""
    return out if number == 1 else out.with_stem(f"{out.stem}-{number}")
