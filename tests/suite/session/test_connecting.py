"""Ranks that join rank 0's connection: in threads, over a communicator of theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fsmatrix.backends.player.drivers import DRIVERS
from fsmatrix.suite.session import connecting

SPEC = {
    "driver": "dfs", "slots": 1, "depth": 1, "seed": 0, "max_op_bytes": 4096, "fill_ratio": 0.0,
    "metadata": False, "implementation": "c",
}  # fmt: skip
RANKS = 3


class Threads:
    """What a Comm does of this, for ranks that are threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, said: dict[str, Any]) -> None:
        self.rank, self.size = rank, barrier.parties
        self._barrier, self._said = barrier, said

    def bcast(self, value: Any) -> Any:
        if self.rank == 0:
            self._said["value"] = value
        self._barrier.wait(60)
        return self._said["value"]

    def patient_barrier(self) -> None:
        self._barrier.wait(60)


class Recorded:
    """A player that tells what becomes of it."""

    def __init__(self, root: str, log: list[str]) -> None:
        self.root, self.log = root, log
        log.append(f"open {root}")

    def share(self) -> str:
        return "handles=cafe"

    def close(self) -> None:
        self.log.append(f"close {self.root}")


def in_ranks(work: Callable[[Any], None]) -> list[str]:
    """What was raised, by rank order of coming."""
    barrier, said, raised = threading.Barrier(RANKS), dict[str, Any](), list[str]()

    def run(rank: int) -> None:
        try:
            work(Threads(rank, barrier, said))
        except OSError as error:
            raised.append(str(error))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_one_connects_the_others_join_and_it_leaves_last(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(connecting, "open_player", lambda _d, root, *_: Recorded(root, log))

    def work(comm: Any) -> None:
        player = connecting.open_together(SPEC, "pool=a", 1, comm)
        connecting.leave(SPEC, player, comm)
        if comm.rank == 0:
            player.close()

    assert in_ranks(work) == []
    assert log[0] == "open pool=a"
    assert log.count("open pool=a\nhandles=cafe") == RANKS - 1
    assert log[-1] == "close pool=a"
    assert log.count("close pool=a\nhandles=cafe") == RANKS - 1


def test_why_nobody_could_connect_is_told_by_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Recorded:
        raise OSError(2, "pool a: it does not exist")

    monkeypatch.setattr(connecting, "open_player", fails)

    def work(comm: Any) -> None:
        connecting.open_together(SPEC, "", 1, comm)

    raised = in_ranks(work)
    assert len(raised) == RANKS
    assert all("pool a: it does not exist" in text for text in raised)


@pytest.mark.parametrize("driver", sorted(set(DRIVERS) - {"dfs"}))
def test_with_other_drivers_each_connects_by_itself(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(connecting, "open_player", lambda _d, root, *_: Recorded(root, log))
    spec = SPEC | {"driver": driver}

    def work(comm: Any) -> None:
        player = connecting.open_together(spec, "root", 1, comm)
        connecting.leave(spec, player, comm)

    assert in_ranks(work) == []
    assert log == ["open root"] * RANKS
