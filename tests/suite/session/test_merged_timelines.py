"""Latencies over time of several ranks, put together on one axis."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.backends.player.lanes import PlayerOptions, PlayerResult
from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.results.histogram import COARSE, coarse
from fsmatrix.suite.session.comm import Comm
from fsmatrix.suite.session.stream import Offset, reduced
from tests.backends.playing import op
from tests.suite.thread_ranks import in_ranks


def result(root: Path, age: float, *ops: tuple[Any, ...]) -> PlayerResult:
    """Of a player whose origin lies `age` seconds back."""
    options = PlayerOptions(
        slots=1, max_op_bytes=4096, origin_ns=time.monotonic_ns() - int(age * 1e9)
    )
    player = open_player("posix", str(root), options)
    try:
        if ops:
            player.play(Chunk(np.array(list(ops), dtype=OP), (b"f",)))
        return player.result()
    finally:
        player.close()


def test_ranks_with_other_intervals_and_sorts_add_up(tmp_path: Path) -> None:
    """One writes, one reads too and has wider intervals, one does nothing."""
    writes = [op(Kind.CREATE), *(op(Kind.WRITE, 0, i * 4096, 4096) for i in range(30))]
    reads = [op(Kind.READ, 0, i * 4096, 4096) for i in range(20)]
    young, old = result(tmp_path, 0.0, *writes), result(tmp_path, 60.0, *writes, *reads)
    idle = result(tmp_path, 0.0)
    assert young.interval_ns < old.interval_ns

    def merge(comm: Comm) -> Any:
        own = (young, old, idle)[comm.rank]
        return reduced(comm, own, 0, own.first_ns, Offset())

    given, raised = in_ranks(3, merge)
    assert raised == []
    merged, arrays = given[0]
    assert merged.interval == old.interval_ns / 1e9
    shape = (len(old.interval_bytes), COARSE)
    for name, kind, many in (("read", Kind.READ, 20), ("write", Kind.WRITE, 60)):
        table = arrays[f"timeline.{name}"]
        assert table.shape == shape
        assert int(table.sum()) == many
        assert (table.sum(axis=0) == coarse(young.counts[kind] + old.counts[kind])).all()
    ends = np.flatnonzero(arrays["timeline.write"].any(axis=1))
    assert ends[0] < 2  # of the young one
    assert ends[-1] == len(old.interval_bytes) - 1
    only_young, raised = in_ranks(2, lambda comm: reduced(comm, young, 0, 1, Offset()))
    assert raised == []
    assert {name for name in only_young[0][1] if name.startswith("timeline.")} == {
        "timeline.write",
        "timeline.other",
    }
