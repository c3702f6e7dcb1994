"""One op-stream step in one rank: agreed start, play, fixed time and wear-out, reduction."""

from __future__ import annotations

import contextlib
import importlib
import time
from dataclasses import dataclass, field, replace

import numpy as np

from fsmatrix.backends.player.ops import Chunk, Chunks, CountingChunks, Place, Tallies
from fsmatrix.backends.player.player import Player, wait_until
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.session.clock import Offset
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import Merged, Playing, StepCommand
from fsmatrix.suite.session.players.connecting import last_words, leave, open_together
from fsmatrix.suite.session.players.turns import taking_turns
from fsmatrix.suite.session.progress import telling
from fsmatrix.suite.session.reduction import put_together, reduced
from fsmatrix.suite.session.wire import Arrays

LEAD_NS = 2_000_000  # between the agreement on a start and the start, plus a bit per rank
LEAD_PER_RANK_NS = 50_000


@dataclass
class Source:
    """Chunks of a generator; keeps the time that making them took, and what it counted.

    That time counts between operations only: not before the first, nor for what follows the last.

    `wear_out`: what is left of a chunk may be played later, so that it cannot have outcomes.
    """

    generator: Chunks | CountingChunks
    wear_out: bool = False
    spent_ns: int = 0
    tallies: Tallies | None = None  # when it has ended
    _next: Chunk | None = None
    _over: bool = False
    _began: bool = False  # a chunk with operations was taken

    def peek(self) -> None:
        """Make the first chunk before the clock runs."""
        self._next = self._pull(None)

    def take(self) -> Chunk | None:
        """The next chunk; None at the end."""
        begin = time.monotonic_ns()
        chunk, self._next = self._next or self._pull(None), None
        if chunk is not None:
            if self._began:
                self.spent_ns += time.monotonic_ns() - begin
            self._began = self._began or len(chunk.ops) > 0
        return chunk

    def stop(self) -> Chunk | None:
        """Tell the generator that its time is over; its first closing chunk."""
        self._next = None
        return self._pull(True)

    def _pull(self, stop: bool | None) -> Chunk | None:
        if self._over:
            return None
        try:
            chunk = self.generator.send(stop) if stop else next(self.generator)
        except StopIteration as end:
            self._over = True
            self.tallies = end.value
            return None
        if self.wear_out and chunk.outcomes is not None:
            raise ValueError("a chunk with outcomes cannot be played under a wear-out")
        return chunk


@dataclass
class Played:
    """What a rank did besides what its player counted."""

    stop_on_error: bool
    executed: int = 0
    stopped: bool = False  # the time was over before the data was
    facts: JsonObject = field(default_factory=dict)


def play(
    player: Player,
    source: Source,
    seconds: float,
    wear_out: float,
    origin_ns: int,
    comm: Comm,
    *,
    stop_on_error: bool = True,
) -> Played:
    """Play a stream; with `seconds` until that time, then worn out to the busiest rank.

    `stop_on_error`: the player's.
    """
    progress = Played(stop_on_error)
    if not seconds:
        while (chunk := source.take()) is not None:
            done = player.play(chunk)
            progress.executed += done
            if done < len(chunk.ops):
                if not player.result().errors:
                    raise RuntimeError(f"the player left {len(chunk.ops) - done} operations undone")
                break  # the first error ended it
        player.drain()
        return progress
    rest = _until(player, source, origin_ns + int(seconds * 1e9), None, progress)
    at_stop = progress.executed
    most = int(comm.largest(np.array([progress.executed], dtype=np.int64))[0])
    if wear_out and most > progress.executed and rest is not None:
        limit = time.monotonic_ns() + int(wear_out * 1e9)
        rest = _until(player, source, limit, most, progress, rest)
    progress.facts = {
        "stonewall_seconds": seconds,
        "operations_at_stonewall": at_stop,
        "worn_out_to": most if wear_out else None,
        "reached": progress.executed,
    }
    player.stop_at(0)
    if progress.stopped and progress.executed:  # else nothing was opened that could be closed
        # a stream that has nothing more to say was stopped inside its closing chunk
        tail = source.stop() or rest
        while tail is not None:
            player.play(tail)
            tail = source.take()
    player.drain()
    return progress


def _until(
    player: Player,
    source: Source,
    limit_ns: int,
    most: int | None,
    progress: Played,
    first: Chunk | None = None,
) -> Chunk | None:
    """Play until `limit_ns` or, if given, `most` operations; what was left of the chunk."""
    player.stop_at(limit_ns)
    chunk = first if first is not None else source.take()
    progress.stopped = True
    while chunk is not None:
        allowed = len(chunk.ops) if most is None else most - progress.executed
        beyond = chunk.ops[allowed:]
        part = replace(chunk, ops=chunk.ops[:allowed]) if len(beyond) else chunk
        done = player.play(part)
        progress.executed += done
        if done < len(part.ops):
            if progress.stop_on_error and player.result().errors:
                progress.stopped = False  # an error ended it: nothing is closed in order
                return None
            if part.outcomes is not None:
                return None  # its generator sees there what is left
            left = player.left(part)
            return replace(left, ops=np.concatenate([left.ops, beyond]))
        if most is not None and progress.executed >= most:
            return Chunk(beyond, batch=chunk.batch) if len(beyond) else None
        chunk = source.take()
    progress.stopped = False  # the stream ended by itself, its files are closed
    return None


def run_stream(
    command: StepCommand, playing: Playing, root: str, place: Place, comm: Comm, offset: Offset
) -> tuple[Merged | None, Arrays]:
    """Run one Stream step; the merged phase at rank 0 of `comm`, nothing elsewhere.

    All times in the answer are seconds after the agreed start on the common clock.
    """
    stream = playing.stream
    module, function = stream.generator.split(":")
    with contextlib.ExitStack() as shared:
        if stream.shared_queue:
            place = replace(place, turn=shared.enter_context(taking_turns(place.node, comm)))
        generator = getattr(importlib.import_module(module), function)(stream.params, place)
        source = Source(generator, stream.wear_out > 0)
        source.peek()
        player = open_together(playing, root, place.threads, comm)
        try:
            start_ns, began = _agree(comm)
            origin = start_ns + offset.nanoseconds  # on this kernel's own clock
            player.begin(origin)
            wait_until(origin, 0 if command.oversubscribed else 200_000)
            with telling(command.progress, comm.rank, player.completed):
                progress = play(
                    player,
                    source,
                    stream.seconds,
                    stream.wear_out,
                    origin,
                    comm,
                    stop_on_error=stream.stop_on_error,
                )
            comm.patient_barrier()
            result = player.result()
            leave(playing.driver, player, comm)
        finally:
            player.close()
    printed = last_words(player, comm)
    merged, arrays = reduced(comm, result, source.spent_ns, origin, offset)
    tallies = put_together(source.tallies, comm)
    if merged is None:
        return None, arrays
    facts = {**progress.facts, "clock": result.clock}
    if tallies:
        facts["tallies"] = tallies
    if not stream.stop_on_error:  # they are counted, and the run goes on
        facts["first_errors"] = [failure.document() for failure in merged.failures]
        merged = replace(merged, failures=())
    return replace(merged, began=began, facts=facts, printed=printed), arrays


def _agree(comm: Comm) -> tuple[int, float]:
    """The agreed start on rank 0's monotonic clock, and the same as Unix time."""
    comm.barrier()
    lead = LEAD_NS + LEAD_PER_RANK_NS * comm.size
    now = time.monotonic_ns()
    start, began = comm.bcast([now + lead, (time.time_ns() + lead) / 1e9])
    return int(start), float(began)
