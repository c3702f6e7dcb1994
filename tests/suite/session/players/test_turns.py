"""Numbers that the ranks of a node hand out among themselves."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.suite.session.comm import SoloComm
from fsmatrix.suite.session.players import BYTES, next_turn, taking_turns
from tests.suite.thread_ranks import in_ranks

EACH = 300


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the counter's file is made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("nodes", [(0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 1, 2)])
def test_each_number_once_on_each_node(nodes: tuple[int, ...], place: Path) -> None:
    def work(comm: Any) -> list[int]:
        with taking_turns(nodes[comm.rank], comm) as turn:
            comm.barrier()
            named.extend(place.iterdir())
            return [turn() for _ in range(EACH)]

    named: list[Path] = []
    taken, raised = in_ranks(len(nodes), work)
    assert raised == []
    assert named == []  # while it is used
    for node in set(nodes):
        own = [row for row, of in zip(taken, nodes, strict=True) if of == node]
        assert sorted(number for row in own for number in row) == list(range(EACH * len(own)))
        assert all(row == sorted(row) for row in own)


def test_nobody_has_to_answer_for_the_others() -> None:
    """Rank 0 waits until the others are done; it takes nothing meanwhile."""

    def work(comm: Any) -> list[int]:
        with taking_turns(0, comm) as turn:
            taken = [turn() for _ in range(EACH)] if comm.rank else []
            comm.barrier()
            return taken if comm.rank else [turn()]

    taken, _ = in_ranks(3, work)
    assert taken[0] == [2 * EACH]


def test_each_step_begins_anew_and_leaves_no_open_file() -> None:
    def work(comm: Any) -> list[int]:
        firsts = []
        for _ in range(3):
            with taking_turns(0, comm) as turn:
                comm.barrier()
                firsts.append(turn())
                comm.barrier()
        return firsts

    before = len(os.listdir("/proc/self/fd"))
    taken, _ = in_ranks(2, work)
    assert [sorted(pair) for pair in zip(*taken, strict=True)] == [[0, 1]] * 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_number_is_taken_under_a_lock(place: Path) -> None:
    """Who is between reading and writing keeps the others out."""
    (place / "turns").write_bytes(bytes(BYTES))
    first, second = (os.open(place / "turns", os.O_RDWR) for _ in range(2))
    fcntl.flock(first, fcntl.LOCK_EX)
    taken: list[int] = []
    other = threading.Thread(target=lambda: taken.append(next_turn(second)))
    other.start()
    other.join(0.3)
    assert taken == []
    os.pwrite(first, (41).to_bytes(BYTES, "little"), 0)
    fcntl.flock(first, fcntl.LOCK_UN)
    other.join()
    assert taken == [41]
    assert next_turn(first) == 42
    os.close(first)
    os.close(second)


def test_one_rank_needs_no_file(place: Path) -> None:
    place.chmod(0)
    with taking_turns(0, SoloComm()) as turn:
        assert [turn(), turn(), turn()] == [0, 1, 2]
    place.chmod(0o700)
