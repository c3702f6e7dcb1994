"""The wheel holds all that the packages need at run time, the sdist all that makes a wheel."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fsmatrix.results.files.store import Store
from tests.results.hostile import record
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(link.name for link in (ROOT / "fsmatrix").iterdir() if link.is_symlink())


BETWEEN = "-- the next command --\n"
IN_ONE_PROCESS = f"""
import json, sys
from fsmatrix.cli.main import command
for words in json.loads(sys.argv[1]):
    print({BETWEEN!r}, end="", flush=True)
    sys.argv = ["fsmatrix", *words]
    assert not command(), words
    sys.stdout.flush()
"""


def tracked() -> set[str]:
    """Every file of the packages that is committed, by its name in a wheel."""
    argv = ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", "HEAD", *PACKAGES, "fsmatrix/"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    names = [name.removeprefix("fsmatrix/") for name in told.splitlines()]
    return {f"fsmatrix/{name}" for name in names if name not in PACKAGES}


def build(tmp_path: Path, kind: str = "--wheel", **env: str) -> Path:
    """The wheel (or the sdist) of what is committed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            kind,
            "--no-isolation",
            "--outdir",
            str(tmp_path / "dist"),
            str(clone),
        ],
        check=True,
        capture_output=True,
        env=os.environ | env,
    )
    (made,) = (tmp_path / "dist").glob("fsmatrix-*")
    return made


def names_in(made: Path) -> set[str]:
    """What a wheel or an sdist holds."""
    if made.suffix == ".whl":
        return set(zipfile.ZipFile(made).namelist())
    with tarfile.open(made) as archive:  # its names begin with the name of a folder
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.needs("extensions")
def test_wheel_is_complete(wheel: Path) -> None:
    names = names_in(wheel)
    assert "fsmatrix/py.typed" in tracked()
    assert tracked() - names == set()
    assert any(name.startswith("fsmatrix/backends/player/_player.") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fsmatrix"}


def test_the_wheel_alone_is_enough_to_work(wheel: Path, tmp_path: Path) -> None:
    """Ready campaigns, the text of batch jobs, templates, tables and studies are found in it."""
    subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--disable-pip-version-check",
            "--target",
            str(tmp_path / "site"),
            str(wheel),
        ],
        check=True,
        timeout=PATIENCE,
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}

    def printed(*words: str) -> str:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        return done.stdout

    place = "import fsmatrix.results as it; print(next(iter(it.__path__)))"
    assert printed(sys.executable, "-P", "-c", place).startswith(str(tmp_path / "site"))
    store = Store.create(tmp_path / "out")
    store.append([record(), record("ext4")])
    studies = [path.stem for path in (ROOT / "results" / "published" / "studies").glob("*.yaml")]
    commands = [
        ["jobs", "--json"],
        ["submit", "quickstart", "-o", "queued", "--dry-run"],
        ["bundle", "out", "-o", "b.tar.gz"],
        ["report", "out"],
        *(["claims", study, "out", "--json"] for study in studies),
    ]
    said = printed(sys.executable, "-P", "-c", IN_ONE_PROCESS, json.dumps(commands))
    listed, queued, bundled, _, *claims = said.split(BETWEEN)[1:]
    assert {job["name"] for job in json.loads(listed)} == {
        path.stem for path in (ROOT / "jobs").glob("*.yaml")
    }
    assert "#SBATCH" in queued
    assert "2 runs, 2 ok" in bundled
    assert b"README.md" in gzip.decompress((tmp_path / "b.tar.gz").read_bytes())
    assert "<html" in (store.directory / "report.html").read_text(encoding="utf-8")
    assert [json.loads(claim)["study"] for claim in claims] == studies


def test_sdist_is_complete(tmp_path: Path) -> None:
    """A wheel can be built from it: also the headers and setup.py are there, and no link."""
    names = names_in(build(tmp_path, "--sdist"))
    assert tracked() - names == set()
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.endswith(".so")]


def test_wheel_without_a_compiler(tmp_path: Path) -> None:
    """The extension is optional: the pure-Python player serves."""
    names = names_in(build(tmp_path, CC="/bin/false"))
    assert not [name for name in names if name.endswith(".so")]
    assert "fsmatrix/backends/player/python_player.py" in names
