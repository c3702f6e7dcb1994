"""Whether operations complete is seen beside a player that plays, also one that hangs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.suite.session import programs
from fsmatrix.suite.session.players import SubprocessPlayer
from fsmatrix.suite.session.wire import Progress, telling
from tests.backends.playing import chunk, op
from tests.waiting import until

OPTIONS = PlayerOptions(slots=8, max_op_bytes=1 << 20, seed=1, stop_on_error=False)
# writes to a file until its only child has ended
TALKS = """import os, sys, time
while os.waitpid(-1, os.WNOHANG) == (0, 0):
    with open(sys.argv[1], "a") as file:
        file.write("x")
    time.sleep(0.02)
"""
OFTEN = 0.01  # seconds between two looks
C: Any = pytest.param("c", marks=pytest.mark.needs("c player"))
APART: Any = pytest.param("apart", marks=pytest.mark.needs("c player"))


@pytest.fixture
def told(tmp_path: Path) -> Progress:
    """The file of three ranks."""
    (tmp_path / "session").mkdir()
    made = Progress(tmp_path / "session/progress", 3)
    made.clear()
    return made


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A file that cannot be opened for reading until it is written to: it stands for a storage
    that hangs."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / "pipe")
    yield folder
    os.close(os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize("kind", [C, "python", APART])
def test_an_operation_that_hangs(
    told: Progress, pipe: Path, kind: Literal["c", "python", "apart"]
) -> None:
    """What completed before it counts, it does not, and what follows on it does."""
    if kind == "apart":
        player: Any = SubprocessPlayer("posix", str(pipe), OPTIONS, {})
    else:
        player = open_player("posix", str(pipe), OPTIONS, kind)
    work = chunk(
        *(op(Kind.CREATE), op(Kind.WRITE, 0, 0, 1000), op(Kind.CLOSE)),
        op(Kind.OPEN, 1, flags=Flag.READ_ONLY),
        *(op(Kind.CLOSE, 1), op(Kind.STAT)),
        names=(b"file", b"pipe"),
    )
    before = player.completed()

    def play() -> None:
        with telling(str(told.path), 1, player.completed, OFTEN):
            player.play(work)

    assert told.idle() == 0.0  # nobody plays
    thread = threading.Thread(target=play)
    thread.start()
    until(lambda: player.completed() != before)
    until(lambda: told.idle() > 1.5)
    hanging = player.completed()
    assert told.idle() > 0
    until(lambda: told.idle() > 3.0)  # no look has seen anything more
    assert player.completed() == hanging
    with os.fdopen(os.open(pipe / "pipe", os.O_WRONLY), "wb"):  # somebody has opened it
        thread.join(60)
    assert not thread.is_alive()
    assert told.idle() == 0.0  # it plays no more
    player.close()


def test_the_last_completion_of_any_rank_counts(told: Progress) -> None:
    counts = [0, 0]

    def count(rank: int) -> int:
        return counts[rank]

    path = str(told.path)
    with telling(path, 0, lambda: count(0), OFTEN), telling(path, 2, lambda: count(1), OFTEN):
        until(lambda: told.idle() > 0.5)
        counts[1] += 1
        until(lambda: told.idle() < 0.4)
    assert told.idle() == 0.0
    told.clear()
    assert told.idle() == 0.0


def test_ranks_of_other_machines_tell_nothing(tmp_path: Path) -> None:
    with telling(str(tmp_path / "none"), 0, lambda: 1), telling("", 0, lambda: 1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_rank_has_said_is_forgotten(told: Progress) -> None:
    told.path.write_bytes(np.array([0, 1, 0], dtype=np.int64).tobytes())
    assert told.idle() > 0
    told.clear()
    assert told.idle() == 0.0


def test_programs_move_what_the_kernel_counts(tmp_path: Path) -> None:
    """Of processes that have started no others: a launcher moves bytes of its own."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    talked = tmp_path / "talked"
    script = f"cat {pipe} > {tmp_path}/out & exec {sys.executable} -c '{TALKS}' {talked}"
    thread = threading.Thread(target=programs.run, args=(["sh", "-c", script], "/", 60.0))
    thread.start()
    try:
        with pipe.open("wb", buffering=0) as stream:  # cat has it open
            until(talked.exists)
            before, size = programs.moved(), talked.stat().st_size
            assert before > 0
            until(lambda: talked.stat().st_size > size)
            assert programs.moved() == before
            stream.write(bytes(1000))
            until(lambda: programs.moved() >= before + 2000)  # read and written
    finally:
        thread.join(60)
    assert not thread.is_alive()
    assert programs.moved() == 0
