"""MPI and DAOS's libraries in one process: a clash is named with its cure."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from fsmatrix.backends.daos import libraries

MPI = """
import ctypes, mmap, os, types
rc = types.SimpleNamespace()
MPI = object()
def load(name):
    raise OSError(f"{name}: version FABRIC_1.7 not found")
"""
NO_MPI = 'if "/opt/daos/lib64" in os.environ.get("LD_LIBRARY_PATH", ""):\n    raise RuntimeError'
NO_DAOS = "ctypes.CDLL = load\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An mpi4py of this test, instead of the real one."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(libraries.MPI_PATH, raising=False)
    libraries._clash.cache_clear()
    return tmp_path


def mpi(folder: Path, *lines: str) -> None:
    (folder / "mpi4py.py").write_text(MPI + "\n".join(lines))


def test_folders_that_keep_mpi_from_loading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpi(folder, NO_MPI + '("cannot load MPI library")')
    assert libraries.mpi_clash() == ""
    monkeypatch.setenv(libraries.MPI_PATH, "/opt/daos/lib64:/opt/x")
    reason = libraries.mpi_clash()
    assert "MPI does not load with LD_LIBRARY_PATH=/opt/daos/lib64:/opt/x" in reason
    assert "cannot load MPI library" in reason
    assert "Unset LD_LIBRARY_PATH" in reason


@pytest.mark.needs("compiler")
def test_mpi_that_keeps_daos_from_loading(folder: Path, double: Path) -> None:
    mpi(folder)
    assert libraries.mpi_clash(str(double)) == ""
    libraries._clash.cache_clear()
    mpi(folder, NO_DAOS)
    reason = libraries.mpi_clash(str(double))
    assert "libdaos does not load beside MPI" in reason
    assert "FABRIC_1.7" in reason


def test_what_is_not_there_at_all_is_no_clash(folder: Path) -> None:
    mpi(folder)
    assert libraries.mpi_clash(str(folder)) == ""
    libraries._clash.cache_clear()
    mpi(folder, 'raise ImportError("no MPI at all")')
    assert libraries.mpi_clash(str(folder)) == ""


def test_mpi_that_is_silently_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpi4py goes on to the next libmpi where its own does not load; one of the path is meant."""
    own, other = folder / "venv/lib/libmpi.so.40", folder / "usr/lib/libmpi.so.40"
    for library in (own, other):
        library.parent.mkdir(parents=True)
        library.write_bytes(bytes(mmap.PAGESIZE))
    mpi(
        folder,
        'own = "/opt/daos/lib64" not in os.environ.get("LD_LIBRARY_PATH", "")',
        f"with open({str(own)!r} if own else {str(other)!r}) as library:",
        "    pages = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)",
    )
    assert libraries.mpi_clash() == ""
    monkeypatch.setenv(libraries.MPI_PATH, "/opt/daos/lib64")
    reason = libraries.mpi_clash()
    assert f"mpi4py takes {other} without a word, since {own} does not load" in reason
    assert "Unset LD_LIBRARY_PATH" in reason
    monkeypatch.setenv(libraries.MPI_PATH, f"/opt/daos/lib64:{other.parent}")
    assert libraries.mpi_clash() == ""
