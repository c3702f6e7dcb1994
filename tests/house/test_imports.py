"""Which module may import which: between packages, folders and files, and in ranks."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs"))
folders = importlib.import_module("make_folders")
MAY_IMPORT = {
    "results": {"results"},
    "backends": {"backends", "results"},
    "traces": {"traces", "backends", "results"},
    "suite": {"suite", "traces", "backends", "results"},
    "slurm": {"slurm", "suite", "backends", "results"},
    "analysis": {"analysis", "results"},
    "cli": {"cli", "analysis", "slurm", "suite", "traces", "backends", "results", "jobs"},
    "jobs": set(),
}
# What a rank imports must stay small; these modules run in ranks.
RANK_MODULES = (
    "suite/session",
    "suite/workloads/streams",
    "backends/player/player.py",
    "backends/player/ops.py",
    "backends/player/player.py",
    "backends/player/python_player.py",
    "backends/player/python_posix.py",
    "backends/player/content.py",
    "traces/trace_model.py",
    "traces/page_cache.py",
)
CONDUCTOR_SIDE = {"client.py", "orphaned_sessions.py"}  # of suite/session: ranks do not import them
HEAVY = {"pydantic", "h5py", "xarray", "scipy", "ruamel", "rich", "typer", "psutil"}
OPTIONAL = {"uproot", "awkward", "cramjam", "xxhash", "ROOT", "darshan", "mpi4py"}
MOST_ENTRIES = 16  # files and folders side by side


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_in_one_direction(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in folders.imports(path):
            parts = name.split(".")
            assert parts[0] not in MAY_IMPORT, f"{path}: import fsmatrix.{name} instead"
            if parts[0] == "fsmatrix" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                assert parts[1] in MAY_IMPORT[package], f"{path} may not import {name}"


def test_every_package_is_under_this_test() -> None:
    linked = {path.name for path in (ROOT / "fsmatrix").iterdir() if path.is_symlink()}
    assert linked == set(MAY_IMPORT) == {*folders.PACKAGES, "jobs"}


def test_no_circle_between_files() -> None:
    assert folders.circle(folders.graph()) == []


def test_no_circle_between_what_stands_side_by_side() -> None:
    edges = folders.graph()
    places = ["", *(name for name, path in folders.modules().items() if path.name == "__init__.py")]
    assert {
        folder: found
        for folder in places
        if (found := folders.circle(folders.siblings(folder, edges)))
    } == {}


def test_folders_hold_no_more_than_can_be_looked_over() -> None:
    for folder in {path.parent for path in folders.modules().values()}:
        entries = [p for p in folder.iterdir() if p.is_dir() or p.suffix == ".py"]
        shown = [p.name for p in entries if not p.name.startswith("__")]
        assert len(shown) <= MOST_ENTRIES, f"{folder.relative_to(ROOT)}: {sorted(shown)}"


def test_what_a_folder_says_is_used_from_outside_is_there() -> None:
    inits = sorted(ROOT.glob("*/**/__init__.py"))
    named = {}
    for path in [path for path in inits if path.relative_to(ROOT).parts[0] in folders.PACKAGES]:
        said = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("From outside: ")[2]
        names = re.findall(r"`(\w+)`", re.split(r"[.;](?:\s|$)", said)[0])
        here = {entry.stem for entry in path.parent.iterdir()}
        named[str(path.relative_to(ROOT))] = [name for name in names if name not in here]
    assert len(named) > 50
    assert {path: names for path, names in named.items() if names} == {}


def test_ranks_import_little() -> None:
    for start in RANK_MODULES:
        place = ROOT / start
        assert place.exists()
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if path.name in CONDUCTOR_SIDE:
                continue
            heavy = {name.split(".")[0] for name in folders.imports(path, top_only=True)} & HEAVY
            assert not heavy, f"{path} imports {heavy} in every rank"


def test_tests_are_collected_where_a_library_for_some_of_them_is_missing() -> None:
    """`pytest -m daos` on a cluster: what is not asked for needs nothing."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        top = {name.split(".")[0] for name in folders.imports(path, top_only=True)}
        assert not top & OPTIONAL, f"{path}: import {', '.join(top & OPTIONAL)} where it is used"


def test_the_drawing_is_that_of_the_code() -> None:
    command = [sys.executable, "-P", str(ROOT / "docs/make_folders.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
