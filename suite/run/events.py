"""What the conductor tells while it works: one JSON-able object per event.

The terminal's progress, the quiet log and the JSON-lines log are three listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """`what`: recovered, attach, skipped, run, finished, failed, given_up (runs that cannot be
    begun; each is then `failed` too), stopped, warning, waiting; `facts` depend on it."""

    what: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def to_json(self) -> dict[str, Any]:
        """For one line of JSON."""
        return {"time": self.time, "event": self.what, "text": self.text, **self.facts}


Listener = Callable[[Event], None]
