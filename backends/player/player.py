"""The player of op streams: chooses between the C extension and its pure-Python twin.

Both give the same bytes, counts and errors on the same stream; only the C one is fast enough
to be counted among the engines that measure a fast system.  The engine's name tells them
apart in every record.  Imports numpy and the standard library only: ranks load this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import content
from fsmatrix.backends.player.ops import MAX_OP_BYTES, OP, Chunk
from fsmatrix.backends.player.result import (
    KINDS,
    NOTHING,
    Lane,
    LaneError,
    Latencies,
    PlayerResult,
    merge,
)
from fsmatrix.results.histogram import BINS

_native: Any
try:
    from fsmatrix.backends.player import _player as _native
except ImportError:  # built without a compiler
    _native = None

ENGINE_C = "player-c"
ENGINE_PYTHON = "player-python"
VERSION = "1"  # of what both players do; changes when a result could
MAX_THREADS = 1024
MAX_DEPTH = 1024  # of any driver
MAX_SLOTS = 1 << 31
DEFAULT_SPIN_NS = 200_000

Implementation = Literal["auto", "c", "python"]

__all__ = [
    "ENGINE_C",
    "ENGINE_PYTHON",
    "VERSION",
    "Player",
    "PlayerResult",
    "engine_name",
    "open_player",
    "wait_until",
]


class Player(Protocol):
    """Executes chunks.  Used by one thread at a time."""

    def play(self, chunk: Chunk) -> int:
        """Execute a chunk; the number of operations executed, failed ones among them.

        With a depth above 1 those count that have begun; up to `depth` of each thread may be
        in flight afterwards, and only a later play() or drain() tells what came of them.

        Fewer than the chunk has if the deadline passed or an error stopped it.  After an
        error that stopped it, a player executes nothing more.  ValueError, before anything
        is executed, if the chunk is not valid.  Without the GIL in the C player.
        """

    def left(self, chunk: Chunk) -> Chunk:
        """What the last play() did not execute of `chunk`, in order, without names.

        With several threads this need not be the chunk's end.  What is in flight counts as
        executed.
        """

    def drain(self) -> None:
        """Wait for everything in flight; with a depth of 1 nothing is.

        What is in flight is in no result yet.
        """

    def begin(self, origin_ns: int) -> None:
        """Set the origin of intended times and of the intervals.  Before the first play."""

    def stop_at(self, monotonic_ns: int) -> None:
        """No operation begins after this moment; 0: none.  Counts from the next play()."""

    def result(self) -> PlayerResult:
        """Everything since the player was opened."""

    def close(self) -> None:
        """Close every open handle and end the threads.  May be called twice."""


def engine_name(implementation: Implementation = "auto") -> str:
    """Name of the engine that `open_player` would take.  ValueError if there is none."""
    if implementation not in ("auto", "c", "python"):
        raise ValueError(f"implementation must be auto, c or python, not {implementation!r}")
    if implementation == "c" and _native is None:
        raise ValueError("the C player is not built (no compiler when fsmatrix was installed)")
    return ENGINE_PYTHON if implementation == "python" or _native is None else ENGINE_C


def open_player(
    driver: Any,
    root: str,
    *,
    slots: int,
    threads: int = 1,
    depth: int = 1,
    seed: int = 0,
    origin_ns: int = 0,
    max_op_bytes: int,
    fill_ratio: float = 0.0,
    count_metadata: bool = False,
    implementation: Implementation = "auto",
    stop_on_error: bool = True,
) -> Player:
    """Open a player on `root`, with files 0..slots-1.

    `driver`: "posix", "null" or, for the C player, "rados", "cephfs" or a capsule
    "fsmatrix.driver.v2".  `root`: a directory; for rados and cephfs lines `key=value`.
    `depth`: reads and writes in flight per thread, as many as the driver can have.
    `origin_ns`: CLOCK_MONOTONIC of the phase's start; 0: when the first play() begins.
    ValueError for values out of range, OSError with the reason if the root cannot be opened.
    """
    for name, value, low, high in (
        ("slots", slots, 1, MAX_SLOTS),
        ("threads", threads, 1, MAX_THREADS),
        ("depth", depth, 1, MAX_DEPTH),
        ("max_op_bytes", max_op_bytes, 0, MAX_OP_BYTES),
        ("origin_ns", origin_ns, 0, NOTHING),
    ):
        if not low <= value <= high:
            raise ValueError(f"{name} must lie between {low} and {high}, not {value}")
    pool = content.make_pool(seed, fill_ratio)
    kind: Callable[..., Player] = NativePlayer
    if engine_name(implementation) == ENGINE_PYTHON:
        from fsmatrix.backends.player.python.player import PythonPlayer

        kind = PythonPlayer
    return kind(
        driver,
        root,
        pool,
        slots=slots,
        threads=threads,
        depth=depth,
        seed=seed,
        origin_ns=origin_ns,
        max_op_bytes=max_op_bytes,
        count_metadata=count_metadata,
        stop_on_error=stop_on_error,
    )


def wait_until(monotonic_ns: int, spin_ns: int = DEFAULT_SPIN_NS) -> None:
    """Sleep until `spin_ns` before a moment of CLOCK_MONOTONIC, then watch the clock.

    `spin_ns=0` where processes share processors: a spinning one would hold the others up.
    """
    if _native is not None:
        _native.wait_until(max(monotonic_ns, 0), max(spin_ns, 0))
        return
    while (left := monotonic_ns - time.monotonic_ns()) > 0:
        if left > spin_ns:
            time.sleep((left - spin_ns) / 1e9)


def checked_ops(chunk: Chunk) -> npt.NDArray[Any]:
    """The chunk's operations, contiguous and aligned.  ValueError if they are none."""
    ops = chunk.ops
    if not isinstance(ops, np.ndarray) or ops.dtype != OP or ops.ndim != 1:
        raise ValueError("the operations of a chunk must be a one-dimensional array of dtype OP")
    return np.require(ops, requirements=["C", "A"])


