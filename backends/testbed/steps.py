"""How long each step of a bring-up took: waiting for other programs, and our own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.evidence.values import Json


@dataclass(frozen=True)
class Step(Stored):
    """One step; seconds.  `waited` is the part in which another program worked."""

    name: str
    seconds: float
    waited: float

    @property
    def own(self) -> float:
        """What was neither: our own time."""
        return max(0.0, self.seconds - self.waited)

    def as_json(self) -> dict[str, Json]:
        """Name and seconds of the step as plain values."""
        return {**self.document(), "own": self.own}


class Steps:
    """Collects steps; `begun` and `ended` are called as they come."""

    def __init__(
        self,
        begun: Callable[[str], None] = lambda _: None,
        ended: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self.all: list[Step] = []
        self._begun, self._ended = begun, ended
        self._waited = 0.0
        self._depth = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure how long one step takes, by its name."""
        self._begun(name)
        began, self._waited = time.monotonic(), 0.0
        yield
        step = Step(name, time.monotonic() - began, self._waited)
        self.all.append(step)
        self._ended(step)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens inside is waiting for somebody else; may be nested."""
        began = time.monotonic()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._waited += time.monotonic() - began

    def until(
        self, done: Callable[[], bool], seconds: float, check: Callable[[], None], pause: float
    ) -> bool:
        """Wait until `done`, at most so long; whether it was reached.

        After each look in vain `check` raises what makes waiting hopeless.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self.waiting():
                if done():
                    return True
            check()
            if time.monotonic() >= deadline:
                return False
            with self.waiting():
                time.sleep(pause)
