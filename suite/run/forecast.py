"""How long a run still takes: a listener that learns from what it hears, from the first block on.

Until something of a target was measured, what was measured of the others tells how far the
guesses are off, and before that the guesses count as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsmatrix.results.evidence.stored import inside
from fsmatrix.suite.plan.estimate import attach_seconds, run_seconds
from fsmatrix.suite.plan.plan import Plan
from fsmatrix.suite.run.events import Event

ATTACH, RUN = "attach", "run"


@dataclass
class Share:
    """Attachments, or runs, of one target: how many are left, what was guessed and measured."""

    guess: float  # seconds of one
    left: int = 0
    measured: float = 0.0  # seconds of all that have ended
    ended: int = 0


@dataclass
class Forecast:
    """`shares`: of each kind (attach, run) and target."""

    shares: Mapping[tuple[str, str], Share]
    _doing: tuple[str, str] | None = None
    _since: float = 0.0
    _now: float = field(default=0.0)

    @classmethod
    def of(cls, plan: Plan) -> Forecast:
        """Of all runs of a plan; those that are stored are taken off when they are skipped."""
        shares: dict[tuple[str, str], Share] = {}
        costs: dict[str, list[float]] = {}
        pauses: dict[str, list[float]] = {}
        for key, cases in plan.groups.items():
            pace = plan.pace(cases[0])
            costs.setdefault(key.target, []).extend(run_seconds(case, pace) for case in cases)
            pauses.setdefault(key.target, []).append(attach_seconds(cases, pace))
        blocks = plan.estimate.attachments // max(len(plan.groups), 1)
        repetitions = plan.estimate.runs // max(len(plan.cases), 1)
        for target, seconds in costs.items():
            shares[RUN, target] = Share(sum(seconds) / len(seconds), repetitions * len(seconds))
        for target, seconds in pauses.items():
            shares[ATTACH, target] = Share(sum(seconds) / len(seconds), blocks * len(seconds))
        return cls(shares)

    def __call__(self, event: Event) -> None:
        """Learn from an event of the conductor."""
        self._now = event.time
        facts, target = event.facts, event.facts.target or ""
        if event.what == ATTACH:
            self._begin(ATTACH, target)
        elif event.what == RUN:
            self._begin(RUN, str(inside(facts.coordinates).get("target", "")))
        elif event.what in ("skipped", "given_up"):
            self._take(RUN, target, facts.runs or 0)
            self._take(ATTACH, target, facts.attachments or 0)
        elif event.what in ("waiting", "stopped"):
            self._end()

    @property
    def seconds(self) -> float:
        """What is left, as far as is known now."""
        rest = sum(share.left * self._each(kind, name) for (kind, name), share in self._items())
        if self._doing is not None:
            rest += max(self._each(*self._doing) - (self._now - self._since), 0.0)
        return rest

    def _begin(self, kind: str, target: str) -> None:
        self._end()
        self._doing, self._since = (kind, target), self._now
        self._take(kind, target, 1)

    def _end(self) -> None:
        if self._doing is not None and (share := self.shares.get(self._doing)):
            share.measured += self._now - self._since
            share.ended += 1
        self._doing = None

    def _take(self, kind: str, target: str, count: int) -> None:
        if share := self.shares.get((kind, target)):
            share.left = max(share.left - count, 0)

    def _each(self, kind: str, target: str) -> float:
        """Seconds of one attachment or run of a target: measured, else guessed and corrected."""
        share = self.shares.get((kind, target))
        if share is None:
            return 0.0
        if share.ended:
            return share.measured / share.ended
        ended = [other for (what, _), other in self._items() if what == kind and other.ended]
        guessed = sum(other.guess * other.ended for other in ended)
        return share.guess * (sum(s.measured for s in ended) / guessed if guessed else 1.0)

    def _items(self) -> list[tuple[tuple[str, str], Share]]:
        return list(self.shares.items())
