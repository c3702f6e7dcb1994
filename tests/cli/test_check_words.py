"""What `fsmatrix check` says: of an engine kinds of what it can do, and whose MPI a launcher is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsmatrix.cli import main as cli
from fsmatrix.cli.campaigns.first_steps import _features


def test_options_of_a_program_are_not_listed_letter_by_letter() -> None:
    letters = {f"option:{letter}" for letter in "abcdefghijklm"}
    assert _features(frozenset({*letters, "api:POSIX", "api:DFS", "plain"})) == "; api DFS, POSIX"
    assert _features(frozenset(letters)) == ""


def test_a_workload_whose_engine_is_missing_is_not_usable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And hydra's row says that it is MPICH's, whether it is there or not."""
    monkeypatch.setenv("FSMATRIX_DBENCH", str(tmp_path / "none"))
    hydra = tmp_path / "mpiexec.hydra"
    hydra.write_text("#!/bin/sh\necho 'HYDRA build details:'\necho '    Version:    4.0.2'\n")
    hydra.chmod(0o755)
    monkeypatch.setenv("FSMATRIX_PATH", str(tmp_path))  # root vouches for it
    monkeypatch.setattr(sys, "argv", ["fsmatrix", "check", "--json"])
    assert cli.command() == 0
    items = {(item["kind"], item["name"]): item for item in json.loads(capsys.readouterr().out)}
    assert not items["engine", "dbench"]["ok"]
    assert not items["workload", "dbench"]["ok"]
    assert items["workload", "dbench"]["reason"] == "its engine is not usable (below): dbench"
    assert items["workload", "pattern"]["ok"]
    assert items["launcher", "mpiexec"]["version"].startswith("MPICH ")
