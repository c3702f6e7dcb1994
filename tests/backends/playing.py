"""Chunks of operations for players, what opens them, and the contract of drivers."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from fsmatrix.backends.player.lanes import (
    KINDS,
    SORTS,
    Player,
    PlayerOptions,
    PlayerResult,
    sort_of,
)
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import Implementation, open_player
from fsmatrix.results.histogram import coarse

IMPLEMENTATIONS = [name for name in get_args(Implementation) if name != "auto"]
Open = Callable[..., Player]
SEED = 7
OPENED: weakref.WeakSet[Player] = weakref.WeakSet()  # by places


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


def adds_up(result: PlayerResult) -> bool:
    """Whether latencies over time are those of the histogram, each sort's own."""
    whole = coarse(result.counts)
    own = [whole[sort_of(range(KINDS)) == sort].sum(axis=0) for sort in range(len(SORTS))]
    return result.timeline.sum(axis=1).tolist() == np.array(own).tolist()


class PlayerPlace(ABC):
    """An empty root of its own for a driver of the C player."""

    driver: str

    @abstractmethod
    def root(self) -> str:
        """What the driver gets."""

    def opened(self, *, root: str = "", **more: Any) -> Player:
        """A player of this process."""
        given: dict[str, Any] = {"slots": 8, "max_op_bytes": 1 << 20, "seed": SEED}
        given |= {"stop_on_error": False} | more
        player = open_player(self.driver, root or self.root(), PlayerOptions(**given), "c")
        OPENED.add(player)
        return player

    def played(self, *ops: tuple[Any, ...], names: tuple[bytes, ...] = (), **more: Any) -> Any:
        """The result of a player that plays this and is closed."""
        player = self.opened(**more)
        try:
            player.play(chunk(*ops, names=names))
            player.drain()
            return player.result()
        finally:
            player.close()

    def wait_in_closing(self, depth: int, threads: int) -> None:
        """Pieces that cross borders of objects, and a close right after the last is sent."""
        pieces = [(i * 50_001, 50_001) for i in range(100)]
        player = self.opened(depth=depth, threads=threads)
        player.play(chunk(op(Kind.CREATE), names=(b"f",)))
        writes = (
            op(Kind.WRITE, 0, at, size, stream=i % threads) for i, (at, size) in enumerate(pieces)
        )
        player.play(chunk(*writes))
        player.close()
        back = (op(Kind.READ, 0, at, size, flags=Flag.VERIFY) for at, size in pieces)
        result = self.played(op(Kind.OPEN), *back, names=(b"f",), depth=depth)
        assert (result.errors, result.bytes) == (0, 100 * 50_001)


# -- what must be the same on every storage system ---------------------------------------------
def facts(result: PlayerResult) -> dict[str, Any]:
    """What must be the same on every storage system."""
    return {
        "numbers": (result.ops, result.bytes, result.operations, result.errors),
        "errors": result.errors_by_errno,
        "counts": result.counts.sum(axis=1).tolist(),
    }


def data_stream(rng: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    """A file written without holes, then overwritten, read, cut and read beyond its end."""
    ops = [op(Kind.CREATE, flags=Flag.EXCLUSIVE), op(Kind.CREATE, flags=Flag.EXCLUSIVE)]
    ops += [op(Kind.WRITE, 0, i * 50_000, 50_000) for i in range(20)]
    for _ in range(count):
        kind = Kind.READ if rng.random() < 0.6 else Kind.WRITE
        size = int(rng.integers(0, 200_000))
        offset = int(rng.integers(0, 1_000_000 - size))
        ops.append(op(kind, 0, offset, size, flags=Flag.VERIFY if kind == Kind.READ else 0))
    ops += [
        op(Kind.FSYNC),
        op(Kind.READ, 0, 990_000, 20_000),  # short
        op(Kind.READ, 0, 2_000_000, 1),
        op(Kind.TRUNCATE, 0, 300_001),
        op(Kind.READ, 0, 300_000, 2),
        op(Kind.READ, 0, 0, 300_001, flags=Flag.VERIFY),
        op(Kind.WRITE, 0, 300_001, 77_777),
        op(Kind.STAT),
        op(Kind.STAT, 1),
        op(Kind.UNLINK, 1),
        op(Kind.OPEN, 1),
        op(Kind.EVICT),
        op(Kind.READ, 0, 0, 377_778, flags=Flag.VERIFY),
        op(Kind.CLOSE),
        op(Kind.CLOSE),
        op(Kind.CREATE, 0, flags=Flag.EXCLUSIVE),
        op(Kind.OPEN, 0, flags=Flag.READ_ONLY),
        op(Kind.READ, 0, 0, 377_778, flags=Flag.VERIFY),
        op(Kind.WRITE, 0, 0, 10),
        op(Kind.CLOSE),
        op(Kind.OPEN, 0, flags=Flag.WRITE_ONLY),
        op(Kind.READ, 0, 0, 10),
        op(Kind.WRITE, 0, 0, 0),
        op(Kind.CLOSE),
    ]
    return ops


def metadata_stream() -> tuple[tuple[tuple[Any, ...], ...], tuple[bytes, ...]]:
    """Operations on names and directories, also such as must fail; and the names of their files."""
    names = (b"d", b"d/f", b"d/g", b".", b"../x", b"d/none/x")
    ops = (
        op(Kind.MKDIR, 0),
        op(Kind.CREATE, 1),
        op(Kind.WRITE, 1, 0, 999),
        op(Kind.FSYNC, 1, flags=Flag.DATA_ONLY),
        op(Kind.TRUNCATE, 1, 500),
        op(Kind.CLOSE, 1),
        op(Kind.STAT, 1),
        op(Kind.RENAME, 1, file2=2),
        op(Kind.READDIR, 0),
        op(Kind.READDIR, 3),
        op(Kind.READDIR, 2),
        op(Kind.RMDIR, 0),
        op(Kind.STAT, 1),
        op(Kind.MKDIR, 0),
        op(Kind.CLOSE, 1),
        op(Kind.CREATE, 2, flags=Flag.EXCLUSIVE),
        op(Kind.RMDIR, 2),
        op(Kind.STAT, 4),
        op(Kind.CREATE, 5),
        op(Kind.OPEN, 2),
        op(Kind.READ, 2, 0, 500),
        op(Kind.CLOSE, 2),
        op(Kind.UNLINK, 2),
        op(Kind.RMDIR, 0),
    )
    return ops, names
