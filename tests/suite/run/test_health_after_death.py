"""What the storage says is wrong stands in the reason of a run whose session is gone."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.suite.run import environment, health, runner
from fsmatrix.suite.session.client import StorageStalled
from tests.waiting import until

DEGRADED = "the pool is in state Degraded"


def asked(look: Any, at_once: bool = False) -> list[str]:
    """As of a session that is gone, on a backend whose health is `look`."""
    here = environment.RunEnvironment.__new__(environment.RunEnvironment)
    here.session = SimpleNamespace(stop=SimpleNamespace(at_once=at_once))  # type: ignore[assignment]
    here.backend = SimpleNamespace(health=look)  # type: ignore[assignment]
    here.access = "pool"  # type: ignore[assignment]
    return here.health_without_session()


def test_the_storage_is_asked_without_the_session() -> None:
    assert asked(lambda access: [f"{access}: {DEGRADED}"]) == [f"pool: {DEGRADED}"]
    assert asked(lambda _: [DEGRADED], at_once=True) == []  # the user does not want to wait

    def fails(_: Any) -> list[str]:
        raise BackendError("no agent")

    assert asked(fails) == ["no agent"]


def test_a_storage_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(environment, "HEALTH_SECONDS", 0.05)
    (sentence,) = asked(lambda _: [str(over.wait(60))])
    over.set()
    assert sentence == "the storage's health is not known: no answer within 0.05 s"
    assert health.asked_once(lambda: [], 5.0) == []


def test_the_reason_says_it_once() -> None:
    evidence = SimpleNamespace(health={"write": (DEGRADED,)})
    builder: Any = SimpleNamespace(evidence=evidence)
    assert runner._storage_troubles(builder, [DEGRADED]) == f"; the storage said: {DEGRADED}"
    assert runner._storage_troubles(builder, ["a"]) == f"; the storage said: a; {DEGRADED}"
    evidence.health = {}
    assert runner._storage_troubles(builder, []) == ""


# -- no operation completes ------------------------------------------------------------------
class Stalled:
    """A step in which no operation completes, and a storage that answers what the test says."""

    def __init__(self, *answers: Any, known: tuple[str, ...] = ()) -> None:
        self.idle, self.grows = 0.0, 0.0
        self.answers = list(answers)
        self.asked = 0
        self.watch = health.StallWatch(lambda: self.idle, 0.2, self.ask, known)

    def ask(self) -> list[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return list(answer() if callable(answer) else answer)

    def looked(self, seconds: float) -> str:
        """The reason for which it ended within so many seconds; "" if it did not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.watch.look()
            except StorageStalled as stalled:
                return str(stalled)
            time.sleep(0.01)
            self.idle += self.grows
        return ""


def test_a_step_that_goes_on_asks_nothing() -> None:
    step = Stalled([DEGRADED])
    assert step.looked(0.5) == ""
    assert step.asked == 0


def test_a_storage_that_says_what_is_wrong_gets_as_long_again() -> None:
    """It may go over to other servers; then nothing has happened."""
    step = Stalled([DEGRADED])
    step.idle = 12.0
    assert step.looked(0.15) == ""
    assert step.asked == 1
    step.idle = 0.0
    assert step.looked(0.5) == ""
    step.idle = 13.0
    reason = step.looked(60)
    assert reason == f"no operation was seen to complete for 13 s, and the storage said: {DEGRADED}"
    assert step.asked == 2


def test_a_storage_that_is_well_is_asked_again() -> None:
    step = Stalled([], [], ["osd.0 does not answer"])
    step.idle, step.grows = 12.0, 1.0
    assert "osd.0 does not answer" in step.looked(60)
    assert step.asked == 3


def test_what_it_said_before_the_step_ends_nothing() -> None:
    step = Stalled(["5 of 16 groups are degraded"], known=("7 of 16 groups are degraded",))
    step.idle, step.grows = 12.0, 1.0
    assert step.looked(1.0) == ""
    assert step.asked > 1


def test_a_storage_that_does_not_answer_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(health, "HEALTH_SECONDS", 0.3)
    step = Stalled(lambda: [str(over.wait(60))])
    step.idle = 12.0
    reason = step.looked(60)
    over.set()
    assert reason.endswith("the storage's health is not known: no answer within 0.3 s")
    assert step.asked == 1


def test_a_storage_that_is_well_is_not_asked_all_the_time() -> None:
    """Of some programs no operation can be seen."""
    step = Stalled([])
    for idle, asked in ((9, 1), (17, 1), (19, 2), (37, 2), (39, 3), (77, 3), (79, 4), (138, 4)):
        step.idle = idle
        until(lambda: step.looked(0.05) == "" and step.watch._asked is None)
        assert step.asked == asked, idle


def test_a_program_of_the_conductor_is_ended_once() -> None:
    step = Stalled(["osd.0 does not answer"])
    over = [False]
    ends = health.Ends(lambda: over[0], step.watch)
    assert not ends()
    step.idle = 12.0
    until(ends)
    assert "osd.0 does not answer" in str(ends.stalled)
    asked = step.asked
    assert ends()
    assert step.asked == asked
    assert not health.Ends(lambda: over[0], None)()
    over[0] = True
    assert health.Ends(lambda: over[0], None)()
