"""The house's import directions, read from the syntax trees of all modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "results": {"results"},
    "backends": {"backends", "results"},
    "suite": {"suite", "backends", "results"},
    "slurm": {"slurm", "suite", "backends", "results"},
    "analysis": {"analysis", "results"},
    "jobs": set(),
}
# What a rank imports must stay small; these modules run in ranks.
RANK_MODULES = (
    "suite/session",
    "suite/streams",
    "backends/ops.py",
    "backends/player.py",
    "backends/twin.py",
    "backends/content.py",
)
CONDUCTOR_SIDE = {
    "client.py",
    "death.py",
    "launched.py",
    "loopback.py",
}  # of suite/session, not imported by ranks
HEAVY = {"pydantic", "h5py", "xarray", "scipy", "ruamel", "rich", "typer", "psutil"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, top_only: bool = False) -> set[str]:
    """Full names of what a module imports (with `top_only`, outside functions)."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_in_one_direction(package: str) -> None:
    for path in modules(package):
        for name in imports(path):
            parts = name.split(".")
            assert parts[0] not in MAY_IMPORT, f"{path}: import fsmatrix.{name} instead"
            if parts[0] != "fsmatrix" or len(parts) < 2 or parts[1] not in MAY_IMPORT:
                continue
            if package == "suite" and "cli" in path.relative_to(ROOT).parts:
                continue  # the top of the house
            assert parts[1] in MAY_IMPORT[package], f"{path} may not import {name}"


def test_nothing_imports_the_cli() -> None:
    for package in MAY_IMPORT:
        for path in modules(package):
            if "cli" in path.relative_to(ROOT).parts:
                continue
            assert not any(name.startswith("fsmatrix.suite.cli") for name in imports(path)), path


def test_ranks_import_little() -> None:
    for start in RANK_MODULES:
        place = ROOT / start
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if path.name in CONDUCTOR_SIDE:
                continue
            heavy = {name.split(".")[0] for name in imports(path, top_only=True)} & HEAVY
            assert not heavy, f"{path} imports {heavy} in every rank"
