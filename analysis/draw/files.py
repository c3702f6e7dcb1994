"""Files of figures, tables and pages: their names, and that a reader never meets half of one."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from fsmatrix.results.files import asides


def aside(out: Path) -> AbstractContextManager[Path]:
    """A path of the same folder and suffix to write to; it becomes `out` if nothing is raised."""
    return asides.replacing(out, out.with_name(f".{out.stem}.{os.getpid()}.tmp{out.suffix}"))


def numbered(out: Path, number: int) -> Path:
    """out.png, out-2.png, out-3.png... for 1, 2, 3..."""
    return out if number == 1 else out.with_stem(f"{out.stem}-{number}")
