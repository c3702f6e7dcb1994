"""Temporary folders of programs: gone with their makers, or found by the next run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from fsmatrix.backends.system import tools, workfolder

KILLED = """
import os, signal, sys
from fsmatrix.backends.system import tools

program = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
tools.run([sys.executable, "-c", program])
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_process_left_is_swept(temporary: Path) -> None:
    ran = subprocess.run([sys.executable, "-P", "-c", KILLED], check=False)
    assert ran.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    (left / "file").write_text("of a merge")
    (left / "s/data").mkdir(parents=True)
    with closing(socket.socket(socket.AF_UNIX)) as listening:  # as a database server's
        listening.bind(str(left / "s/socket"))
    left.chmod(0o711)  # its user passes through
    assert workfolder.sweep() == [left]
    assert list(temporary.iterdir()) == []


def test_folders_in_use_and_of_others_stay(temporary: Path) -> None:
    with workfolder.work_folder() as used:
        others = [
            temporary / f"{workfolder.PREFIX}notours",  # seven letters
            temporary / f"{workfolder.PREFIX}opentoal",
            temporary / f"{workfolder.PREFIX}linktoit",
        ]
        others[0].mkdir(0o700)
        others[1].mkdir()
        others[1].chmod(0o755)
        others[2].symlink_to(others[0])
        assert workfolder.sweep() == []
        assert used.is_dir()
        assert all(os.path.lexists(path) for path in others)
    assert not used.exists()


@pytest.mark.setuid
def test_another_users_folder_stays(temporary: Path) -> None:
    theirs = temporary / f"{workfolder.PREFIX}abcdefgh"
    theirs.mkdir(0o700)
    os.chown(theirs, 65534, 65534)
    assert workfolder.sweep() == []
    assert theirs.is_dir()


def test_programs_run_in_an_empty_folder_that_goes(temporary: Path) -> None:
    ran = tools.run([sys.executable, "-c", "import os; print(os.getcwd(), os.listdir())"])
    place, _, listed = ran.stdout.strip().partition(" ")
    assert Path(place).parent == temporary
    assert listed == "[]"
    assert list(temporary.iterdir()) == []
