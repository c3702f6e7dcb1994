"""DAOS containers of conductors that were killed, against a stand-in of the `daos` tool."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.daos import tool as daos_tool
from fsmatrix.backends.journal.journal import undo_pending
from tests.backends.daos_standin import THEIRS, Standin

CONDUCTOR = """
import os, signal, sys
from pathlib import Path
from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.daos import tool as daos_tool
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.registry import load

def die():
    os.kill(os.getpid(), signal.SIGKILL)

base, line = Path(sys.argv[1]), int(sys.argv[2])
append, lines, create = module.Journal._append, [], daos_tool.create

def counted(self, text):
    append(self, text)
    lines.append(text)
    if len(lines) == line:
        die()

def made(*words):
    create(*words)
    die()

module.Journal._append = counted
if line == 0:
    daos_tool.create = made
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


def test_a_crash_and_then_no_tool(
    standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), "2"]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(daos_tool, "TOOL", "no-such-daos")
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("left alone: ")
    assert daos_tool.MISSING in said
    assert standin.ours
