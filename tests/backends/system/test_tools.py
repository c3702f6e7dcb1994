"""Other people's programs: which of them root does not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.errors import NoAnswer, ToolError
from fsmatrix.backends.system import tools
from tests.waiting import until


def program(folder: Path, mode: int = 0o755) -> Path:
    """A tool in a folder of its own."""
    folder.mkdir()
    path = folder / "mkfs.trial"
    path.write_text("#!/bin/sh\necho made\n")
    path.chmod(mode)
    return path


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_root_runs_nothing_from_a_folder_that_everybody_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    assert tools.run([path.name]).stdout == "made\n"
    path.parent.chmod(mode)
    with pytest.raises(ToolError, match=f"everybody may write {path.parent}; mend its mode"):
        tools.run([path.name])


@pytest.mark.root
def test_root_runs_no_program_that_everybody_may_write_behind_a_link_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path / "elsewhere", 0o757)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / path.name).symlink_to(path)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    with pytest.raises(ToolError, match=f"everybody may write {path}; mend its mode"):
        tools.run([path.name])
    path.chmod(0o755)
    assert tools.run([path.name]).stdout == "made\n"


def test_a_signal_to_our_group_is_not_the_tool_s(tmp_path: Path) -> None:
    """A Ctrl-C of the terminal reaches every process of the group; the tool answers."""
    code = (
        "import signal\n"
        "from fsmatrix.backends.system import tools\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "ran = tools.run(['sh', '-c', 'echo asked > asked; sleep 1; echo answered'], 60, False)\n"
        "print(ran.returncode, ran.stdout)\n"
    )
    begun = tmp_path / "begun"
    code = code.replace("echo asked > asked", f"touch {begun}")
    argv = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as asker:
        until(begun.exists)
        os.killpg(asker.pid, signal.SIGINT)
        out, _ = asker.communicate(timeout=60)
    assert out.split() == ["0", "answered"]


def test_what_a_tool_that_is_too_late_has_started_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"
    with pytest.raises(NoAnswer, match="did not end within 1 s"):
        tools.run(["sh", "-c", script], deadline=1.0)
    pid = int(child.read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
