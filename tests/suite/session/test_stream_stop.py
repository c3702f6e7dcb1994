"""Fixed time: what is played until the stonewall, in the wear-out, and to close the files."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.suite.session.stream import Source, play


class Tape:
    """A player that notes what it is given; it is stopped after so many operations."""

    def __init__(self, stop_after: int) -> None:
        self.played: list[int] = []
        self._stop_after = stop_after
        self._last = 0

    def stop_at(self, monotonic_ns: int) -> None:
        if self.played:
            self._stop_after = 1 << 30  # the wear-out and the closing go on

    def play(self, chunk: Chunk) -> int:
        self._last = min(len(chunk.ops), self._stop_after - len(self.played))
        self.played += chunk.ops["offset"][: self._last].tolist()
        return self._last

    def left(self, chunk: Chunk) -> Chunk:
        return Chunk(chunk.ops[self._last :])

    def result(self) -> Any:
        return SimpleNamespace(errors={})

    def drain(self) -> None:
        return None


def chunk(*numbers: int) -> Chunk:
    ops = np.zeros(len(numbers), dtype=OP)
    ops["kind"] = Kind.WRITE
    ops["offset"] = numbers
    return Chunk(ops)


def deaf() -> Generator[Chunk, bool, None]:
    """Ten operations in two chunks; it does not answer a stop."""
    yield chunk(0, 1, 2, 3, 4)
    yield chunk(5, 6, 7, 8, 9)


def closing() -> Generator[Chunk, bool, None]:
    """Operations for ever; told to stop it closes (99)."""
    number = 0
    while not (yield chunk(*range(number, number + 5))):
        number += 5
    yield chunk(99)


def world(most: int) -> Any:
    """A communicator in which the busiest rank has played `most`."""
    return SimpleNamespace(largest=lambda _: np.array([most]))


def test_what_was_never_opened_is_not_closed() -> None:
    """The time was over before the first operation: a busy node, or a very short time."""
    tape = Tape(0)
    played = play(cast(Any, tape), Source(closing()), 1.0, 0.0, 0, world(0))
    assert tape.played == []
    assert played.facts["reached"] == 0
    assert played.stopped


@pytest.mark.parametrize("stop_after", [1, 3, 5, 7])
@pytest.mark.parametrize("most", [3, 5, 6, 8])
def test_nothing_is_played_twice(stop_after: int, most: int) -> None:
    tape = Tape(stop_after)
    played = play(cast(Any, tape), Source(deaf()), 1.0, 5.0, 0, world(max(most, stop_after)))
    assert tape.played == sorted(set(tape.played))
    assert played.facts["operations_at_stonewall"] == stop_after
    assert played.facts["reached"] == max(most, stop_after)


@pytest.mark.parametrize(("stop_after", "most"), [(3, 3), (3, 8), (5, 5), (7, 12)])
def test_a_stopped_stream_closes_and_ends_where_the_busiest_did(stop_after: int, most: int) -> None:
    tape = Tape(stop_after)
    play(cast(Any, tape), Source(closing()), 1.0, 5.0, 0, world(most))
    assert tape.played == [*range(most), 99]
