"""The player of op streams: chooses between the C extension and its pure-Python one.

Both give the same bytes, counts and errors on the same stream; only the C one is fast enough
to be counted among the engines that measure a fast system.  The engine's name tells them
apart in every record.  Imports numpy and the standard library only: ranks load this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import (
    ENGINE_C,
    ENGINE_PYTHON,
    INTERFACE,
    KINDS,
    NOTHING,
    SORTS,
    VERSION,
    Lane,
    LaneError,
    Latencies,
    Player,
    PlayerOptions,
    PlayerResult,
    checked_ops,
    merge_lanes,
)
from fsmatrix.backends.player.ops import Chunk
from fsmatrix.results.histogram import BINS, COARSE


def usable_extension(extension: Any) -> Any:
    """The extension, or None if it was built from sources of another version.

    In a clone whose files have changed since, the old one is still there.
    """
    return extension if getattr(extension, "INTERFACE", 1) == INTERFACE else None


_native: Any
try:
    from fsmatrix.backends.player import _player

    _native = usable_extension(_player)
except ImportError:  # built without a compiler
    _native = None

DEFAULT_SPIN_NS = 200_000

Implementation = Literal["auto", "c", "python"]

__all__ = [
    "ENGINE_C",
    "ENGINE_PYTHON",
    "VERSION",
    "Player",
    "PlayerOptions",
    "PlayerResult",
    "driver_refusal",
    "engine_name",
    "open_player",
    "wait_until",
]


def engine_name(implementation: Implementation = "auto") -> str:
    """Name of the engine that `open_player` would take.  ValueError if there is none."""
    if implementation not in ("auto", "c", "python"):
        raise ValueError(f"implementation must be auto, c or python, not {implementation!r}")
    if implementation == "c" and _native is None:
        raise ValueError(
            "the C player is not built, or for another version: install a C compiler and "
            "install fsmatrix again"
        )
    return ENGINE_PYTHON if implementation == "python" or _native is None else ENGINE_C


def open_player(
    driver: Any, root: str, options: PlayerOptions, implementation: Implementation = "auto"
) -> Player:
    """Open a player on `root`.

    `driver`: "posix", "null" or, for the C player, "posix-libc", "uring", "uring-sqpoll",
    "rados", "cephfs", "dfs" or a capsule "fsmatrix.driver.v4".  `root`: a directory; for the last
    three lines `key=value`.
    ValueError for values out of range, OSError with the reason if the root cannot be opened.
    """
    if engine_name(implementation) == ENGINE_PYTHON:
        from fsmatrix.backends.player.python_player import PythonPlayer

        return PythonPlayer(driver, root, options)
    return NativePlayer(driver, root, options)


def driver_refusal(driver: str, depth: int = 1, implementation: Implementation = "auto") -> str:
    """Why a driver of directories cannot be used on this machine, at that depth (empty: it can)."""
    try:
        options = PlayerOptions(slots=1, max_op_bytes=0, depth=depth)
        open_player(driver, "/", options, implementation).close()
    except (OSError, ValueError) as error:
        return error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return ""


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
        options: PlayerOptions,
        *,
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
            content.make_pool(options.seed, options.fill_ratio),
            options.slots,
            options.threads,
            options.depth,
            options.seed & content.MASK,
            options.origin_ns,
            options.max_op_bytes,
            options.count_metadata,
            options.stop_on_error,
            options.pauses,
            options.read_ahead,
            use_tsc,
            openat2,
        )

    def play(self, chunk: Chunk) -> int:
        """See `Player`."""
        ops = checked_ops(chunk)
        return int(self._player.play(ops, chunk.names, chunk.first, chunk.outcomes, chunk.batch))

    def left(self, chunk: Chunk) -> Chunk:
        """See `Player`."""
        rests, taken = self._player.rests()
        if len(rests) == 1:
            return Chunk(chunk.ops[rests[0][0] :], batch=chunk.batch)
        keep = np.zeros(len(chunk.ops), dtype=bool)
        if chunk.batch:
            keep[taken:] = True
            for first, end in rests:
                keep[first:end] = True
        else:
            thread = chunk.ops["stream"] % len(rests)
            for index, (first, end) in enumerate(rests):
                keep[first:end] |= thread[first:end] == index
        return Chunk(chunk.ops[keep], batch=chunk.batch)

    def drain(self) -> None:
        """See `Player`."""
        self._player.drain()

    def share(self) -> str:
        """See `Player`."""
        return self._player.share()  # type: ignore[no-any-return]

    def features(self) -> str:
        """See `Player`."""
        return self._player.features()  # type: ignore[no-any-return]

    def begin(self, origin_ns: int) -> None:
        """See `Player`."""
        self._player.begin(origin_ns)

    def stop_at(self, monotonic_ns: int) -> None:
        """See `Player`."""
        self._player.stop_at(monotonic_ns)

    def completed(self) -> int:
        """See `Player`."""
        return int(self._player.completed())

    def result(self) -> PlayerResult:
        """See `Player`."""
        lanes = [_lane(facts) for facts in self._player.lanes()]
        return merge_lanes(lanes, ENGINE_C, VERSION, self._clock, self._timeline)

    def _timeline(self, width_ns: int, intervals: int) -> npt.NDArray[np.int64]:
        counts = _integers(self._player.timeline(width_ns, intervals))
        return counts.reshape(len(SORTS), intervals, COARSE)

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
