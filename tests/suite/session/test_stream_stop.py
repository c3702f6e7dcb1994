"""Fixed time: what is played until the stonewall, in the wear-out, and to close the files."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fsmatrix.backends.player.ops import OP, OUTCOME, Chunk, CountingChunks, Kind
from fsmatrix.suite.session.stream import Source, play


class Tape:
    """A player that notes what it is given; it is stopped after so many operations."""

    def __init__(self, stop_after: int) -> None:
        self.played: list[int] = []
        self.errors: dict[int, int] = {}
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
        return SimpleNamespace(errors=self.errors)

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


class Failing(Tape):
    """Some of what it played has failed."""

    def result(self) -> Any:
        return SimpleNamespace(errors=1)


@pytest.mark.parametrize("stop_on_error", [True, False])
def test_a_stream_that_goes_on_after_errors_closes_its_files(stop_on_error: bool) -> None:
    tape = Failing(7)
    source = Source(closing())
    play(cast(Any, tape), source, 1.0, 0.0, 0, world(7), stop_on_error=stop_on_error)
    assert tape.played == [*range(7), *([] if stop_on_error else [99])]


def counting() -> CountingChunks:
    """Chunks with outcomes until it is stopped; it counts what was executed."""
    executed = 0
    stop: bool | None = False
    while not stop:
        outcomes = np.zeros(5, dtype=OUTCOME)
        stop = yield replace(chunk(*range(5)), outcomes=outcomes, batch=2)
        executed += int((outcomes["start"] > 0).sum())
    return {"executed": executed}


class Timed(Tape):
    """It fills in outcomes."""

    def play(self, chunk: Chunk) -> int:
        done = super().play(chunk)
        assert chunk.outcomes is not None
        assert chunk.batch == 2
        chunk.outcomes["start"][:done] = 1
        return done


def test_what_a_stopped_generator_counted() -> None:
    source = Source(counting())
    play(cast(Any, Timed(12)), source, 1.0, 0.0, 0, world(12))
    assert source.tallies == {"executed": 12}


def test_what_a_generator_counted_that_an_error_ended_is_not_known() -> None:
    source, player = Source(counting()), Timed(3)
    player.errors = {5: 1}
    play(cast(Any, player), source, 0.0, 0.0, 0, world(3))
    assert source.tallies is None


def test_outcomes_and_a_wear_out_exclude_each_other() -> None:
    """What is left of a chunk is played later, and no longer belongs to its outcomes."""
    with pytest.raises(ValueError, match="outcomes cannot be played under a wear-out"):
        Source(counting(), wear_out=True).peek()


def test_what_is_left_of_a_queue_stays_one() -> None:
    def queues() -> Generator[Chunk, bool, None]:
        for first in range(0, 20, 5):
            yield replace(chunk(*range(first, first + 5)), batch=2)

    class Kept(Tape):
        def play(self, chunk: Chunk) -> int:
            batches.append(chunk.batch)
            return super().play(chunk)

        def left(self, chunk: Chunk) -> Chunk:
            return replace(super().left(chunk), batch=chunk.batch)

    batches: list[int] = []
    tape = Kept(7)
    play(cast(Any, tape), Source(queues()), 1.0, 5.0, 0, world(13))
    assert tape.played[:13] == [*range(13)]
    assert set(batches) == {2}
