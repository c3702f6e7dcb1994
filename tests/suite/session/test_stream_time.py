"""What making chunks costs counts between operations only."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fsmatrix.backends.player.ops import OP, Chunk
from fsmatrix.suite.session.stream import Source

NAP = 0.05  # seconds


def made(*operations: int) -> Iterator[Chunk]:
    """Chunks of so many operations, each a nap apart, and a nap at the end."""
    for count in operations:
        time.sleep(NAP)
        yield Chunk(np.zeros(count, dtype=OP))
    time.sleep(NAP)


def spent(*operations: int) -> int:
    source = Source(made(*operations))  # type: ignore[arg-type]
    source.peek()
    while source.take() is not None:
        pass
    return source.spent_ns


def test_time_before_the_first_and_after_the_last_operation_is_not_the_windows() -> None:
    assert spent(5) == 0
    assert spent(0, 0, 5) == 0
    assert spent(0, 5, 5, 5) >= 2 * NAP * 1e9
