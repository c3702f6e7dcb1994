"""How fast a rank makes and plays a stream for a driver that does nothing: the client's ceiling."""

from __future__ import annotations

import importlib
import time

from fsmatrix.backends.player.ops import Place
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.messages import Playing
from fsmatrix.suite.session.players.connecting import open_together
from fsmatrix.suite.session.stream import Source


def measure(playing: Playing, place: Place, comm: Comm) -> float | None:
    """Operations per second of all ranks of `comm`, at its rank 0; None elsewhere.

    Each rank plays the stream, which must end or go on without outcomes, again and again for
    `playing.ceiling` seconds.  As in a run, making its first chunk does not count, nor waiting.
    """
    module, function = playing.stream.generator.split(":")
    make = getattr(importlib.import_module(module), function)
    player = open_together(playing, "/", place.threads, comm)
    spent = 0
    try:
        source = Source(make(playing.stream.params, place))
        source.peek()
        comm.barrier()
        end = time.monotonic_ns() + int(playing.ceiling * 1e9)
        player.stop_at(end)
        while True:
            begin = time.monotonic_ns()
            while (chunk := source.take()) is not None and player.play(chunk) == len(chunk.ops):
                pass
            player.drain()
            spent += time.monotonic_ns() - begin
            if time.monotonic_ns() >= end:
                break
            source = Source(make(playing.stream.params, place))
            source.peek()
        operations = player.result().operations
    finally:
        player.close()
    rates = comm.gather(operations / spent * 1e9 if spent else 0.0)
    return None if rates is None else float(sum(rates))
