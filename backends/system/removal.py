"""Removing what other kernels are removing too."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

ATTEMPTS = 1000
PAUSE = 0.5  # seconds between two attempts on a mount that remembers names
_BUSY = 10  # attempts without one


def remove_tree(path: Path, memory: float = 0.0) -> None:
    """Remove a directory and all in it; what is gone already is no error.  OSError if not.

    `memory`: seconds for which this kernel may remember names that others have removed, and miss
    names that they have made.
    """
    deadline = time.monotonic() + memory
    for attempt in range(ATTEMPTS):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        if attempt >= _BUSY and time.monotonic() < deadline:
            time.sleep(PAUSE)
    raise OSError(f"{path} cannot be removed: names in it keep vanishing")
