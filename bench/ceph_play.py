"""One run of the player for bench/ceph.py and bench/daos.py, in a process of its own.

    python bench/ceph_play.py '{"driver": "rados", "root": ...}'

Prints JSON: operations, seconds from the first operation to the last completion, and CPU
seconds (user and system) of this process meanwhile and of the process `beside`, if one is given.
Opening, closing, warming and removing are in none of them.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import open_player

CHUNK = 1024


@dataclass(frozen=True)
class Play:
    """What is asked for.  `seconds` = 0: once over the span; `span`, `size` in bytes."""

    driver: str
    root: str
    name: str
    size: int
    span: int
    write: bool
    seconds: float = 0
    depth: int = 1
    seed: int = 0
    random: bool = True
    direct: bool = False
    create: bool = False
    warm: bool = False  # read the span once before
    unlink: bool = False
    beside: int = 0  # pid


def operations(asked: Play, random: bool) -> Iterator[Chunk]:
    """Chunks without end if random, else up to the end of the span."""
    rng, at, blocks = np.random.default_rng(asked.seed), 0, asked.span // asked.size
    while random or at < blocks:
        ops = np.zeros(min(CHUNK, blocks), dtype=OP)
        ops["kind"], ops["size"] = Kind.WRITE if asked.write else Kind.READ, asked.size
        where = rng.integers(0, blocks, len(ops)) if random else np.arange(len(ops)) + at
        ops["offset"] = where.astype(np.uint64) * np.uint64(asked.size)
        at += len(ops)
        yield Chunk(ops[where < blocks])


def one_op(kind: Kind, name: bytes = b"", flags: int = 0) -> Chunk:
    """A chunk of one operation on slot 0."""
    ops = np.zeros(1, dtype=OP)
    ops["kind"], ops["flags"] = kind, flags
    return Chunk(ops, (name,) if name else ())


def cpu_of(pid: int) -> float:
    """User and system seconds of another process so far."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu() -> float:
    """User and system seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def play(asked: Play) -> dict[str, float]:
    """Play, and what it took; RuntimeError if an operation failed."""
    options = PlayerOptions(slots=1, max_op_bytes=asked.size, depth=asked.depth)
    player = open_player(asked.driver, asked.root, options, "c")
    flags = Flag.DIRECT if asked.direct else 0
    kind = Kind.CREATE if asked.create else Kind.OPEN
    player.play(one_op(kind, asked.name.encode(), flags))
    for chunk in operations(asked, random=False) if asked.warm else ():
        player.play(chunk)
    chunks = operations(asked, asked.random)
    first = next(chunks)  # the generator is made before the window
    before, cpu, beside = player.result().operations, own_cpu(), cpu_of(asked.beside)
    began = time.monotonic_ns()
    if asked.seconds:
        player.stop_at(began + int(asked.seconds * 1e9))
    for chunk in chain((first,), chunks):
        if player.play(chunk) < len(chunk.ops):
            break
    player.drain()
    cpu, beside = own_cpu() - cpu, cpu_of(asked.beside) - beside
    played = player.result()
    player.stop_at(0)
    player.play(one_op(Kind.CLOSE))
    if asked.unlink:
        player.play(one_op(Kind.UNLINK))
    failed = player.result().first_error
    player.close()
    if failed:
        raise RuntimeError(f"the player failed: {failed}")
    seconds = (played.io_last_ns - began) / 1e9
    count = played.operations - before
    return {"operations": count, "seconds": seconds, "cpu": cpu, "beside": beside}


if __name__ == "__main__":
    print(json.dumps(play(Play(**json.loads(sys.argv[1])))))
