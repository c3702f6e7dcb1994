"""Chunks of operations for players, and what opens the players of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import Implementation, Player

IMPLEMENTATIONS = [name for name in get_args(Implementation) if name != "auto"]
Open = Callable[..., Player]


def op(kind: Kind, file: int = 0, offset: int = 0, size: int = 0, **more: int) -> tuple[Any, ...]:
    """One operation as a tuple in OP's order."""
    return (
        kind,
        more.get("flags", 0),
        more.get("stream", 0),
        file,
        more.get("file2", 0),
        offset,
        size,
        more.get("time", 0),
    )


def chunk(*ops: tuple[Any, ...], names: tuple[bytes, ...] = (), first: int = 0) -> Chunk:
    """A chunk of such tuples."""
    return Chunk(np.array(list(ops), dtype=OP), names, first)
