"""A chunk as a queue that all lanes share: each operation once, and what is left of it."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import Player, PlayerOptions
from fsmatrix.backends.player.ops import OP, OUTCOME, UNKNOWN, Chunk, Flag, Kind
from fsmatrix.backends.player.player import open_player
from tests import asking
from tests.backends.playing import IMPLEMENTATIONS, Open, chunk, op
from tests.waiting import PATIENCE

DIRECTORIES = 500


def queue(*ops: tuple[Any, ...], batch: int, names: tuple[bytes, ...] = ()) -> Chunk:
    """A queue with room for outcomes."""
    outcomes = np.zeros(len(ops), dtype=OUTCOME)
    return replace(chunk(*ops, names=names), outcomes=outcomes, batch=batch)


def results(played: Chunk) -> list[int]:
    """Of each operation."""
    assert played.outcomes is not None
    found: list[int] = played.outcomes["result"].tolist()
    return found


def directories(first: int = 0) -> tuple[list[tuple[Any, ...]], tuple[bytes, ...]]:
    """One mkdir each, from slot `first` on: done twice it fails.  All of one stream."""
    ops = [op(Kind.MKDIR, first + i) for i in range(DIRECTORIES)]
    return ops, tuple(b"d%d" % i for i in range(DIRECTORIES))


@pytest.mark.parametrize("threads", range(1, 9))
@pytest.mark.parametrize("batch", [1, 7, DIRECTORIES, 1 << 31])
def test_each_operation_once(opened: Open, tmp_path: Path, threads: int, batch: int) -> None:
    one = opened(threads=threads, slots=DIRECTORIES, stop_on_error=False)
    ops, names = directories()
    played = queue(*ops, batch=batch, names=names)
    assert one.play(played) == DIRECTORIES
    assert results(played) == [0] * DIRECTORIES
    assert sorted(os.listdir(tmp_path)) == sorted(name.decode() for name in names)
    assert one.result().counts[Kind.MKDIR].sum() == one.result().ops == DIRECTORIES
    assert len(one.left(played).ops) == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.needs("c player")
def test_each_operation_once_in_flight(tmp_path: Path, threads: int) -> None:
    options = PlayerOptions(slots=1, max_op_bytes=4096, seed=7, depth=8, threads=threads)
    one = open_player("posix-threads", str(tmp_path), options, "c")
    try:
        one.play(chunk(op(Kind.CREATE), names=(b"f",)))
        plain = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(1000)]
        played = queue(*plain, batch=5)
        assert one.play(played) == 1000
        assert results(played) == [4096] * 1000
        assert one.play(replace(chunk(*plain), batch=5)) == 1000  # without outcomes
        one.drain()
        assert one.result().bytes == 2000 * 4096
    finally:
        one.close()
    assert (tmp_path / "f").read_bytes() == content.expected(7, b"f", 0, 1000 * 4096)


@pytest.mark.needs("c player")
def test_many_lanes_take_single_operations() -> None:
    count = 200_000
    one = open_player("null", "", PlayerOptions(slots=1, max_op_bytes=8, threads=8), "c")
    try:
        one.play(chunk(op(Kind.CREATE), names=(b"f",)))
        ops = np.zeros(count, dtype=OP)
        ops["kind"], ops["size"] = Kind.WRITE, 8
        outcomes = np.zeros(count, dtype=OUTCOME)
        assert one.play(Chunk(ops, outcomes=outcomes, batch=1)) == count
        assert (outcomes["result"] == 8).all()
        assert one.result().counts[Kind.WRITE].sum() == count
    finally:
        one.close()


@pytest.mark.parametrize(("batch", "held"), [(1, 0), (10, 9)])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_others_go_on_while_one_waits(
    implementation: str, batch: int, held: int, tmp_path: Path
) -> None:
    """One lane is held by an open until somebody writes; it holds only what it has taken."""
    if implementation == "c" and (reason := asking.why_not("c player")):
        pytest.skip(reason)
    os.mkfifo(tmp_path / "fifo")
    options = PlayerOptions(slots=DIRECTORIES + 1, max_op_bytes=0, threads=3)
    one = open_player("posix", str(tmp_path), options, implementation)  # type: ignore[arg-type]
    ops, names = directories(first=1)
    waits = op(Kind.OPEN, 0, flags=Flag.READ_ONLY)
    played = queue(waits, *ops, batch=batch, names=(b"fifo", *names))
    done: list[int] = []
    playing = threading.Thread(target=lambda: done.append(one.play(played)))
    playing.start()
    give_up = time.monotonic() + PATIENCE
    while (there := len(os.listdir(tmp_path))) < 1 + DIRECTORIES - held:
        assert time.monotonic() < give_up, f"{there} of {1 + DIRECTORIES - held}"
        time.sleep(0.001)
    assert done == []
    assert not any((tmp_path / f"d{i}").exists() for i in range(held))
    os.close(os.open(tmp_path / "fifo", os.O_WRONLY))
    playing.join(PATIENCE)
    assert done == [DIRECTORIES + 1]
    assert results(played) == [0] * (DIRECTORIES + 1)
    one.close()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 64])
def test_what_a_deadline_left_can_be_played(opened: Open, threads: int, batch: int) -> None:
    one = opened(threads=threads, stop_on_error=False)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    whole = queue(*[op(Kind.STAT, 0, i) for i in range(20_000)], batch=batch)
    one.stop_at(time.monotonic_ns() - 1)
    assert one.play(whole) == 0
    assert (one.left(whole).ops == whole.ops).all()
    one.stop_at(time.monotonic_ns() + 3_000_000)
    done = one.play(whole)
    left = one.left(whole)
    assert left.batch == batch
    missing = np.array(results(whole)) == UNKNOWN
    assert (left.ops == whole.ops[missing]).all()
    assert len(left.ops) == len(whole.ops) - done
    one.stop_at(0)
    assert one.play(left) == len(left.ops)
    assert one.result().ops == len(whole.ops) + 1


def test_an_error_ends_the_queue(opened: Open) -> None:
    one = opened(threads=3, slots=2)
    one.play(chunk(op(Kind.CREATE), names=(b"f", b"missing")))
    ops = [op(Kind.STAT, int(i == 700), i) for i in range(20_000)]
    whole = queue(*ops, batch=3)
    done = one.play(whole)
    found = np.array(results(whole))
    assert found[700] == -errno.ENOENT
    assert (found == UNKNOWN).sum() == len(ops) - done
    assert (one.left(whole).ops == whole.ops[found == UNKNOWN]).all()
    assert one.play(whole) == 0
    assert (one.left(whole).ops == whole.ops).all()


@pytest.mark.parametrize("batch", [-1, (1 << 31) + 1])
def test_a_batch_out_of_range_is_refused(opened: Open, batch: int) -> None:
    with pytest.raises(ValueError, match="batch must lie between 0 and 2147483648"):
        opened().play(replace(chunk(op(Kind.STAT)), batch=batch))


def test_an_empty_queue(opened: Open) -> None:
    one = opened(threads=2)
    assert one.play(replace(chunk(), batch=4)) == 0
    assert len(one.left(replace(chunk(), batch=4)).ops) == 0


# -- C and Python ------------------------------------------------------------------------------
def all_of(implementation: str, threads: int, stream: list[tuple[int, int]], batch: int) -> Any:
    """Results of operations that do not depend on one another, and the player's numbers."""
    names = (b"a", b"b", b"../c")
    options = PlayerOptions(
        slots=4, max_op_bytes=100, threads=threads, stop_on_error=False, count_metadata=True
    )
    one: Player = open_player("null", "", options, implementation)  # type: ignore[arg-type]
    try:
        one.play(chunk(op(Kind.CREATE, 0), names=names))
        kinds = (Kind.READ, Kind.WRITE, Kind.STAT, Kind.FSYNC)
        played = queue(
            *[op(kinds[kind % 4], kind // 4, 0, size) for kind, size in stream], batch=batch
        )
        executed = one.play(played)
        found = one.result()
        return executed, results(played), found.errors_by_errno, found.counts.sum(axis=1).tolist()
    finally:
        one.close()


@pytest.mark.needs("c player")
@settings(max_examples=100, deadline=None)
@given(
    stream=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 100)), max_size=60),
    threads=st.integers(1, 4),
    batch=st.sampled_from([0, 1, 2, 7, 1000]),
)
def test_both_players_and_any_division_give_the_same(
    stream: list[tuple[int, int]], threads: int, batch: int
) -> None:
    alone = all_of("c", 1, stream, 0)
    assert all_of("c", threads, stream, batch) == alone
    assert all_of("python", threads, stream, batch) == alone
