"""Whether operations complete is seen beside a player that plays, also one that hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.player import PlayerOptions, open_player
from fsmatrix.suite.session.players import progress
from fsmatrix.suite.session.players.apart import ApartPlayer
from fsmatrix.suite.session.players.progress import Progress, telling
from tests.backends.playing import chunk, op
from tests.waiting import until

OPTIONS = PlayerOptions(slots=8, max_op_bytes=1 << 20, seed=1, stop_on_error=False)
C: Any = pytest.param("c", marks=pytest.mark.needs("c player"))
APART: Any = pytest.param("apart", marks=pytest.mark.needs("c player"))


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Progress:
    """The file of three ranks, looked at often."""
    monkeypatch.setattr(progress, "LOOK", 0.01)
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
        player: Any = ApartPlayer("posix", str(pipe), OPTIONS, {})
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
        with telling(str(told.path), 1, player.completed):
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

    with telling(str(told.path), 0, lambda: count(0)), telling(str(told.path), 2, lambda: count(1)):
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