def left_of(chunk: Chunk, played: tuple[int, ...]) -> Chunk:
    """The operations of `chunk` beyond the first `played[t]` of each thread t."""
    if len(played) == 1:
        return Chunk(chunk.ops[played[0] :])
    thread = chunk.ops["stream"] % len(played)
    keep = np.zeros(len(chunk.ops), dtype=bool)
    for index, done in enumerate(played):
        keep[np.flatnonzero(thread == index)[done:]] = True
    return Chunk(chunk.ops[keep])


def tsc_is_invariant(
    cpuinfo: Path = Path("/proc/cpuinfo"),
    source: Path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
) -> bool:
    """Whether the time-stamp counter runs evenly, also by the kernel's judgement."""
    try:
        flags = next((line for line in _lines(cpuinfo) if line.startswith("flags")), "").split()
        return {"constant_tsc", "nonstop_tsc"} <= set(flags) and source.read_text().strip() == "tsc"
    except OSError:
        return False


def _lines(path: Path) -> Iterator[str]:
    with path.open() as file:
        yield from file


class NativePlayer:
    """The C player behind the protocol `Player`."""

    def __init__(
        self,
        driver: Any,
        root: str,
        pool: content.Bytes,
        *,
        slots: int,
        threads: int,
        depth: int = 1,
        seed: int,
        origin_ns: int,
        max_op_bytes: int,
        count_metadata: bool,
        stop_on_error: bool,
        openat2: bool = True,
        tsc: bool | None = None,
    ) -> None:
        if _native is None:
            raise ValueError("the C player is not built")
        use_tsc = tsc_is_invariant() if tsc is None else tsc
        self._clock = "tsc" if use_tsc else "monotonic"
        self._player = _native.Player(
            driver,
            os.fsencode(root),
            pool,
            slots,
            threads,
            depth,
            seed & content.MASK,
            origin_ns,
            max_op_bytes,
            count_metadata,
            stop_on_error,
            use_tsc,
            openat2,
        )

    def play(self, chunk: Chunk) -> int:
        """See `Player`."""
        return int(self._player.play(checked_ops(chunk), chunk.names, chunk.first))

    def left(self, chunk: Chunk) -> Chunk:
        """See `Player`."""
        return left_of(chunk, self._player.played())

    def drain(self) -> None:
        """See `Player`."""
        self._player.drain()

    def begin(self, origin_ns: int) -> None:
        """See `Player`."""
        self._player.begin(origin_ns)

    def stop_at(self, monotonic_ns: int) -> None:
        """See `Player`."""
        self._player.stop_at(monotonic_ns)

    def result(self) -> PlayerResult:
        """See `Player`."""
        lanes = [_lane(facts) for facts in self._player.lanes()]
        return merge(lanes, ENGINE_C, VERSION, self._clock)

    def close(self) -> None:
        """See `Player`."""
        self._player.close()


def _integers(data: bytes) -> npt.NDArray[np.int64]:
    return np.frombuffer(data, dtype=np.uint64).clip(max=NOTHING).astype(np.int64)


def _latencies(data: tuple[bytes, bytes, bytes, bytes] | None) -> Latencies | None:
    if data is None:
        return None
    counts, total, least, most = (_integers(part) for part in data)
    return Latencies(counts.reshape(KINDS, BINS), total, least, most)


def _lane(facts: Mapping[str, Any]) -> Lane:
    latency = _latencies(facts["latency"])
    assert latency is not None  # only a service histogram may be missing
    error = facts["first_error"]
    return Lane(
        **{name: facts[name] for name in facts if name.endswith("_ns")},
        ops=facts["ops"],
        interval_bytes=_integers(facts["interval_bytes"]),
        interval_operations=_integers(facts["interval_operations"]),
        latency=latency,
        service=_latencies(facts["service"]),
        errors=facts["errors"],
        first_error=None if error is None else LaneError(*error),
    )
