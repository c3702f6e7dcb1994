"""DAOS containers of conductors that were killed, against a stand-in of the `daos` tool."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.daos import containers
from fsmatrix.backends.daos import tools as daos_tools
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import undo_pending
from tests.backends.daos_standin import THEIRS, Standin

CONDUCTOR = """
import os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.contract import load

def die():
    os.kill(os.getpid(), signal.SIGKILL)

base, line = Path(sys.argv[1]), int(sys.argv[2])
append, lines, create = module.Journal._append, [], Client.create

def counted(self, text):
    append(self, text)
    lines.append(text)
    if len(lines) == line:
        die()

def made(*words, **named):
    create(*words, **named)
    die()

module.Journal._append = counted
if line == 0:
    Client.create = made
kind = load("daos-dfs")
backend = kind(kind.Options(pool="bench"))
journal = module.Journal(base / "journals/host.jsonl")
context = ProvisionContext("daos-a", base / "state", journal, "tag1")
access = backend.provision({}, context)
backend.release(access, context)
"""


@pytest.mark.parametrize(("line", "left", "undone"), [(0, 1, 1), (1, 0, 0), (2, 1, 1), (3, 0, 0)])
def test_killed_conductor(
    standin: Standin, tmp_path: Path, line: int, left: int, undone: int
) -> None:
    """Right after creation (0), after the intent, after the UUID, after the end was noted."""
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), str(line)]
    killed = subprocess.run(argv, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(standin.ours) == left
    names = standin.ours
    said = undo_pending(tmp_path / "journals")
    assert said == [f"destroyed container {name} of pool bench" for name in names]
    assert len(said) == undone
    assert standin.containers == {"posix1": THEIRS}
    assert undo_pending(tmp_path / "journals") == []


def test_a_crash_whose_container_became_another_ones(standin: Standin, tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), "2"]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    (name,) = standin.ours
    standin.keep({name: THEIRS})
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith(f"left alone: daos-container bench/{name}: ")
    assert "not destroyed" in said
    assert standin.containers == {name: THEIRS}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"pool": "--force"}, "'--force' is not a name that DAOS gives"),
        ({"system": "a b"}, "'a b' is not a name that DAOS gives"),
        ({"label": "fsmatrix-x/y"}, "'fsmatrix-x/y' is not a name that DAOS gives"),
        ({"label": "fsmatrix-results"}, "'fsmatrix-results' is not one of the suite's containers"),
        ({"deadline": "soon"}, "'soon' is not a deadline"),
        ({"deadline": 1e999}, "inf is not a deadline"),
    ],
)
def test_a_forged_entry_is_passed_to_no_tool(
    standin: Standin, facts: dict[str, Any], why: str
) -> None:
    entry = {"pool": "bench", "label": "fsmatrix-a-b-00000000", "system": ""} | facts
    with pytest.raises(BackendError, match=re.escape(why)):
        containers.destroy_recorded(entry)
    assert not (standin.folder / "calls.jsonl").exists()


def test_a_crash_and_then_no_tool(
    standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), "2"]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(daos_tools, "DAOS", "no-such-daos")
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("left alone: ")
    assert daos_tools.NO_DAOS in said
    assert standin.ours
