"""Waiting in tests: for a state, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds; for what must end: a bound for a hang on a busy machine, not a measure


def until(reached: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait; an AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
