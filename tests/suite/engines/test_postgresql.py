"""Where PostgreSQL is looked for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.suite.engines import postgresql
from fsmatrix.suite.engines.engine import EngineError
from fsmatrix.suite.engines.postgresql import BESIDE, KIND


def make(folder: Path, version: str, beside: tuple[str, ...] = BESIDE) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", *beside):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} (PostgreSQL) {version}"\n')
        (folder / name).chmod(0o755)
    return folder / "postgres"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No PostgreSQL but in folders of the test."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("FSMATRIX_POSTGRESQL", raising=False)
    pattern = f"{tmp_path}/lib/*/bin"
    monkeypatch.setattr(postgresql, "FOLDERS", (pattern,))
    return tmp_path


def test_the_newest_of_a_distribution_is_taken(nowhere: Path) -> None:
    for version in ("9", "15", "17"):
        make(nowhere / "lib" / version / "bin", f"{version}.2")
    assert KIND.find() == str(nowhere / "lib/17/bin/postgres")
    assert KIND.probe().version == "17.2"


def test_what_is_named_goes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(nowhere / "lib/17/bin", "17.2")
    other = make(nowhere / "opt", "16beta1")
    monkeypatch.setenv("FSMATRIX_POSTGRESQL", str(other))
    assert KIND.probe().version == "16beta1"


def test_a_link_on_the_path_leads_to_its_programs(nowhere: Path) -> None:
    real = make(nowhere / "elsewhere", "15.1")
    (nowhere / "path").mkdir()
    (nowhere / "path/postgres").symlink_to(real)
    assert KIND.find() == str(real)


def test_none_is_there(nowhere: Path) -> None:
    with pytest.raises(EngineError, match=r"no postgres on PATH: .*postgresql"):
        KIND.probe()


def test_a_part_of_an_installation_is_refused(nowhere: Path) -> None:
    make(nowhere / "lib/15/bin", "15.1", ("initdb", "psql"))
    with pytest.raises(EngineError, match="has no pgbench beside postgres"):
        KIND.probe()


def test_an_old_one_is_refused(nowhere: Path) -> None:
    make(nowhere / "lib/14/bin", "14.9")
    with pytest.raises(EngineError, match="PostgreSQL 14 is too old"):
        KIND.probe()
