"""Blocks of a queue prepared beside the lanes or between the chunks: the same is played."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player.ops import Chunk, Kind, Place
from fsmatrix.suite.workloads.streams.chunks import prefetch
from fsmatrix.suite.workloads.streams.replay import generate
from fsmatrix.traces.trace_model import TraceError
from tests.suite.replay_workload import Recorder, case_of, play, trace, workload

MIB = 1 << 20
PLACE = Place(rank=0, ranks=1, node=0, nodes=1, threads=1, seed=1)


def cpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(count)))


def reads(to: Recorder) -> None:
    """300 reads and writes of one file."""
    to.there(b"data", MIB)
    to.do(Kind.OPEN, b"data")
    for number in range(300):
        kind = Kind.WRITE if number % 7 == 0 else Kind.READ
        to.do(kind, b"data", 1000 + number, offset=3499 * number % MIB)
    to.do(Kind.CLOSE, b"data")


@pytest.mark.parametrize("threads", [1, 3])
def test_beside_and_between_play_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(generate, "TURN", 16)
    path = str(trace(tmp_path / "t.h5", reads))
    became = []
    for count in (1, 64):
        cpus(monkeypatch, count)
        root = tmp_path / str(count)
        root.mkdir()
        seen: list[Chunk] = []
        facts = play(
            workload(trace=path, mode="queue"),
            case_of(processes_per_node=2, threads=threads),
            root,
            watch=lambda chunk, seen=seen: seen.append(replace(chunk, ops=chunk.ops.copy())),
        )
        offsets = np.sort(np.concatenate([chunk.ops["offset"] for chunk in seen]))
        became.append(
            (facts["operations"], facts["agreed"], facts["kinds"]["read"]["bytes"], *offsets)
        )
    assert became[0] == became[1]
    assert became[0][0] == 300


def test_memory_of_a_block_is_not_used_again_before_it_was_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpus(monkeypatch, 64)
    log: list[str] = []
    numbers = iter(range(50))

    def make() -> int | None:
        number = next(numbers, None)
        log.append(f"make {number}")
        return number

    with prefetch(PLACE) as helper:
        for number in helper.each(make):
            helper.soon(partial(log.append, f"count {number}"))
    for number in range(48):
        assert log.index(f"count {number}") < log.index(f"make {number + 2}")
    assert log[-1] == "count 49"


@pytest.mark.parametrize("count", [1, 64])
def test_an_error_of_either_part_ends_the_replay(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    cpus(monkeypatch, count)

    def broken() -> None:
        raise TraceError(Path("t.h5"), "damaged")

    with pytest.raises(TraceError, match="damaged"), prefetch(PLACE) as helper:
        next(helper.each(broken))
    blocks = iter([1])

    def counts() -> None:
        with prefetch(PLACE) as helper:
            for _ in helper.each(lambda: next(blocks, None)):
                helper.soon(broken)

    with pytest.raises(TraceError, match="damaged"):
        counts()
