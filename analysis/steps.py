"""What an analysis is doing, for whoever waits: `step("comparing 3 targets")`.

A step is a record of Python's logging, so that it costs nothing where nobody listens; the command
line shows it (cli/progress.py).
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("fsmatrix.steps")


def step(text: str) -> None:
    """Say what begins now."""
    LOGGER.info(text)
