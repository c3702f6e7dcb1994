"""Traces for the tests of the workload `replay`, and its steps played in this process."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Kind, Place
from fsmatrix.backends.player.player import open_player
from fsmatrix.results.histogram import sparse
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.replay import Replay, ReplayOptions
from fsmatrix.suite.workloads.workload import Function, Step, Stream
from fsmatrix.traces.trace_model import ABSENT, Header, Operation, Thread
from fsmatrix.traces.tracefile import TraceWriter, writing

ACCESS = PathAccess("directory", "t")
ENGINE = Engine("player-c", "1")
READ_ONLY, WRITE_ONLY, EXCLUSIVE = 16, 32, 4
MS = 1_000_000  # ns


class Recorder:
    """Operations of a pretended program, one slot for each path, in order of time."""

    def __init__(self, writer: TraceWriter) -> None:
        self.writer = writer
        self.slots: dict[bytes, int] = {}
        self.now = 0

    def there(self, name: bytes, size: int = 0, directory: bool = False) -> int:
        """A file that is there at the start; its slot."""
        return self._slot(name, size, directory)

    def do(self, kind: Kind, name: bytes, size: int = 0, **more: Any) -> None:
        """An operation on a path 1 ms after the one before, that took 0.1 ms."""
        slot2 = self._slot(more.pop("to")) if "to" in more else 0
        values = {"result": size, "latency": MS // 10} | more
        at = self.now if "at" not in values else values.pop("at")
        thread = self.writer.thread(Thread(1, values.pop("thread", 0)))
        flags, offset = values.pop("flags", 0), values.pop("offset", 0)
        operation = Operation(kind, self._slot(name), flags, slot2, offset, size)
        self.writer.add(operation, at, thread=thread, **values)
        self.now = at + MS

    def _slot(self, name: bytes, size: int = ABSENT, directory: bool = False) -> int:
        if name not in self.slots:
            self.slots[name] = self.writer.slot(self.writer.file(name, size, directory))
        return self.slots[name]


def trace(path: Path, record: Callable[[Recorder], None], **header: Any) -> Path:
    """A trace of what `record` does."""
    with writing(path) as writer:
        recorder = Recorder(writer)
        recorder.writer.thread(Thread(1, 0))
        record(recorder)
        writer.finish(Header("test", **header))
    return path


def program(to: Recorder) -> None:
    """Reads its input, makes a directory and a file in it, renames that, and meets errors."""
    to.there(b"in/a.dat", 10_000)
    to.there(b"in/b.txt", 100)
    to.do(Kind.STAT, b"missing.cfg", result=-2)
    to.do(Kind.OPEN, b"in/a.dat", flags=READ_ONLY)
    to.do(Kind.READ, b"in/a.dat", 4096)
    to.do(Kind.READ, b"in/a.dat", 4096, offset=8192, result=1808)
    to.do(Kind.CLOSE, b"in/a.dat")
    to.do(Kind.MKDIR, b"out")
    to.do(Kind.MKDIR, b"out", result=-17)
    to.do(Kind.CREATE, b"out/new.tmp", flags=EXCLUSIVE)
    to.do(Kind.WRITE, b"out/new.tmp", 5000)
    to.do(Kind.TRUNCATE, b"out/new.tmp", offset=4000)
    to.do(Kind.FSYNC, b"out/new.tmp")
    to.do(Kind.CLOSE, b"out/new.tmp")
    to.do(Kind.RENAME, b"out/new.tmp", to=b"out/result.txt")
    to.do(Kind.STAT, b"out/result.txt")
    to.do(Kind.READDIR, b"out")
    to.do(Kind.UNLINK, b"in/b.txt")


def workload(**options: Any) -> Replay:
    """The workload with these options."""
    return Replay(ReplayOptions.model_validate(options))


def case_of(cache: str = "warm", **geometry: int) -> Case:
    """A case of that geometry."""
    return Case("t", "replay", geometry=Geometry(**geometry), cache=cache)


def place_of(case: Case, rank: int, **more: Any) -> Place:
    """Where a rank of that case stands."""
    geometry = case.geometry
    node = rank // geometry.processes_per_node
    return Place(rank, geometry.processes, node, geometry.nodes, geometry.threads, 7, **more)


def play(work: Replay, case: Case, root: Path, **how: Any) -> dict[str, Any]:
    """All steps of all ranks, one after the other; the facts of the replay."""
    tallies: list[Mapping[str, Any]] = []
    turns = [itertools.count() for _ in range(case.geometry.nodes)]
    for step in work.steps(case, ACCESS, ENGINE):
        if step.role == "timed" and "before" in how:
            how["before"](root)
        for rank in range(case.geometry.processes):
            node = rank // case.geometry.processes_per_node
            place = place_of(case, rank, turn=turns[node].__next__)
            counted = play_step(step, place, root, **how)
            if step.role == "timed" and counted:
                tallies.append(counted)
    return facts(work, case, tallies)


def facts(work: Replay, case: Case, tallies: list[Mapping[str, Any]]) -> dict[str, Any]:
    """As the phase has them, of tallies of all ranks; JSON-able."""
    from fsmatrix.suite.workloads.replay import facts_of
    from fsmatrix.suite.workloads.streams.replay.outcomes import Counts

    summed: dict[str, Any] = {}
    for name, first in tallies[0].items():
        values = [t[name] for t in tallies]
        total = np.max(values, axis=0) if name.endswith("_max") else np.sum(values, axis=0)
        summed[name] = sparse(total) if isinstance(first, np.ndarray) else int(total)
    clients = case.geometry.processes if work.options.clients == "private" else 1
    told = facts_of(Counts.of(summed), work._work(case, "path"), clients, work.options)
    return json.loads(json.dumps(told.document()))  # type: ignore[no-any-return]


def play_step(step: Step, place: Place, root: Path, **how: Any) -> Mapping[str, Any] | None:
    """One step of one rank as a session does it; the tallies of a Stream."""
    what = step.what
    assert isinstance(what, Stream | Function)
    params = json.loads(json.dumps(what.params))
    module, name = (what.generator if isinstance(what, Stream) else what.function).split(":")
    function = getattr(importlib.import_module(module), name)
    if isinstance(what, Function):
        function(params, place, str(root))
        return None
    generator = function(params, place)
    player = open_player(
        "posix",
        str(root),
        PlayerOptions(
            slots=what.slots,
            threads=place.threads,
            seed=3 + what.generation,
            max_op_bytes=what.max_op_bytes,
            count_metadata=what.metadata,
            stop_on_error=what.stop_on_error,
            pauses=what.pauses,
        ),
        how.get("implementation", "auto"),
    )
    watch = how.get("watch", lambda chunk: None)
    try:
        while True:
            chunk = next(generator)
            if step.role == "timed":
                watch(chunk)
            done = player.play(chunk)
            if done < len(chunk.ops):
                raise OSError(str(player.result().first_error))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        player.close()


NOTHING = Chunk(np.zeros(0, dtype=OP))
