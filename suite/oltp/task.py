"""What is asked of a client node, as the JSON that the workload writes into its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

TASK, RESULT = "task.json", "result.json"
DATA = "pgdata"  # PostgreSQL's, in the run's own directory on the target
SQLITE_DATA = "sqlite"  # SQLite's
POSTGRESQL, SQLITE = "postgresql", "sqlite"


@dataclass(frozen=True)
class Task:
    """One step: load, run or check."""

    do: str
    programs: str  # folder of the PostgreSQL; of SQLite that of the Python
    path: str  # the run's own directory on the target
    seed: str  # a number; a text because it is filled in late
    warehouses: int
    users: int
    settings: Mapping[str, str] = field(default_factory=dict)  # of the server, or of connections
    warm_up: int = 0  # seconds
    seconds: int = 0
    rate: float = 0.0
    max_tries: int = 1
    engine: str = POSTGRESQL
    memory: int = 0  # bytes that the server and its users may have together; 0: no limit
    journal: str = ""  # folder of the store's journals, if something is made that it undoes

    def text(self) -> str:
        """As a file holds it."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> Task:
        """From such a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))
