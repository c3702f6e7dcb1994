"""What the conductor tells while it works: one JSON-able object per event.

The terminal's progress, the quiet log and the JSON-lines log are three listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fsmatrix.results.audits.audit import Tally
from fsmatrix.results.evidence.stored import JsonObject, Stored


@dataclass(frozen=True, kw_only=True)
class Facts(Stored):
    """Of an event; those that its kind does not have are None."""

    attachment: str | None = None
    target: str | None = None
    run: str | None = None
    runs: int | None = None  # how many are meant
    attachments: int | None = None  # as well
    again: bool | None = None  # said before of the same target
    status: str | None = None
    findings: tuple[str, ...] | None = None
    tally: Tally | None = None  # of all runs so far, those that were stored before too
    begun: bool | None = None
    coordinates: JsonObject | None = None


@dataclass(frozen=True)
class Event:
    """`what`: recovered, attach, skipped, run, finished, failed, invalid (an audit calls a run so,
    for the first time), given_up (runs that cannot be begun; each is then `failed` too), stopped,
    warning, waiting; `facts` depend on it."""

    what: str
    text: str
    facts: Facts = field(default_factory=Facts)
    time: float = field(default_factory=time.time)

    def to_json(self) -> JsonObject:
        """For one line of JSON."""
        return {"time": self.time, "event": self.what, "text": self.text, **self.facts.document()}


Listener = Callable[[Event], None]
