"""Campaigns started by the command line, and their events as they come."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

FSMATRIX = [sys.executable, "-P", "-m", "fsmatrix.cli.main"]


def fsmatrix(*words: object, report: bool = False) -> subprocess.CompletedProcess[str]:
    """The command with these words; `run` writes its report, which takes seconds, if asked to."""
    more = ["--no-report"] if "run" in words[:1] and not report else []
    return subprocess.run(
        [*FSMATRIX, *map(str, words), *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Running:
    """A campaign that runs, and its events as they come."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [*FSMATRIX, "run", *map(str, words), "--json", "--no-report"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []

    def until(self, what: str) -> dict[str, Any]:
        """Read events up to the next one of this kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == what:
                return self.events[-1]
        pytest.fail(f"no event {what!r}: {self.process.stderr.read()}")  # type: ignore[union-attr]

    def end(self) -> int:
        out, err = self.process.communicate(timeout=PATIENCE)
        self.events += [json.loads(line) for line in out.splitlines()]
        self.errors = err
        return self.process.returncode


def ranks_of(out: Path) -> list[int]:
    """Pids of the running session: the launcher first, then the ranks."""
    (file,) = (out / "journal").glob("session-*.json")
    noted = json.loads(file.read_text())
    return [pid for pid, _ in noted["processes"]]
