"""What the storage says is wrong stands in the reason of a run whose session is gone."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.suite.run import environment, health, runner

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
