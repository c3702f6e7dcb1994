"""Ranks that join rank 0's connection: in threads, over a communicator of theirs."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import DRIVERS
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.session import players
from fsmatrix.suite.session.comm import SoloComm
from fsmatrix.suite.session.messages import Playing, Stream
from tests.suite.thread_ranks import in_ranks

PLAYING = Playing(
    stream=Stream("module:function", {}, slots=1, max_op_bytes=4096),
    seed=0,
    driver="dfs",
    implementation="c",
)
RANKS = 3


class Recorded:
    """A player that tells what becomes of it."""

    def __init__(self, root: str, log: list[str]) -> None:
        self.root, self.log = root, log
        log.append(f"open {root}")

    def share(self) -> str:
        return "handles=cafe"

    def close(self) -> None:
        self.log.append(f"close {self.root}")


def test_one_connects_the_others_join_and_it_leaves_last(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(players, "open_player", lambda _d, root, *_: Recorded(root, log))

    def work(comm: Any) -> None:
        player = players.open_together(PLAYING, "pool=a", 1, comm)
        players.leave(PLAYING.driver, player, comm)
        if comm.rank == 0:
            player.close()

    assert in_ranks(RANKS, work)[1] == []
    assert log[0] == "open pool=a"
    assert log.count("open pool=a\nhandles=cafe") == RANKS - 1
    assert log[-1] == "close pool=a"
    assert log.count("close pool=a\nhandles=cafe") == RANKS - 1


@pytest.mark.parametrize("refusing", [None, 0, 2])
def test_all_ranks_fall_back_or_none(refusing: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only one of them cannot have io_uring: a phase is played by one driver."""
    own = threading.local()
    monkeypatch.setattr(players, "driver_refusal", lambda *_: "no" if own.rank == refusing else "")
    stream = Stream("module:function", {}, depth=32, io="uring-or-posix")
    playing = replace(PLAYING, stream=stream, driver="uring")

    def work(comm: Any) -> tuple[str, int, JsonObject]:
        own.rank = comm.rank
        played, facts = players.settled(playing, comm)
        return played.driver, played.stream.depth, facts

    fallen = "posix", 1, {"driver": "posix", "iodepth": 1, "driver_refused": "no"}
    kept = "uring", 32, {"driver": "uring"}
    assert in_ranks(RANKS, work) == ([kept if refusing is None else fallen] * RANKS, [])


def test_the_driver_that_was_chosen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not replaced: without "or" nobody asks."""
    monkeypatch.setattr(players, "driver_refusal", pytest.fail)
    assert players.settled(PLAYING, SoloComm()) == (PLAYING, {})
    playing = replace(PLAYING, stream=replace(PLAYING.stream, io="uring"), driver="uring")
    assert players.settled(playing, SoloComm()) == (playing, {"driver": "uring"})


@pytest.mark.parametrize("value", [True, False])
def test_how_the_player_plays_is_the_stream_s(value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[PlayerOptions] = []
    monkeypatch.setattr(players, "open_player", lambda _d, _r, options, _i: given.append(options))
    stream = Stream("module:function", {}, stop_on_error=value, pauses=not value)
    playing = replace(PLAYING, stream=stream, driver="null")
    players.open_together(playing, "", 3, SoloComm())
    assert [(each.stop_on_error, each.pauses, each.threads) for each in given] == [
        (value, not value, 3)
    ]


def test_why_nobody_could_connect_is_told_by_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Recorded:
        raise OSError(2, "pool a: it does not exist")

    monkeypatch.setattr(players, "open_player", fails)

    def work(comm: Any) -> None:
        players.open_together(PLAYING, "", 1, comm)

    _, raised = in_ranks(RANKS, work)
    assert len(raised) == RANKS
    assert all("pool a: it does not exist" in text for text in raised)


@pytest.mark.parametrize("driver", sorted(set(DRIVERS) - {"dfs"}))
def test_with_other_drivers_each_connects_by_itself(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(players, "open_player", lambda _d, root, *_: Recorded(root, log))
    playing = replace(PLAYING, driver=driver)

    def work(comm: Any) -> None:
        player = players.open_together(playing, "root", 1, comm)
        players.leave(driver, player, comm)

    assert in_ranks(RANKS, work)[1] == []
    assert log == ["open root"] * RANKS
