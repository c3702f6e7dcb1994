"""Where libdaos and libdfs are loaded from, and from where never."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.daos import libraries
from fsmatrix.backends.daos.daos_options import DaosDfsOptions
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.errors import BackendError
from tests.backends.daos.test_interception import loaded


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installation of DAOS that only its tool on PATH leads to."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "bin/daos").write_text("#!/bin/sh\n")
    (tmp_path / "bin/daos").chmod(0o755)
    for name in libraries.CLIENT:
        shutil.copy(loaded()[0], tmp_path / "lib64" / name)
        (tmp_path / "lib64" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(libraries, "of_loader", lambda _name: iter(()))
    yield tmp_path


def test_libraries_beside_the_tool_are_used(prefix: Path) -> None:
    assert libraries.library_folder("") == str(prefix / "lib64")


def test_what_the_loader_finds_comes_first(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "of_loader", lambda name: iter([prefix / "lib64" / name]))
    assert libraries.library_folder("") == ""


def test_the_loaders_own_path_comes_first(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative:{prefix}/lib64")
    assert libraries.library_folder("") == ""


def test_no_libraries_are_left_to_the_loader_to_miss(prefix: Path) -> None:
    shutil.rmtree(prefix / "lib64")
    assert libraries.library_folder("") == ""


@pytest.mark.parametrize("given", [True, False])
def test_libraries_that_others_can_change_are_not_loaded(prefix: Path, given: bool) -> None:
    """By name or by the tool: root's ranks would run what anybody put there."""
    (prefix / "lib64/libdfs.so").chmod(0o777)
    folder = str(prefix / "lib64") if given else ""
    with pytest.raises(BackendError, match=r"library: .*libdfs.so can be written to by others"):
        libraries.library_folder(folder)
    refusal = DaosDfs(DaosDfsOptions(pool="p", library=folder)).refusal()
    assert "libdfs.so can be written to by others" in refusal


def test_a_folder_without_libraries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"library: .*libdaos.so.2: No such file"):
        libraries.library_folder(str(tmp_path))
