"""DAOS for tests: a stand-in of the `daos` tool that replays recorded answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.daos import tools as daos_tool
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.system import tools

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data" / "daos"
THEIRS: dict[str, Any] = {
    "uuid": "b8408443-2781-4cf3-9f9b-c69929ad5610",
    "type": "POSIX",
    "options": {},
}


class Standin:
    """The folder that the stand-in works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keep({"posix1": THEIRS})

    def keep(self, containers: dict[str, Any]) -> None:
        (self.folder / "containers.json").write_text(json.dumps(containers))

    @property
    def containers(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "containers.json").read_text())
        return found

    @property
    def ours(self) -> list[str]:
        return [label for label in self.containers if label != "posix1"]

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    @property
    def pools(self) -> dict[str, Any]:
        file = self.folder / "pools.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def keep_pools(self, **ranks: list[int]) -> None:
        pools = {
            label: {"uuid": f"uuid-{label}", "ranks": given, "size": 1 << 30}
            for label, given in ranks.items()
        }
        (self.folder / "pools.json").write_text(json.dumps(pools))

    @property
    def dmg_calls(self) -> list[list[str]]:
        file = self.folder / "dmg-calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def dmg_fault(self, command: str = "", do: str = "", **more: Any) -> None:
        text = json.dumps({"command": command, "do": do, **more})
        (self.folder / "dmg-fault.json").write_text(text)

    def fault(self, command: str = "", do: str = "", **more: Any) -> None:
        (self.folder / "fault.json").write_text(json.dumps({"command": command, "do": do, **more}))


def daos(**options: Any) -> DaosDfs:
    kind = contract.load("daos-dfs")
    pool = {} if "levels" in options else {"pool": "bench"}
    backend = kind(kind.Options(**pool | options))
    assert isinstance(backend, DaosDfs)
    return backend


def answer(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return found


def details(**more: Any) -> dict[str, Any]:
    """Of an access to the container that is not the suite's."""
    place = Place(Client(), "bench", "posix1", THEIRS["uuid"], own=False)
    return (
        place.details
        | {"provider": "ofi+tcp", "servers": [], "host": "here"}
        | {
            "pool_version": 1,
            "free": 3324566816,
            "pool_uuid": "ea80abcd-3ddf-4ba4-9876-192f2f6b7916",
            "engines": 1,
        }
        | more
    )


def impatient(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """A short deadline for calls with `word` among their arguments, and for no others."""
    real = tools.run

    def run(argv: Sequence[str], deadline: float, check: bool = True) -> tools.Ran:
        assert deadline <= daos_tool.DEADLINE
        return real(argv, 0.3 if word in argv else 60.0, check)

    monkeypatch.setattr(tools, "run", run)
