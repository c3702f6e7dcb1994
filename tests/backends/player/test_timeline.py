"""Latencies over time: they add up to the histogram, fold with the series, and date a stall."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player.lanes import INTERVALS, SORTS, fold
from fsmatrix.backends.player.ops import OP, OUTCOME, Chunk, Flag, Kind
from fsmatrix.results import histogram
from tests.backends.playing import Open, adds_up, chunk, op

STALL = 0.2  # seconds


def work(threads: int) -> list[tuple[object, ...]]:
    """Reads, writes and other operations for each thread."""
    rows = [
        [op(Kind.CREATE, i, stream=i)]
        + [op(Kind.WRITE, i, j * 4096, 4096, stream=i) for j in range(50)]
        + [op(Kind.READ, i, j * 4096, 4096, stream=i) for j in range(20)]
        + [op(Kind.STAT, i, stream=i)] * 7
        for i in range(threads)
    ]
    return [operation for row in rows for operation in row]


@pytest.mark.parametrize("age", [0, 60_000_000_000], ids=["young", "folded"])
def test_intervals_add_up_to_the_histogram(opened: Open, age: int) -> None:
    one = opened(threads=3, origin_ns=time.monotonic_ns() - age)
    names = tuple(f"f{i}".encode() for i in range(3))
    one.play(Chunk(np.array(work(3), dtype=OP), names))
    result = one.result()
    assert adds_up(result)
    assert result.timeline.sum(axis=(1, 2)).tolist() == [60, 150, 24]
    assert result.timeline.shape[1] == len(result.interval_bytes)
    of_data = result.timeline[:2].sum(axis=(0, 2))
    assert (of_data == result.interval_operations).all()


def test_a_fold_moves_nothing_out_of_its_time(opened: Open) -> None:
    last = INTERVALS * 10_000_000  # ns that intervals of 10 ms reach
    one = opened(origin_ns=time.monotonic_ns() - last + 300_000_000)
    one.play(Chunk(np.array(work(1), dtype=OP), (b"f0",)))
    before = one.result()
    assert before.interval_ns == 10_000_000
    one.play(chunk(op(Kind.READ, 0, 0, 4096, time=last + 50_000_000)))
    after = one.result()
    assert after.interval_ns == 20_000_000
    folded = np.stack([fold(rows, 1) for rows in before.timeline])
    now = after.timeline
    assert (now[:, : folded.shape[1]] == folded).all()
    assert int(now[:, folded.shape[1] :].sum()) == 1
    assert adds_up(after)


def test_a_stall_is_in_the_interval_in_which_it_ended(opened: Open, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "late")
    one = opened(max_op_bytes=4096, pauses=False)
    names = (b"f0", b"late")
    stalled = [*work(1), op(Kind.OPEN, 1, flags=Flag.READ_ONLY), *work(1)[1:]]
    outcomes = np.zeros(len(stalled), dtype=OUTCOME)

    def write_late() -> None:
        time.sleep(STALL)
        os.close(os.open(tmp_path / "late", os.O_WRONLY))

    writer = threading.Thread(target=write_late)
    writer.start()
    one.play(Chunk(np.array(stalled, dtype=OP), names, outcomes=outcomes))
    writer.join()
    result = one.result()
    stall = outcomes[len(work(1))]
    assert stall["duration"] > STALL * 0.9e9
    interval = int(stall["start"] + stall["duration"]) // result.interval_ns
    bin_ = int(histogram.bin_of(stall["duration"])) // histogram.PER_COARSE
    slow = result.timeline[SORTS.index("other"), :, bin_]
    assert np.flatnonzero(slow).tolist() == [interval]
    assert slow[interval] == 1
    edges = histogram.coarse_edges()
    assert edges[bin_] <= stall["duration"] < edges[bin_ + 1]
