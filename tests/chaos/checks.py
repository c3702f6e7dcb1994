"""What must hold after each fault, whatever it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from tests.chaos.commands import Command
from tests.chaos.place import Place

DOCUMENTED = (0, 1, 2, 130)  # `fsmatrix run --help`
STATUSES = ("ok", "failed", "timeout")


@dataclass
class Outcome:
    """What came of one scenario."""

    fault: str
    faults: int = 0  # given; 0: what was to be hit never came
    met: list[str] = field(default_factory=list)  # how commands ended that were hit
    after: str = ""  # how `run --resume` ended afterwards
    left: list[str] = field(default_factory=list)  # ours that is left, where that may be
    wrong: list[str] = field(default_factory=list)  # violations

    def hit(self, command: Command, signals: Iterable[int] = ()) -> None:
        """Take the end of a command that a fault met; it may have died of these signals."""
        status = command.wait()
        self.met.append(_text(status))
        if status is None or (status not in DOCUMENTED and -status not in set(signals)):
            self.wrong.append(f"{' '.join(command.words)} ended with {_text(status)}")
        self.wrong += complaints(command)

    def resume(self, place: Place, *words: object, allowed: tuple[int, ...] = (0,)) -> None:
        """`run --resume`, let alone; allowed statuses beside 0 need words of why."""
        command = Command(
            place.folder,
            "run",
            place.folder / "campaign.yaml",
            "-o",
            place.store,
            "--resume",
            "--quiet",
            *words,
        )
        status = command.wait()
        self.after = _text(status)
        if status not in allowed:
            self.wrong.append(f"--resume ended with {self.after}: {_last(command.err)}")
        elif status == 2 and "error: " not in command.err:
            self.wrong.append(f"--resume gave status 2 and no reason: {_last(command.err)}")
        self.wrong += complaints(command)

    def look(self, place: Place, *, runs: int | None = None) -> None:
        """`show`, `collect` and `report` give a result or a named reason; `runs`: so many."""
        shown = self._read(place, "show", place.store, "--json")
        collected = self._read(place, "collect", place.store, "--json")
        self._read(place, "report", place.store)
        if shown.status == 0:
            json.loads(shown.out)
        if runs is not None and collected.status == 0:
            told = json.loads(collected.out)
            if told["runs"] != runs:
                self.wrong.append(f"collect found {told['runs']} runs of {runs}")

    def _read(self, place: Place, *words: object) -> Command:
        command = Command(place.folder, *words)
        status = command.wait()
        if status not in (0, 2) or (status == 2 and "error: " not in command.err):
            self.wrong.append(f"{words[0]} ended with {_text(status)}: {_last(command.err)}")
        self.wrong += complaints(command)
        return command


def complaints(command: Command) -> list[str]:
    """Tracebacks that a command printed."""
    if "Traceback (most recent call last)" not in command.out + command.err:
        return []
    return [f"{command.words[0]} printed a traceback: {_last(command.err)}"]


def runs_of(store: Path, planned: int) -> list[str]:
    """Runs that are neither absent, complete, nor failed with a reason."""
    wrong, settled = [], set()
    opened = Store.open(store)
    for path in opened.files():
        try:
            record = opened.read(path.stem)
        except (ResultError, KeyError) as error:
            wrong.append(f"run {path.name} cannot be read: {error}")
            continue
        if record.status not in STATUSES or (record.status != "ok" and not record.error):
            wrong.append(f"run {path.name} is {record.status!r} because of {record.error!r}")
        if record.status == "ok" and not record.phases:
            wrong.append(f"run {path.name} is ok and has no phase")
        settled.add((record.case_id, record.repetition))
    if len(settled) != planned:
        wrong.append(f"{len(settled)} of {planned} runs are there")
    return wrong


def _text(status: int | None) -> str:
    if status is None:
        return "hang"
    return "signal" if status < 0 else str(status)


def _last(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])[:600]
