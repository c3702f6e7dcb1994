"""Other people's programs: which of them root does not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools


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
