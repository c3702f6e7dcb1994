"""Files written aside and renamed, so that a reader never meets half of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def aside(out: Path) -> Iterator[Path]:
    """A path of the same folder and suffix to write to; it becomes `out` if nothing is raised."""
    part = out.with_name(f".{out.stem}.{os.getpid()}.tmp{out.suffix}")
    try:
        yield part
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def numbered(out: Path, number: int) -> Path:
    """out.png, out-2.png, out-3.png... for 1, 2, 3..."""
    return out if number == 1 else out.with_stem(f"{out.stem}-{number}")
