"""The pure-Python player: the same work as the C one where that is not built, slower.

Same bytes in the same files, same counts, same errors; a test plays random streams on both.
Recorded as an engine of its own ("player-python").  Only the driver posix and null.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.backends.player import content
from fsmatrix.backends.player.base import (
    ENGINE_PYTHON,
    VERSION,
    PlayerOptions,
    checked_ops,
)
from fsmatrix.backends.player.ops import UNKNOWN, Chunk, Kind
from fsmatrix.backends.player.python.lane import Outcomes, PythonLane
from fsmatrix.backends.player.python.posix import Calls, File, NullCalls, PosixCalls
from fsmatrix.backends.player.result import PlayerResult, merge

MAX_NAME = 4095
MAX_OFFSET = (1 << 63) - 1 - (1 << 30)
MAX_TIME = ((1 << 63) - 1) // 32


class PythonPlayer:
    """See `player.Player` for the methods."""

    def __init__(self, driver: Any, root: str, options: PlayerOptions) -> None:
        if driver not in ("posix", "null"):
            raise ValueError(f"no driver {driver!r}: the Python player has posix and null")
        if options.depth != 1:
            raise ValueError(f"depth must be 1 for the Python player, not {options.depth}")
        pool = content.make_pool(options.seed, options.fill_ratio)
        self._options = options
        posix = driver == "posix"
        self._calls: Calls = PosixCalls(root, options.read_ahead) if posix else NullCalls()
        self._files: dict[int, File] = {}
        self._origin = options.origin_ns
        self._deadline = 0
        self._before = 0
        self._left: list[int] = []  # places in the last chunk
        self._open = True
        self._pool = ThreadPoolExecutor(options.threads) if options.threads > 1 else None
        self._lanes = [
            PythonLane(
                self._calls,
                self._files,
                _mapped(content.extended(pool, options.max_op_bytes)),
                _mapped(np.zeros(options.max_op_bytes + 1, dtype=np.uint8)),
                count_metadata=options.count_metadata,
                stop_on_error=options.stop_on_error,
                pauses=options.pauses,
            )
            for _ in range(options.threads)
        ]

    def play(self, chunk: Chunk) -> int:
        """See `Player`."""
        self._usable()
        ops = checked_ops(chunk)
        self._check_ops(ops)
        self._check_names(chunk.names, chunk.first)
        for slot, name in enumerate(chunk.names, chunk.first):
            self._files[slot] = File(name, content.key_of(self._options.seed, name))
        for slot in np.union1d(ops["file"], ops["file2"]).tolist():
            self._files.setdefault(slot, File(b"", 0))
        self._origin = self._origin or time.monotonic_ns()
        if chunk.outcomes is not None:
            chunk.outcomes[:] = (0, 0, UNKNOWN)
        paced = bool(ops["time"].any())
        for lane in self._lanes:
            lane.begin(self._origin, self._deadline, self._before, self._lanes, paced)
        if self._options.stop_on_error and any(lane.errors for lane in self._lanes):
            self._left = list(range(len(ops)))
        else:
            self._left = self._run(ops, chunk.outcomes, chunk.batch)
        self._before += len(ops)
        return sum(lane.played for lane in self._lanes)

    def _run(self, ops: npt.NDArray[Any], outcomes: Outcomes, batch: int) -> list[int]:
        """Play with all lanes; the places of what was not executed."""
        places = range(len(ops))
        queues: list[deque[Sequence[int]]]  # of each lane
        if self._pool is None:
            return self._lanes[0].run([places], ops, outcomes)
        if batch:
            batches = (places[at : at + batch] for at in places[::batch])
            queues = [deque(batches)] * len(self._lanes)
        else:
            thread = ops["stream"] % len(self._lanes)
            own = (np.flatnonzero(thread == index).tolist() for index in range(len(self._lanes)))
            queues = [deque([row]) for row in own]
        running = [
            self._pool.submit(lane.run, _taken(queue), ops, outcomes)
            for lane, queue in zip(self._lanes, queues, strict=True)
        ]
        left = [place for future in running for place in future.result()]
        return sorted(left + [place for row in queues[0] for place in row])

    def left(self, chunk: Chunk) -> Chunk:
        """See `Player`."""
        return Chunk(chunk.ops[np.array(self._left, dtype=np.intp)], batch=chunk.batch)

    def drain(self) -> None:
        """See `Player`."""

    def share(self) -> str:
        """See `Player`."""
        return ""

    def begin(self, origin_ns: int) -> None:
        """See `Player`."""
        self._usable()
        if self._before:
            raise ValueError("the player has begun to play already")
        self._origin = origin_ns

    def stop_at(self, monotonic_ns: int) -> None:
        """See `Player`."""
        self._usable()
        self._deadline = monotonic_ns

    def completed(self) -> int:
        """See `Player`."""
        return sum(lane.completed for lane in self._lanes)

    def result(self) -> PlayerResult:
        """See `Player`."""
        self._usable()
        return merge([lane.facts() for lane in self._lanes], ENGINE_PYTHON, VERSION, "monotonic")

    def close(self) -> None:
        """See `Player`."""
        if not self._open:
            return
        self._open = False
        for file in self._files.values():
            if file.handle >= 0:
                self._calls.execute(Kind.CLOSE, 0, file, file, 0, _NO_BYTES)
        if self._pool is not None:
            self._pool.shutdown()
        self._calls.close()

    def _usable(self) -> None:
        if not self._open:
            raise ValueError("the player is closed")

    def _check_ops(self, ops: npt.NDArray[Any]) -> None:
        kind, slots = ops["kind"], self._options.slots
        data = (kind == Kind.READ) | (kind == Kind.WRITE)
        for bad, text in (
            (kind >= len(Kind), "an unknown kind"),
            (ops["file"] >= slots, "a file beyond the slots"),
            (
                (kind == Kind.RENAME) & (ops["file2"] >= slots),
                "a file2 beyond the slots",
            ),
            (data & (ops["size"] > self._options.max_op_bytes), "a size above max_op_bytes"),
            (ops["offset"] > MAX_OFFSET, "an offset beyond 2**63"),
            (ops["time"] > MAX_TIME, "a time beyond 2**58"),
        ):
            if bad.any():
                raise ValueError(f"operation {int(np.argmax(bad))} has {text}")

    def _check_names(self, names: Sequence[bytes], first: int) -> None:
        slots = self._options.slots
        if names and not 0 <= first <= slots - len(names):
            last = first + len(names) - 1
            raise ValueError(f"names for slots {first} to {last}, there are {slots}")
        for slot, name in enumerate(names, first):
            if not isinstance(name, bytes):
                raise ValueError(f"name {name!r} is not bytes")
            if b"\0" in name:
                raise ValueError(f"name {name!r} has a NUL byte")
            if len(name) > MAX_NAME:
                raise ValueError(f"a name of {len(name)} bytes; {MAX_NAME} are allowed")
            if slot in self._files and self._files[slot].handle >= 0:
                raise ValueError(f"slot {slot} cannot be named {name!r}: it is open")


def _taken(queue: deque[Sequence[int]]) -> Iterator[Sequence[int]]:
    """What is in the queue, until nothing is left; a deque's popleft is safe among threads."""
    while True:
        try:
            batch = queue.popleft()
        except IndexError:
            return
        yield batch


_NO_BYTES = memoryview(b"")


def _mapped(data: content.Bytes) -> content.Bytes:
    """A copy in page-aligned memory, as O_DIRECT needs it."""
    copy = np.frombuffer(mmap.mmap(-1, len(data)), dtype=np.uint8)
    copy[:] = data
    return copy
