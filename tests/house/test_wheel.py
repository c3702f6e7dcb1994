"""The wheel holds everything that the packages need at run time."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WANTED = (
    "fsmatrix/py.typed",
    "fsmatrix/jobs/quickstart.yaml",
    "fsmatrix/jobs/smoke.yaml",
    "fsmatrix/results/published/ssd-cluster-setup.csv",
    "fsmatrix/analysis/report/templates/report.html.j2",
    "fsmatrix/backends/ops.py",
    "fsmatrix/suite/session/__main__.py",
)


def build(tmp_path: Path, **env: str) -> set[str]:
    """Names in the wheel of what is committed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir",
         str(tmp_path / "dist"), str(clone)],
        check=True, capture_output=True, env=os.environ | env,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("fsmatrix-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.needs("extensions")
def test_wheel_is_complete(tmp_path: Path) -> None:
    names = build(tmp_path)
    assert not [name for name in WANTED if name not in names]
    assert any(name.startswith("fsmatrix/backends/_player.") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fsmatrix"}


def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    """The extension is optional: the pure-Python player serves."""
    names = build(tmp_path, CC="/bin/false")
    assert not [name for name in names if name.endswith(".so")]
    assert "fsmatrix/backends/twin.py" in names
