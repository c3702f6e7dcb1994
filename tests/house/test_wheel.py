"""The wheel holds all that the packages need at run time, the sdist all that makes a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WANTED = (
    "fsmatrix/py.typed",
    "fsmatrix/jobs/quickstart.yaml",
    "fsmatrix/jobs/smoke.yaml",
    "fsmatrix/results/published/ssd-cluster-setup.csv",
    "fsmatrix/analysis/draw/templates/report.html.j2",
    "fsmatrix/backends/player/ops.py",
    "fsmatrix/suite/session/__main__.py",
)
PACKAGES = ("analysis", "backends", "cli", "jobs", "results", "slurm", "suite")


def tracked() -> set[str]:
    """Every file of the packages that is committed, by its name in a wheel."""
    argv = ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", *PACKAGES]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return {f"fsmatrix/{name}" for name in told.splitlines()}


def build(tmp_path: Path, kind: str = "--wheel", **env: str) -> set[str]:
    """Names in the wheel (or the sdist) of what is committed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir",
         str(tmp_path / "dist"), str(clone)],
        check=True, capture_output=True, env=os.environ | env,
    )  # fmt: skip
    (made,) = (tmp_path / "dist").glob("fsmatrix-*")
    if kind == "--wheel":
        return set(zipfile.ZipFile(made).namelist())
    with tarfile.open(made) as archive:  # its names begin with the name of a folder
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


@pytest.mark.needs("extensions")
def test_wheel_is_complete(tmp_path: Path) -> None:
    names = build(tmp_path)
    assert not [name for name in WANTED if name not in names]
    assert tracked() - names == set()
    assert any(name.startswith("fsmatrix/backends/player/_player.") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fsmatrix"}


def test_sdist_is_complete(tmp_path: Path) -> None:
    """A wheel can be built from it: also the headers and setup.py are there, and no link."""
    names = build(tmp_path, "--sdist")
    assert tracked() - names == set()
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.endswith(".so")]


def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    """The extension is optional: the pure-Python player serves."""
    names = build(tmp_path, CC="/bin/false")
    assert not [name for name in names if name.endswith(".so")]
    assert "fsmatrix/backends/player/python/player.py" in names
