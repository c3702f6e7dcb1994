"""A store whose journal a test writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.journal.proof import PlannedPaths

TAG = "0123456789abcdef"


class Store:
    """A store whose journal an attacker wrote, with every field as it should be."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder, self.state = base / "journal", base / "state"
        (self.state / "t").mkdir(parents=True, mode=0o755)
        self.journal = Journal(self.folder / "host.jsonl")

    def forge(self, kind: str, **facts: Any) -> None:
        """An entry of a process that has gone."""
        self.journal.begin(kind, **facts)
        lines = [json.loads(line) for line in self.journal.path.read_text().splitlines()]
        for line in lines:
            if line["event"] == "begin":
                line["pid"] = 2**22 - 1
        self.journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def undo(self, **named: dict[str, str]) -> list[str]:
        return undo_pending(self.folder, PlannedPaths(**named))


def left(said: list[str]) -> bool:
    return len(said) == 1 and said[0].startswith("left alone: ")
